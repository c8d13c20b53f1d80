"""Checks of what comes from outside, one statement each: of arguments, files and settings."""

from __future__ import annotations

from typing import Any


def require(condition: object, message: str, error: type[Exception] = ValueError) -> None:
    """Raise `error` with `message` unless `condition` holds; the message says what was wrong and what to do."""
    if not condition:
        raise error(message)


def is_whole(value: Any, low: int, high: float = float("inf")) -> bool:
    """Whether `value` is a whole number, of Python or NumPy, from `low` to `high`."""
    return hasattr(value, "__index__") and not isinstance(value, bool) and bool(low <= value <= high)


def is_number(value: Any, high: float = 1e30) -> bool:
    """Whether `value` is one finite real number, of Python or NumPy, from -`high` to `high`."""
    return hasattr(value, "__float__") and not isinstance(value, bool) and bool(abs(value) <= high)


def short(value: Any) -> str:
    """How a message shows a value, however long it is."""
    try:
        text = repr(value)
    except ValueError:  # an int of more digits than Python prints
        return "a number of thousands of digits"
    return text if len(text) <= 100 else text[:97] + "..."
