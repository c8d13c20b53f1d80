"""What the tasks with a blur share."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from firm.operators import Blur

ITERATIONS = 10  # more change restored images by less than 0.1 dB (experiments/notes/motion_blur)


def valid_blur(kernel: Tensor) -> Blur:
    """The blur of a photograph, whose surroundings are unknown; the kernel is (h, w), or one per sample (B, 1, h, w).

    Conjugate gradients solve with it. Testing whether they have converged waits for a GPU, so they make a fixed number
    of iterations. Then a training step fits into a CUDA graph. The kernel's values are not checked for the same reason.
    """
    op = Blur(kernel, boundary="valid", check=False)
    op.cg_tol, op.cg_iterations = 0, ITERATIONS
    return op


def centered(kernel: Tensor) -> Tensor:
    """A kernel (h, w) without its outer zeros, in an odd square: its center, (h // 2, w // 2), stays the center."""
    (h, w), (rows, columns) = kernel.shape, kernel.nonzero().unbind(1)
    reach = int(torch.cat([rows - h // 2, columns - w // 2]).abs().max())
    around = F.pad(kernel, (reach,) * 4)
    return around[h // 2 : h // 2 + 2 * reach + 1, w // 2 : w // 2 + 2 * reach + 1]
