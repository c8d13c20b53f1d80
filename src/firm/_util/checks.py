"""What comes from outside: checks in one statement, options that people write, seeds, and how messages say things."""

from __future__ import annotations

import difflib
import hashlib
import re
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:  # `firm reproduce list` and `firm bench` do without torch
    from torch import Generator, Tensor


def require(condition: object, message: str, error: type[Exception] = ValueError) -> None:
    """Raise `error` with `message` unless `condition` holds; the message says what was wrong and what to do."""
    if not condition:
        raise error(message)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called the paper's files, `firm._restore` and others, however deep the reason was found."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(("firm._", "torch.")):
        frame, level = frame.f_back, level + 1  # torch: ``no_grad`` as a decorator
    warnings.warn(message, category, stacklevel=level)


def is_whole(value: Any, low: int, high: float = float("inf")) -> bool:
    """Whether `value` is a whole number, of Python or NumPy, from `low` to `high`."""
    return hasattr(value, "__index__") and not isinstance(value, bool) and bool(low <= value <= high)


def is_number(value: Any, high: float = 1e30) -> bool:
    """Whether `value` is one finite real number, of Python or NumPy, from -`high` to `high`."""
    return hasattr(value, "__float__") and not isinstance(value, bool) and bool(abs(value) <= high)


def short(value: Any) -> str:
    """Return what a message shows of a value, however long it is."""
    if isinstance(value, int) and value.bit_length() > 10_000:  # more than Python prints
        return "a number of thousands of digits"
    text = repr(value)
    return text if len(text) <= 100 else text[:97] + "..."


def finite(tensor: Tensor) -> bool:
    """Tell whether a tensor holds no NaN and nothing infinite; forty times as fast as ``isfinite().all()``."""
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    low, high = tensor.aminmax()  # NaN would be both
    return bool(low.isfinite() & high.isfinite())


def numbers(text: str, option: str = "--steps") -> list[int]:
    """Return the values of an option that takes different whole numbers of at least 1, such as ``1,2,4``."""
    parts = text.split(",")
    found = [int(part) for part in parts if part.strip().isdecimal() and int(part) > 0]
    wanted = f"{option} takes different whole numbers of at least 1, such as 1,2,4, got {text!r}"
    require(len(set(found)) == len(parts), wanted)
    return found


def counted(count: int, what: str = "image") -> str:
    """Say a number of things in words: "1 image", "10 images"."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def settings(pairs: Sequence[str], option: str = "--set") -> dict[str, Any]:
    """Return the settings of an option that may be given several times: ``key=value``, the value as in YAML."""
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
    """Return the noise level that a user has written, for pixels in [-1, 1].

    Parameters
    ----------
    text
        A number such as ``0.2``, or one in gray levels of 255, such as ``25/255``, which is twice as much in [-1, 1].
    option
        What the option is called, for the message of the ValueError.
    """
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


def require_seed(seed: object, error: type[Exception] = ValueError) -> int:
    """Raise `error` unless `seed` is a whole number from 0 to 2^32 - 1.

    torch's CPU generator keeps 32 bits of a seed: 2^32 would give the samples of 0, and -1 those of 2^32 - 1.
    """
    value = seed.__index__() if hasattr(seed, "__index__") and not isinstance(seed, bool) else -1
    if not 0 <= value < 2**32:
        raise error(f"the seed must be a whole number from 0 to 2^32 - 1 = {2**32 - 1}, got {short(seed)}")
    return int(value)


def generator_for(seed: int, index: int, purpose: str) -> Generator:
    """Return a CPU generator for one image and one purpose, so that neither batches nor devices change what is drawn.

    Parameters
    ----------
    seed, index
        The seed of the work, and the number of the image in its data set.
    purpose
        What is drawn, such as "noise": another purpose draws independent numbers.
    """
    from torch import Generator

    digest = hashlib.sha256(f"{seed}/{index}/{purpose}".encode()).digest()  # torch takes 32 bits of it
    return Generator().manual_seed(int.from_bytes(digest[:4], "little"))
