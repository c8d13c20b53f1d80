"""Checks of a network's settings, which may come from a file of unknown origin: types and limits, before building."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def whole(kind: str, name: str, value: Any, high: int) -> int:
    """`value`, or ValueError unless it is a whole number from 1 to `high`."""
    if not is_whole(value, 1, high):
        raise ValueError(f"{kind}: {name} must be a whole number from 1 to {high}, got {short(value)}")
    return int(value)


def wholes(kind: str, name: str, values: Any, high: int, most: int, least: int = 1) -> tuple[int, ...]:
    """`values` as a tuple, or ValueError unless they are `least` to `most` whole numbers from 1 to `high`."""
    if not isinstance(values, Sequence) or isinstance(values, str) or not least <= len(values) <= most:
        raise ValueError(
            f"{kind}: {name} must be a list of {least} to {most} whole numbers, such as [1, 2], got {short(values)}"
        )
    return tuple(whole(kind, name, value, high) for value in values)


def per_level(kind: str, blocks: Any, levels: int) -> tuple[int, ...]:
    """How many blocks each of the levels has: `blocks` is a number for all of them, or one for each."""
    if not isinstance(blocks, list | tuple):
        return (whole(kind, "blocks", blocks, 100),) * levels
    each = wholes(kind, "blocks", blocks, 100, 12)
    if len(each) != levels:
        raise ValueError(f"{kind}: blocks must be one number or one a level, got {short(blocks)} for {levels}")
    return each


def require_number(kind: str, name: str, value: Any, high: float) -> None:
    """Raise ValueError unless `value` is a number from -`high` to `high`."""
    if not is_number(value, high):
        raise ValueError(f"{kind}: {name} must be a number of at most {high:g}, got {short(value)}")


def is_whole(value: Any, low: int, high: float = float("inf")) -> bool:
    """Whether it is a whole number, of Python or NumPy, in these limits."""
    return hasattr(value, "__index__") and not isinstance(value, bool) and bool(low <= value <= high)


def is_number(value: Any, high: float = 1e30) -> bool:
    """Whether it is one finite real number, of Python or NumPy, not beyond `high`."""
    return hasattr(value, "__float__") and not isinstance(value, bool) and bool(abs(value) <= high)


def short(value: Any) -> str:
    """How a message shows a value, however long it is."""
    try:
        text = repr(value)
    except ValueError:  # an int of more digits than Python prints
        return "a number of thousands of digits"
    return text if len(text) <= 100 else text[:97] + "..."
