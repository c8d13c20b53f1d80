"""How large A is, and the images behind a measurement: rho and the noise levels of training are meant for norm 1.

The functions that end in ``_numbers`` leave their results on the device, for `firm.prepare` to read back at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from firm.operators.base import LinearOperator


@torch.no_grad()
def operator_norm(op: LinearOperator, images: Tensor | Sequence[int], iterations: int = 5) -> float:
    """The largest singular value of A, slightly underestimated: power iterations of A'A on fixed noise.

    `images` is their shape, (B, ...), or images on the device where A works.
    """
    like = images if isinstance(images, Tensor) else torch.empty(tuple(images))
    return float(norm_number(op, like, iterations))


def norm_number(op: LinearOperator, like: Tensor, iterations: int = 5) -> Tensor:
    """What `operator_norm` returns, as a tensor on the device of the images `like` (B, ...)."""
    generator = Generator(like.device).manual_seed(0)
    x = torch.randn(like.shape, generator=generator, dtype=like.dtype, device=like.device)
    for _ in range(iterations):
        x = op.A_adjoint(op.A(x / x.norm().clamp(min=torch.finfo(x.dtype).tiny)))
    return x.norm().sqrt()


def scale_numbers(op: LinearOperator, Aty: Tensor, y: Tensor, sigma: Tensor | None = None) -> Tensor:
    """Four numbers: is A(A'y) finite, the largest |y|, the size of images behind y, and that size beside the noise.

    c A'y, with the c that makes A(c A'y) closest to y, is never larger (in the mean square) than an image that
    explains y, whatever A is: its size tells pictures with values of 0 to 255, and overflow further on. Much noise, of
    level `sigma` (B,), makes y larger than its images. Costs one application of A.
    """
    AAty = op.A(Aty)
    up, down = (v.abs().double().square().reshape(len(v), -1) for v in (Aty, AAty))
    gain = (down.sum(1) / up.sum(1)).sqrt()  # of A, on A'y
    c = up.sum(1) / down.sum(1)
    size = (c * up.mean(1).sqrt()).nan_to_num(0, 0, 0)  # 0 where A'y is
    noise = torch.zeros_like(size) if sigma is None else (sigma.double() / gain).nan_to_num(0, 0, 0)
    finite, largest = AAty.isfinite().all(), y.abs().max()
    return torch.stack([v.double() for v in (finite, largest, size.max(), (size / (1 + noise)).max())])
