"""Options that people write, read; and what is said to them in words."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from firm._util.checks import require


def numbers(text: str, option: str = "--steps") -> list[int]:
    """Return the values of an option that takes several whole numbers, such as ``1,2,4``."""
    parts = text.split(",")
    found = [int(part) for part in parts if part.strip().isdecimal() and int(part) > 0]
    wanted = f"{option} takes different whole numbers of at least 1, such as 1,2,4, got {text!r}"
    require(len(set(found)) == len(parts), wanted)
    return found


def counted(count: int, what: str = "image") -> str:
    """Say a number of things in words: "1 image", "10 images"."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def settings(pairs: Sequence[str], option: str = "--set") -> dict[str, Any]:
    """Return the settings ``key=value`` of an option that may be given several times; values are read as YAML."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, separator, text = pair.partition("=")
        require(separator and key.strip(), f"{option} takes key=value, got {pair!r}")
        try:
            found[key.strip()] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(f"{option} {pair!r}: no value after the = sign that can be read") from error
    return found


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message on an unknown `name`: the nearest of the `known` ones; empty if none is near."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def noise_level(text: str, option: str = "--sigma") -> float:
    """Return a noise level for pixels in [-1, 1]: ``0.2`` as it is, or in gray levels of 255, ``25/255``."""
    found = re.fullmatch(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*(/\s*255(?:\.0*)?)?", text.strip().lower())
    if not found:
        wanted = "a noise level for pixels in [-1, 1], such as 0.2, or in gray levels, such as 25/255"
        raise ValueError(f"{option} takes {wanted}; got {text!r}")
    return 2 * float(found[1]) / 255 if found[2] else float(found[1])


def image_size(text: str, option: str = "--size") -> tuple[int, int]:
    """Return height and width of an image: ``128`` for a square, else ``WIDTHxHEIGHT``, as pictures are named."""
    words = text.lower().split("x")
    fits = len(words) <= 2 and all(word.isdecimal() and int(word) > 0 for word in words)
    require(fits, f"{option} takes the side of a square image, or WIDTHxHEIGHT, such as 192x128; got {text!r}")
    return int(words[-1]), int(words[0])


def in_both_units(low: float, high: float | None = None) -> str:
    """Say a noise level, or a range of them, for pixels in [-1, 1] and in gray levels of 255."""
    if high is None or f"{low:.3g}" == f"{high:.3g}":
        return f"{low:.3g} in [-1, 1] = {127.5 * low:.3g}/255"
    return f"{low:.3g} to {high:.3g} in [-1, 1] = {127.5 * low:.3g}/255 to {127.5 * high:.3g}/255"
