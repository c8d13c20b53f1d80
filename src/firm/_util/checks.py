"""Checks of what comes from outside, one statement each: of arguments, files and settings."""

from __future__ import annotations


def require(condition: object, message: str, error: type[Exception] = ValueError) -> None:
    """Raise `error` with `message` unless `condition` holds; the message says what was wrong and what to do."""
    if not condition:
        raise error(message)
