"""Checks shared by the operators; every message names the operator and the shapes."""

from __future__ import annotations

from torch import Tensor, nn

from firm._util.checks import require

LARGEST = 8  # root mean square of images; those of FIRM are in [-1, 1]


def name(op: object) -> str:
    """How messages call an operator: its repr where that is short, else its class."""
    return repr(op) if isinstance(op, nn.Module) and "\n" not in repr(op) else type(op).__name__


def shape(x: Tensor) -> tuple[int, ...]:
    """The shape of `x` as a plain tuple."""
    return tuple(x.shape)


def dimensions(x: Tensor) -> str:
    """The shape of `x` as the operators' reprs show it, such as 3x5."""
    return "x".join(map(str, x.shape))


def require_tensor(what: str, value: object) -> None:
    """Raise ValueError unless `value` is a tensor."""
    numpy = type(value).__module__ == "numpy"
    kind = "a NumPy array: torch.from_numpy makes one of it" if numpy else type(value).__name__
    require(isinstance(value, Tensor), f"{what} must be a torch tensor, got {kind}")


def require_image(op: object, x: Tensor, *, complex_images: bool = False) -> None:
    """Raise ValueError unless `x` is a batch of real, or complex, images (B, C, H, W)."""
    if x.ndim != 4:  # no `require`: a message costs time, and this is asked of every A(x)
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
    the = f"{type(op).__name__}: the {what}"
    require_tensor(the, pattern)
    require(not pattern.is_complex(), f"{the} must be a real tensor, got {pattern.dtype}")
    whole = pattern.numel() > 0 and bool(pattern.isfinite().all())
    require(whole, f"{the} of shape {shape(pattern)} must be non-empty and finite")
    samples = pattern.flatten(1) if pattern.ndim == 4 else pattern.reshape(1, -1)
    seen = bool(samples.any(dim=1).all())
    require(seen, f"{the} of shape {shape(pattern)} is empty: A would measure nothing")
