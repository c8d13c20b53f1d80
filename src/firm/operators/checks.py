"""What messages say of operators, and the look at masks, kernels and measurements that users bring."""

from __future__ import annotations

import torch
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


def checked_pattern(op: object, what: str, pattern: Tensor, check: bool) -> Tensor:
    """A copy of a mask or kernel in float32 or better, after a look at its values.

    With `check`, ValueError says if it is complex, not finite, or zero throughout (in any sample).
    """
    if check:
        the = f"{type(op).__name__}: the {what}"
        require_tensor(the, pattern)
        require(not pattern.is_complex(), f"{the} must be a real tensor, got {pattern.dtype}")
        whole = pattern.numel() > 0 and bool(pattern.isfinite().all())
        require(whole, f"{the} of shape {shape(pattern)} must be non-empty and finite")
        samples = pattern.flatten(1) if pattern.ndim == 4 else pattern.reshape(1, -1)
        seen = bool(samples.any(dim=1).all())
        require(seen, f"{the} of shape {shape(pattern)} is empty: A would measure nothing")
    return pattern.to(torch.promote_types(pattern.dtype, torch.float32), copy=True)
