"""Checks shared by the operators; every message names the operator and the shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from firm.operators.base import LinearOperator

LARGEST = 8  # root mean square of images; those of FIRM are in [-1, 1]


def name(op: object) -> str:
    """How messages call an operator: its repr where that is short, else its class."""
    return repr(op) if isinstance(op, nn.Module) and "\n" not in repr(op) else type(op).__name__


def shape(x: Tensor) -> tuple[int, ...]:
    """The shape of `x` as a plain tuple."""
    return tuple(x.shape)


def require_tensor(what: str, value: object) -> None:
    """Raise ValueError unless `value` is a tensor."""
    if not isinstance(value, Tensor):
        numpy = type(value).__module__ == "numpy"
        raise ValueError(
            f"{what} must be a torch tensor, got {'a NumPy array' if numpy else type(value).__name__}"
            f"{': torch.from_numpy makes one of it' if numpy else ''}"
        )


def require_image(op: object, x: Tensor, *, complex_images: bool = False) -> None:
    """Raise ValueError unless `x` is a batch of real, or complex, images (B, C, H, W)."""
    if x.ndim != 4:
        raise ValueError(f"{name(op)} takes images of shape (B, C, H, W), got {shape(x)}")
    if x.is_complex() != complex_images:
        kind = "complex" if complex_images else "real"
        raise ValueError(f"{name(op)} takes {kind} images, got {x.dtype} of shape {shape(x)}")


def require_shape(op: object, what: str, x: Tensor, expected: tuple[int, ...]) -> None:
    """Raise ValueError unless `x` has the `expected` shape."""
    if shape(x) != tuple(expected):
        raise ValueError(f"{name(op)}: {what} has shape {shape(x)}, expected {tuple(expected)}")


def require_broadcast(op: object, pattern: Tensor, x: Tensor) -> None:
    """Raise ValueError unless `pattern` (a mask or a kernel's batch) broadcasts onto `x` without enlarging it."""
    pairs = zip(reversed(pattern.shape), reversed(x.shape), strict=False)
    if pattern.ndim > x.ndim or any(p not in (1, n) for p, n in pairs):
        raise ValueError(
            f"{name(op)}: shape {shape(pattern)} does not fit {shape(x)}; give (H, W), (C, H, W), "
            "or one per sample, (B, 1, H, W)"
        )


def require_pattern(op: object, what: str, pattern: Tensor) -> None:
    """Raise ValueError for a mask or kernel that is complex, not finite, or zero throughout (in any sample)."""
    kind = type(op).__name__
    require_tensor(f"{kind}: the {what}", pattern)
    if pattern.is_complex():
        raise ValueError(f"{kind}: the {what} must be a real tensor, got {pattern.dtype}")
    if pattern.numel() == 0 or not bool(pattern.isfinite().all()):
        raise ValueError(f"{kind}: the {what} of shape {shape(pattern)} must be non-empty and finite")
    samples = pattern.flatten(1) if pattern.ndim == 4 else pattern.reshape(1, -1)
    if not bool(samples.any(dim=1).all()):
        raise ValueError(f"{kind}: the {what} of shape {shape(pattern)} is empty: A would measure nothing")


def require_one_scale(op: LinearOperator, Aty: Tensor, y: Tensor, sigma: float | Tensor | None = None) -> None:
    """Raise ValueError if no images in [-1, 1], or near that, can have the measurements `y`, with noise of `sigma`.

    c A'y, with the c that makes A(c A'y) closest to y, is never larger (in the mean square) than an image that
    explains y, whatever A is. Costs one application of A. The limit is 8, and more where there is much noise: pictures
    with values of 0 to 255, and overflow further on, are noticed, other habits are left alone.
    """
    AAty = op.A(Aty)
    wanted = "y must be a torch tensor of floats with images in [-1, 1] (for values x of 0 to 255: x / 127.5 - 1)"
    if not bool(AAty.isfinite().all()):
        largest = float(y.abs().max())
        raise ValueError(
            f"{name(op)}: A(A'y) is NaN or infinite for y of shape {shape(y)} up to {largest:.3g}: {wanted}"
        )
    up, down = (v.abs().double().square().reshape(len(v), -1) for v in (Aty, AAty))
    gain = (down.sum(1) / up.sum(1)).sqrt()  # of A, on A'y
    c = up.sum(1) / down.sum(1)
    size = (c * up.mean(1).sqrt()).nan_to_num(0, 0, 0)  # 0 where A'y is
    noise = 0.0 if sigma is None else (torch.as_tensor(sigma, device=y.device).double() / gain).nan_to_num(0, 0, 0)
    worst = float((size / (1 + noise)).max())
    if worst > LARGEST:
        raise ValueError(
            f"{name(op)}: y of shape {shape(y)} belongs to images of a size of {float(size.max()):.3g}: {wanted}"
        )
