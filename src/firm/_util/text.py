"""Values of options that hold several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml


def numbers(text: str, option: str = "--steps") -> list[int]:
    """The values of an option that takes several whole numbers."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1 or len(set(found)) < len(found):
        raise ValueError(f"{option} takes different whole numbers of at least 1, such as 1,2,4, got {text!r}")
    return found


def settings(pairs: Sequence[str], option: str = "--set") -> dict[str, Any]:
    """The settings ``key=value`` of an option that may be given several times."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator or not key.strip():
            raise ValueError(f"{option} takes key=value, got {pair!r}")
        try:
            found[key.strip()] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(f"{option} {pair!r}: no value after the = sign that can be read") from error
    return found
