"""Group normalization and Swish, what stands before every convolution of the network: eager, compiled, and fused.

The third is one kernel for restoring on a GPU, where at batch 1 the number of kernels is the time.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class GroupNorm(nn.GroupNorm):
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


class NormSwish(GroupNorm):
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
    from firm.networks.norm_swish_kernel import launch

    x = x.contiguous(memory_format=torch.channels_last)
    out = torch.empty_like(x)
    with torch.cuda.device_of(x):  # Triton launches on the current device
        launch(x, None if shift is None else shift.flatten(1).contiguous(), weight, bias, out, groups, eps)
    return out
