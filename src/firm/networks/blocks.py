"""The parts of the U-Net: residual blocks with GroupNorm and Swish, attention, and what joins the levels."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from firm.networks.norm_swish import GroupNorm, NormSwish

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
        self.norm = GroupNorm(channels, groups)
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
