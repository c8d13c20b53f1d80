"""What the tasks with a blur share."""

from __future__ import annotations

from torch import Tensor

from firm.operators import Blur

ITERATIONS = 10  # more change restored images by less than 0.1 dB (experiments/motion_blur)


def valid_blur(kernel: Tensor) -> Blur:
    """The blur of a photograph, whose surroundings are unknown; the kernel is (h, w), or one per sample (B, 1, h, w).

    Conjugate gradients solve with it. Testing whether they have converged waits for a GPU, so they make a fixed number
    of iterations. Then a training step fits into a CUDA graph. The kernel's values are not checked for the same reason.
    """
    op = Blur(kernel, boundary="valid", check=False)
    op.cg_tol, op.cg_iterations = 0, ITERATIONS
    return op
