"""Denoisers D(x, sigma): a flow's velocity by a change of variables, its gradient step, and DRUNet."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from firm.networks.estimator import OneImage
from firm.networks.res_unet import PriorResUNet
from firm.networks.unet import PriorUNet


def denoise(velocity: Callable[[Tensor, Tensor], Tensor], x: Tensor, sigma: float | Tensor) -> Tensor:
    """D(x, sigma) = x_t + (1 - t) v(x_t, t) with t = 1 / (1 + sigma) and x_t = t x; `sigma` is a number or (B,).

    For x = x_1 + sigma n this x_t is the flow's state, t x_1 + (1 - t) n, because t sigma = 1 - t.
    """
    t = 1 / (1 + torch.as_tensor(sigma, dtype=x.dtype, device=x.device).expand(len(x)))
    s = t.reshape(-1, *[1] * (x.ndim - 1))
    return s * x + (1 - s) * velocity(s * x, t)


class Step(OneImage):
    """D(x, sigma) = x - grad g(x) with g(x) = |x - N(x, sigma)|^2 / 2 and N made of a flow's network.

    N is the flow's estimate of the clean image (`estimate`), so a trained flow is the start of its training: the
    parameters and the arguments are the same. A call costs one evaluation of N and one of its backward pass.

    It is trained through that backward pass, which is differentiated again: torch.compile cannot do that.
    """

    def estimate(self, x: Tensor, sigma: Tensor) -> Tensor:
        """N(x, sigma): the flow's estimate of the clean image."""
        with sdpa_kernel(SDPBackend.MATH):  # the other kernels of attention cannot be differentiated twice
            return denoise(super().forward, x, sigma)

    def potential(self, x: Tensor, sigma: Tensor) -> Tensor:
        """g(x) = |x - N(x, sigma)|^2 / 2 of every sample, (B,)."""
        return (x - self.estimate(x, sigma)).square().flatten(1).sum(1) / 2

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:  # type: ignore[override]
        """D(x, sigma) = N + J_N'(x - N) for images `x` (B, C, H, W) of noise level `sigma` (B,).

        Works without gradients around it, too: under `torch.no_grad` and in inference mode.
        """
        wanted = torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in self.parameters()))
        with torch.inference_mode(False), torch.enable_grad():
            if not (wanted and x.requires_grad):
                x = x.detach().clone().requires_grad_()  # a copy: tensors of inference mode have no gradients
            N = self.estimate(x, sigma.clone())
            (pulled,) = torch.autograd.grad(N, x, x - N, create_graph=wanted)
        return N + pulled if wanted else (N + pulled).detach()


class GradientStep(Step, PriorUNet):
    """A gradient step whose network is the paper's U-Net on one image, as in `PriorUNet`."""


class GradientResStep(Step, PriorResUNet):
    """A gradient step whose network is our leaner U-Net on one image, as in `PriorResUNet`."""


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
        self.config: dict[str, Any] = dict(channels=channels, widths=tuple(widths), blocks=blocks)
        self.stride = 2 ** (len(widths) - 1)
        self.head = nn.Conv2d(channels + 1, widths[0], 3, padding=1, bias=False)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for fine, coarse in itertools.pairwise(widths):
            shrink = nn.Conv2d(fine, coarse, 2, stride=2, bias=False)
            enlarge = nn.ConvTranspose2d(coarse, fine, 2, stride=2, bias=False)
            self.down.append(nn.Sequential(*(_ResidualBlock(fine) for _ in range(blocks)), shrink))
            self.up.insert(0, nn.Sequential(enlarge, *(_ResidualBlock(fine) for _ in range(blocks))))
        self.body = nn.Sequential(*(_ResidualBlock(widths[-1]) for _ in range(blocks)))
        self.tail = nn.Conv2d(widths[0], channels, 3, padding=1, bias=False)

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Denoise `x` (B, C, H, W) of noise level `sigma` (B,)."""
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


class _ResidualBlock(nn.Module):
    """A residual block without biases: x + conv(ReLU(conv(x)))."""

    compiled_alone = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, width, H, W) to the same shape."""
        out: Tensor = x + self.conv2(F.relu(self.conv1(x)))
        return out
