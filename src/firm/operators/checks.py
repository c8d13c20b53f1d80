"""Checks shared by the operators; every message names the operator and the shapes."""

from __future__ import annotations

from torch import Tensor, nn


def name(op: object) -> str:
    """How messages call an operator: its repr where that is short, else its class."""
    return repr(op) if isinstance(op, nn.Module) and "\n" not in repr(op) else type(op).__name__


def shape(x: Tensor) -> tuple[int, ...]:
    """The shape of `x` as a plain tuple."""
    return tuple(x.shape)


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
    if not isinstance(pattern, Tensor) or pattern.is_complex():
        raise ValueError(f"{kind}: the {what} must be a real tensor, got {getattr(pattern, 'dtype', type(pattern))}")
    if pattern.numel() == 0 or not bool(pattern.isfinite().all()):
        raise ValueError(f"{kind}: the {what} of shape {shape(pattern)} must be non-empty and finite")
    samples = pattern.flatten(1) if pattern.ndim == 4 else pattern.reshape(1, -1)
    if not bool(samples.any(dim=1).all()):
        raise ValueError(f"{kind}: the {what} of shape {shape(pattern)} is empty: A would measure nothing")
