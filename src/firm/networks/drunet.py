"""DRUNet, the denoiser that PnP-HQS (DPIR) plugs in (Zhang et al., 2021): a residual U-Net with the noise as input."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from firm.networks.settings import whole, wholes


class DRUNet(nn.Module):
    """D(x, sigma): images out of noisy ones, for every noise level. The paper's has 32,640,960 parameters.

    Images are in [-1, 1], and sigma in these units. Inside they are in [0, 1], and the map of the noise level, the last
    input channel, holds sigma / 2: as published, so that weights made for the published network mean the same here.
    There are no biases: scaling image and noise level together scales the result.

    Parameters
    ----------
    channels
        C of the images.
    widths
        Of the scales, from the image's own resolution down; each halves the one before.
    blocks
        Residual blocks a scale, on the way down and on the way up.
    """

    adamw_only = ("head.", "tail.")  # no maps between features: parameters that Muon leaves to AdamW

    def __init__(self, channels: int = 3, widths: tuple[int, ...] = (64, 128, 256, 512), blocks: int = 4) -> None:
        super().__init__()
        channels, blocks = whole("DRUNet", "channels", channels, 4096), whole("DRUNet", "blocks", blocks, 100)
        widths = wholes("DRUNet", "widths", widths, 65536, 12)
        self.config: dict[str, Any] = dict(channels=channels, widths=widths, blocks=blocks)
        self.stride = 2 ** (len(widths) - 1)
        self.head = nn.Conv2d(channels + 1, widths[0], 3, padding=1, bias=False)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for fine, coarse in itertools.pairwise(widths):
            shrink = nn.Conv2d(fine, coarse, 2, stride=2, bias=False)
            enlarge = nn.ConvTranspose2d(coarse, fine, 2, stride=2, bias=False)
            self.down.append(nn.Sequential(*_residual(fine, blocks), shrink))
            self.up.insert(0, nn.Sequential(enlarge, *_residual(fine, blocks)))
        self.body = nn.Sequential(*_residual(widths[-1], blocks))
        self.tail = nn.Conv2d(widths[0], channels, 3, padding=1, bias=False)

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Denoise `x` (B, C, H, W) of noise level `sigma` (B,)."""
        self._check(x, sigma)
        level = (sigma / 2).to(x.dtype)[:, None, None, None].expand(-1, 1, *x.shape[2:])
        h = self.head(torch.cat([(x + 1) / 2, level], dim=1))
        skips = [h]
        for scale in self.down:
            h = scale(h)
            skips.append(h)
        h = self.body(h)
        for scale in self.up:
            h = scale(h + skips.pop())
        return 2 * self.tail(h + skips.pop()) - 1

    def _check(self, x: Tensor, sigma: Tensor) -> None:
        if x.ndim != 4 or x.shape[1] != self.config["channels"]:
            raise ValueError(f"DRUNet takes images (B, {self.config['channels']}, H, W), got {tuple(x.shape)}")
        if x.shape[2] % self.stride or x.shape[3] % self.stride:
            raise ValueError(
                f"DRUNet: height and width must be multiples of {self.stride} "
                f"({len(self.config['widths'])} scales), got {x.shape[2]}x{x.shape[3]}"
            )
        if sigma.shape != x.shape[:1]:
            raise ValueError(f"DRUNet takes one sigma an image, ({len(x)},), got {tuple(sigma.shape)}")


class ResidualBlock(nn.Module):
    """x + conv(ReLU(conv(x)))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, width, H, W) to the same shape."""
        out: Tensor = x + self.conv2(F.relu(self.conv1(x)))
        return out


def _residual(width: int, blocks: int) -> list[nn.Module]:
    return [ResidualBlock(width) for _ in range(blocks)]
