"""What the library says to users of the command line, for visitors of the page, who have no options."""

from __future__ import annotations

import re
from collections.abc import Callable

from firm.demo.pictures import GRAY_LEVELS


def _noise(found: re.Match[str]) -> str:
    return f"a noise level of {_levels(found[1])}"


def _untrained(found: re.Match[str]) -> str:
    ends = " to ".join(map(_levels, found[2].split(" to ")))
    return f"a noise level of {_levels(found[1])} is not what the model was trained for, {ends}"


def _levels(sigma: str) -> str:
    """Of 255, as the page counts them."""
    level = float(sigma) * GRAY_LEVELS
    return f"{level:.0f}" if level > 10 else f"{level:.2g}"


WORDS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r" \(max_megapixels.*", ""),
    (r"give its level with --sigma", "choose its noise level instead of the estimate"),
    (r"--sigma ([\d.]+)", _noise),
    (r"\bsigma ([\d.]+) is not what the model was trained for, ([\d.]+(?: to [\d.]+)?)", _untrained),
    (r"give --blur, or its --kernel", "choose its width"),
    (r": say what is black and white, --value-range.*", ""),
    (r"; --value-range low,high says otherwise", ""),
    (r", --value-range 0,4095 says so", ", brighten the picture first"),
    (r" by its mask: white means missing.*", ""),  # visitors paint, or name a color
)


def for_visitors(text: str) -> str:
    """A message or a note of the library without options of the command line, in the terms of the page."""
    for said, instead in WORDS:
        text = re.sub(said, instead, text)
    return text
