"""Values of options that hold several."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
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


def counted(count: int, what: str = "image") -> str:
    """A number of things in words: "1 image", "10 images"."""
    return f"{count} {what}{'' if count == 1 else 's'}"


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


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message on a name that is not known: the nearest that is; nothing where none is near."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def noise_level(text: str, option: str = "--sigma") -> float:
    """A noise level for pixels in [-1, 1]: ``0.2`` as it is, or in gray levels of 255, ``25/255``."""
    number, slash, whole = text.partition("/")
    try:
        if slash and float(whole) != 255:
            raise ValueError
        return 2 * float(number) / 255 if slash else float(number)
    except ValueError:
        raise ValueError(
            f"{option} takes a noise level for pixels in [-1, 1], such as 0.2, or in gray levels, such as 25/255; "
            f"got {text!r}"
        ) from None


def image_size(text: str, option: str = "--size") -> tuple[int, int]:
    """Height and width of an image: ``128`` of a square, else ``WIDTHxHEIGHT``, as pictures are told everywhere."""
    words = text.lower().split("x")
    if len(words) > 2 or not all(word.isdecimal() and int(word) > 0 for word in words):
        raise ValueError(f"{option} takes the side of a square image, or WIDTHxHEIGHT, such as 192x128; got {text!r}")
    return int(words[-1]), int(words[0])


def in_both_units(low: float, high: float | None = None) -> str:
    """A noise level, or a range of them, for pixels in [-1, 1] and in gray levels of 255."""
    if high is None or f"{low:.3g}" == f"{high:.3g}":
        return f"{low:.3g} in [-1, 1] = {127.5 * low:.3g}/255"
    return f"{low:.3g} to {high:.3g} in [-1, 1] = {127.5 * low:.3g}/255 to {127.5 * high:.3g}/255"


class RepeatedKeyError(ValueError):
    """YAML that gives a key twice; the message says which, and where."""


def read_yaml(text: str) -> Any:
    """What YAML says, as `yaml.safe_load`, which of a key that is given twice takes the last one silently."""
    left, seen = [yaml.compose(text, Loader=yaml.SafeLoader)], set()
    while left:
        node = left.pop()
        if id(node) in seen:
            continue  # an alias
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            left += node.value
        elif isinstance(node, yaml.MappingNode):
            _refuse_repeated([key for key, _ in node.value])
            left += [value for _, value in node.value]
    return yaml.safe_load(text)


def _refuse_repeated(keys: Sequence[yaml.Node]) -> None:
    lines: dict[tuple[str, str], int] = {}
    for key in keys:
        if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
            continue
        name, line = (key.tag, key.value), key.start_mark.line + 1
        if name in lines:
            where = f"in line {line}" if line == lines[name] else f"in lines {lines[name]} and {line}"
            raise RepeatedKeyError(f"{key.value!r} is given twice, {where}: keep one of them")
        lines[name] = line
