"""The image that a solver starts from: A'y, or the enlarged measurement where it is a smaller image."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from firm.operators.base import LinearOperator


def first_guess(op: LinearOperator, y: Tensor) -> Tensor:
    """A'y; for a measurement that is a smaller image (super-resolution), its bicubic interpolation. (B, C, H, W).

    Pixel j of the small image lies at pixel s j of the large one, where a stride of s found it.
    """
    x = op.A_adjoint(y)
    small = y.ndim == 4 and not y.is_complex() and y.shape[1] == x.shape[1]
    if not small or y.shape[2] >= x.shape[2] or y.shape[3] >= x.shape[3]:
        return x
    (H, W), (h, w) = x.shape[2:], y.shape[2:]
    if H % h or W % w or min(h, w) < 2:
        return x  # cut off at its rim, not shrunk
    rows, columns = (
        2 * torch.arange(n, device=y.device, dtype=y.dtype) / (n // m) / (m - 1) - 1 for n, m in ((H, h), (W, w))
    )
    grid = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), dim=-1)
    return F.grid_sample(y, grid.expand(len(y), -1, -1, -1), "bicubic", "border", align_corners=True)
