"""Checks of what comes from outside, one statement each: of arguments, files and settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:  # `firm reproduce list` and `firm bench` do without torch
    from torch import Tensor


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


class RepeatedKeyError(ValueError):
    """YAML that gives a key twice; the message says which one, and in which lines."""


def read_yaml(text: str) -> Any:
    """Read YAML as `yaml.safe_load` does, and refuse a key that is given twice.

    Of such a key `yaml.safe_load` takes the last value without a word.
    """
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
