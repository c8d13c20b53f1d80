"""A leaner estimator than the paper's U-Net: residual blocks without GroupNorm, from single pixels up.

Beyond the paper. Its layout is that of DRUNet (Zhang et al., 2021), with the inputs of our estimators. GroupNorm takes
almost as much time on a GPU as the convolutions, and folded pixels cost detail: experiments/notes/face_128 has trials.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from firm.networks.estimator import Conditioning, Estimator, OneImage, Stem
from firm.networks.unet import Attention

EMBEDDING, GROUPS = 64, 16  # sines and cosines of the time; groups of the attention's normalization
TINY = 1e-6  # for pixels whose features are all zero


class ResUNet(Estimator):
    """U-Net of plain residual blocks on the concatenation of x^{k+1} and x_t, conditioned on t; returns an image.

    `PriorResUNet` is the same on one image.

    Parameters
    ----------
    channels
        C of the images.
    widths
        Of the levels, the first at the resolution of the images; each halves that of the one before.
    blocks
        Residual blocks per level, going down and again going up, once in the last: a number, or one for each level.
    unshuffle
        Fold ``unshuffle x unshuffle`` pixels into channels before the first level, and unfold them after the last.
    attention
        Whether there is self-attention in the last level.
    time_scale, noise_level, extra
        The same as those of `UNet`.
    """

    def __init__(
        self,
        channels: int = 3,
        *,
        widths: tuple[int, ...] = (32, 64, 128, 256),
        blocks: int | tuple[int, ...] = 2,
        unshuffle: int = 1,
        attention: bool = True,
        time_scale: float = 1.0,
        noise_level: bool = False,
        extra: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        each = self._prepare(blocks, len(widths), unshuffle, extra)
        self.config = dict(
            channels=channels, widths=tuple(widths), blocks=each if isinstance(blocks, list | tuple) else blocks,
            unshuffle=unshuffle, attention=attention,
            time_scale=time_scale, noise_level=noise_level, extra=tuple(extra),
        )  # fmt: skip
        pixels = channels * unshuffle**2
        self.stem = Stem(self.images * pixels, widths[0], unshuffle)
        *fine, (width, number) = zip(widths, each, strict=True)
        self.down = nn.ModuleList(Level(*level) for level in fine)
        self.shrink = nn.ModuleList(nn.Conv2d(a, b, 2, stride=2) for a, b in pairwise(widths))
        self.before, self.after = Level(width, number - number // 2), Level(width, number // 2)
        self.attention = Attention(width, GROUPS) if attention else nn.Identity()
        self.enlarge = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in reversed(list(pairwise(widths))))
        self.up = nn.ModuleList(Level(*level) for level in reversed(fine))
        self.head = nn.Conv2d(widths[0], pixels, 3, padding=1)
        shifts = [width for module in self.modules() if isinstance(module, Level) for width in module.widths]
        self.conditioning = Conditioning(EMBEDDING, shifts, time_scale, noise_level, "iteration" in extra)
        for name, parameter in self.named_parameters():  # at first the residual branches add nothing
            if name.startswith(("head.", "attention.project.")) or ".conv2." in name:
                nn.init.zeros_(parameter)

    def _run(self, h: Tensor, shifts: tuple[Tensor, ...]) -> Tensor:
        left, skips = iter(shifts), [h]  # one shift a block, in the order of the blocks
        for level, shrink in zip(self.down, self.shrink, strict=True):
            h = shrink(level(h, left))
            skips.append(h)
        h = self.after(self.attention(self.before(h, left)), left)
        for enlarge, level in zip(self.enlarge, self.up, strict=True):
            h = level(enlarge(h + skips.pop()), left)
        out: Tensor = self.head(h + skips.pop())
        return F.pixel_shuffle(out, self.unshuffle) if self.unshuffle > 1 else out


class PriorResUNet(OneImage, ResUNet):
    """The same network on one image: the velocity v(x, t) of an unconditional flow."""


class Level(nn.Module):
    """The plain blocks of one resolution, one after the other, all of one width."""

    fused = False  # set by `firm.fast` on a GPU with Triton; no gradients

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.widths = [width] * blocks
        self.blocks = nn.ModuleList(PlainBlock(width) for _ in range(blocks))

    def forward(self, x: Tensor, shifts: Iterator[Tensor]) -> Tensor:
        """Map (B, width, H, W) to the same shape, with the next of the shifts for every block."""
        if self.fused and x.is_cuda and not torch.compiler.is_compiling():
            return self._fused_blocks(x, shifts)
        for block in self.blocks:
            x = block(x, next(shifts))
        return x

    def _fused_blocks(self, x: Tensor, shifts: Iterator[Tensor]) -> Tensor:
        """The blocks with two kernels between their convolutions, for `x` in channels_last; no gradients.

        Each adds to x and divides for the next. The convolutions' biases, kernels of their own on a GPU, are in them.
        """
        from firm.networks.triton_kernel import add_and_normalize, shifted_swish

        with torch.cuda.device_of(x):  # Triton launches on the current device
            x = x.contiguous(memory_format=torch.channels_last)
            unit = torch.empty_like(x)
            add_and_normalize(x, None, None, x, unit, TINY)
            for block in self.blocks:
                weight1, bias1, weight2, bias2 = block.parameters()  # of conv1 and conv2
                h = F.conv2d(unit, weight1, padding=1).contiguous(memory_format=torch.channels_last)
                shifted_swish(h, bias1, next(shifts)[:, :, 0, 0])
                h = F.conv2d(h, weight2, padding=1).contiguous(memory_format=torch.channels_last)
                out, unit = torch.empty_like(x), torch.empty_like(x)
                add_and_normalize(x, h, bias2, out, unit, TINY)
                x = out
        return x


class PlainBlock(nn.Module):
    """x + conv(Swish(conv(x / |x|) + shift)), where |x| is the root mean square of a pixel's features.

    Without the division a block multiplies what it is given, and so do all blocks one after the other: now and then
    a picture comes out a million times too bright, and training at a high rate ends there.
    """

    compiled_alone = True
    in_place = False  # set by `firm.fast` on a CPU; no gradients

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor, shift: Tensor) -> Tensor:
        """Map (B, width, H, W) to the same shape; `shift` is (B, width, 1, 1)."""
        if self.in_place and not x.is_cuda and not torch.compiler.is_compiling():
            return self._in_place(x, shift)
        exact = x.to(torch.promote_types(x.dtype, torch.float32))  # of bfloat16 a sum of squares is too coarse
        unit = exact * (exact.square().mean(1, keepdim=True) + TINY).rsqrt()
        out: Tensor = x + self.conv2(F.silu(self.conv1(unit.to(x.dtype)) + shift.to(x.dtype)))
        return out

    def _in_place(self, x: Tensor, shift: Tensor) -> Tensor:
        """The same without gradients: a CPU waits for its memory, so no features are written that need not be."""
        exact = x.to(torch.promote_types(x.dtype, torch.float32), copy=True)
        size = torch.linalg.vector_norm(exact, dim=1, keepdim=True).square_().div_(x.shape[1])
        unit = exact.mul_(size.add_(TINY).rsqrt_()).to(x.dtype)
        h = F.silu(self.conv1(unit).add_(shift.to(x.dtype)), inplace=True)
        out: Tensor = self.conv2(h)
        return out.add_(x)
