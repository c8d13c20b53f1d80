"""The parts of the U-Net: residual blocks with GroupNorm and Swish, attention, and what joins the levels."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ITERATIONS = 8  # of the solver that a network tells apart; later ones count as the last


class Conditioning(nn.Module):
    """What t, and the noise level where the network takes it, add between the convolutions of every block.

    The blocks' linear maps are one matrix: one product serves all blocks.
    """

    def __init__(
        self, ch: int, widths: list[int], time_scale: float, noise_level: bool, iteration: bool = False
    ) -> None:
        super().__init__()
        self.ch, self.widths, self.time_scale = ch, widths, time_scale
        self.time = _embedding(ch, 4 * ch)
        self.noise = _embedding(ch, 4 * ch) if noise_level else None
        self.iteration = nn.Parameter(torch.zeros(ITERATIONS, 4 * ch)) if iteration else None  # one row for each k
        self.project = nn.Linear(4 * ch, sum(widths))

    def forward(self, t: Tensor, sigma: Tensor | None, k: Tensor | None = None) -> tuple[Tensor, ...]:
        """Map t, sigma and the iteration k, all (B,), to one shift (B, width, 1, 1) a block."""
        embedding: Tensor = self.time(_sinusoid(t * self.time_scale, self.ch))
        if self.noise is not None and sigma is not None:
            level = sigma.clamp(min=1e-4).log() / math.log(1e-4)  # 1 at 1e-4, 0 at 1
            embedding = embedding + self.noise(_sinusoid(level * self.time_scale, self.ch))
        if self.iteration is not None and k is not None:
            embedding = embedding + self.iteration[k.long().clamp(max=ITERATIONS - 1)]
        shifts: Tensor = self.project(F.silu(embedding))
        return shifts[:, :, None, None].split(self.widths, dim=1)


class _GroupNorm(nn.GroupNorm):
    """Group normalization, in float32; of `groups` groups where they divide the channels, else of as many as do both.

    Compiled, it sums each channel over the pixels first, then over the group. torch's own decomposition copies to the
    (B, C, H, W) layout and back around every convolution in channels_last; sums over pixels need no copies, and the
    scaling joins the neighboring operations.
    """

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__(math.gcd(groups, channels), channels, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize (B, C, H, W)."""
        if not torch.compiler.is_compiling():
            return super().forward(x)
        wide = x.float()
        pixels = x.shape[2] * x.shape[3] * (x.shape[1] // self.num_groups)
        sums = torch.stack([wide.sum((2, 3)), wide.square().sum((2, 3))])  # (2, B, C)
        mean, square = sums.unflatten(2, (self.num_groups, -1)).sum(-1) / pixels
        scale = torch.rsqrt((square - mean.square()).clamp(min=0) + self.eps)
        mean, scale = (v.repeat_interleave(x.shape[1] // self.num_groups, 1)[:, :, None, None] for v in (mean, scale))
        out = (wide - mean) * (scale * self.weight[:, None, None]) + self.bias[:, None, None]
        return out.to(torch.promote_types(x.dtype, self.weight.dtype))


class NormSwish(_GroupNorm):
    """Group normalization of ``x + shift``, then Swish."""

    fused = False  # set by `firm.fast` where `has_fused`; no gradients

    def forward(self, x: Tensor, shift: Tensor | None = None) -> Tensor:
        """Map `x` (B, C, H, W), with `shift` (B, C, 1, 1) added first, to the same shape."""
        if self.fused and x.is_cuda and not torch.compiler.is_compiling():
            return fused_norm_swish(x, shift, self.num_groups, self.weight, self.bias, self.eps)
        return F.silu(super().forward(x if shift is None else x + shift.to(x.dtype)))


def fused_norm_swish(
    x: Tensor, shift: Tensor | None, groups: int, weight: Tensor, bias: Tensor, eps: float = 1e-6
) -> Tensor:
    """As ``silu(group_norm(x + shift))`` in one kernel, for `x` (B, C, H, W) in channels_last; no gradients."""
    from firm.networks.triton_kernel import norm_swish

    x = x.contiguous(memory_format=torch.channels_last)
    out = torch.empty_like(x)
    with torch.cuda.device_of(x):  # Triton launches on the current device
        norm_swish(x, None if shift is None else shift.flatten(1).contiguous(), weight, bias, out, groups, eps)
    return out


class Block(nn.Module):
    """Residual block with a shift added between its two convolutions, and attention after it where asked."""

    def __init__(self, inputs: int, outputs: int, groups: int, attend: bool = False) -> None:
        super().__init__()
        self.outputs = outputs
        self.norm1, self.conv1 = NormSwish(inputs, groups), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2, self.conv2 = NormSwish(outputs, groups), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        self.attention = Attention(outputs, groups) if attend else nn.Identity()

    def forward(self, x: Tensor, shift: Tensor, skip: Tensor | None = None) -> Tensor:
        """Map `x`, joined with `skip`, (B, inputs, H, W) to (B, outputs, H, W); `shift` is (B, outputs, 1, 1)."""
        x = x if skip is None else torch.cat([_dense_gradient(x), _dense_gradient(skip)], dim=1)
        h = self.conv1(self.norm1(x))
        h = self.conv2(self.norm2(h, shift))
        out: Tensor = self.attention(self.shortcut(x) + h)
        return out


class _DenseGradient(torch.autograd.Function):
    """The identity. Its backward pass copies the gradient out of that of a concatenation.

    Compiled, the copy is part of the kernel that makes the gradient; without it, views with holes are handed to the
    blocks before, which copy and add them slowly.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return the input."""
        last = x.is_contiguous(memory_format=torch.channels_last)
        ctx.layout = torch.channels_last if last else torch.contiguous_format
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Return the gradient in memory of its own, in the input's layout."""
        return grad.contiguous(memory_format=ctx.layout)


def _dense_gradient(x: Tensor) -> Tensor:
    out: Tensor = _DenseGradient.apply(x)  # type: ignore[no-untyped-call]
    return out


class Attention(nn.Module):
    """Single-head self-attention over the pixels, residual."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.norm = _GroupNorm(channels, groups)
        self.query, self.key, self.value, self.project = (nn.Conv2d(channels, channels, 1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape."""
        h = self.norm(x)
        q, k, v = (f(h).flatten(2).transpose(1, 2)[:, None] for f in (self.query, self.key, self.value))
        h = F.scaled_dot_product_attention(q, k, v)[:, 0].transpose(1, 2).unflatten(2, x.shape[2:])
        out: Tensor = x + self.project(h)
        return out


class Upsample(nn.Module):
    """Nearest-neighbor doubling and a convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, C, 2H, 2W)."""
        B, C, H, W = x.shape
        if torch.compiler.is_compiling():  # by broadcasting: a sum in the backward pass, where an index scatters
            x = x[:, :, :, None, :, None].expand(B, C, H, 2, W, 2).reshape(B, C, 2 * H, 2 * W)
        else:
            x = F.interpolate(x, scale_factor=2)
        out: Tensor = self.conv(x)
        return out


class Stem(nn.Module):
    """The first convolution, on all images together, with their pixels folded into channels."""

    def __init__(self, inputs: int, outputs: int, unshuffle: int) -> None:
        super().__init__()
        self.conv, self.unshuffle = nn.Conv2d(inputs, outputs, 3, padding=1), unshuffle

    def forward(self, *images: Tensor) -> Tensor:
        """Map one or two batches (B, C, H, W) to features."""
        joined = images[0] if len(images) == 1 else torch.cat(images, dim=1)
        out: Tensor = self.conv(F.pixel_unshuffle(joined, self.unshuffle))
        return out


class Head(nn.Module):
    """Normalization, Swish, and the convolution to the output's channels, unfolded into pixels."""

    def __init__(self, inputs: int, outputs: int, groups: int, unshuffle: int) -> None:
        super().__init__()
        self.norm, self.conv = NormSwish(inputs, groups), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.unshuffle = unshuffle

    def forward(self, x: Tensor) -> Tensor:
        """Map features to images (B, C, H, W)."""
        return F.pixel_shuffle(self.conv(self.norm(x)), self.unshuffle)


def _embedding(ch: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(ch, width), nn.SiLU(), nn.Linear(width, width))


def _sinusoid(t: Tensor, width: int) -> Tensor:
    """Sines and cosines of `t` (B,) at width/2 frequencies from 1 down to 1e-4, (B, width)."""
    half = width // 2
    k = torch.arange(half, device=t.device, dtype=torch.float32)
    phase = t.float()[:, None] * torch.exp(-k * (math.log(10_000) / max(half - 1, 1)))
    return torch.cat([phase.sin(), phase.cos()], dim=1).to(t.dtype)
