"""A setting of a task, declared once: what it is, its default and valid values, and how training draws it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Generic, Literal, TypeVar, overload

T = TypeVar("T", int, float, str)
Shape = tuple[int, int]
Range = tuple[float, float]


class Parameter(Generic[T]):
    """A setting, declared as an attribute of a task's class; on a task it is the value.

    Parameters
    ----------
    kind
        int, float or str.
    about
        What it is, for help texts.
    default
        The paper's value: one, or a function of the image's (height, width).
    low, high
        Valid values; `above` means that `low` itself is not one, `below` the same of `high`.
    choices
        The valid strings; any, if there are none.
    drawn
        Whether training may draw it from a range [low, high], per sample: "uniform", or "log", uniform in its
        logarithm. "no": it is one value.
    option
        Its name on the command line, as an attribute, too; "" offers none.
    picture
        For settings that also describe a degraded picture (`BaseTask.from_picture`): what differs there from the above,
        such as ``{"high": 8, "default": 2}``. Without a default the user has to give it. None: it is no such setting.
    """

    name: str
    option: str

    def __init__(
        self,
        kind: type[T],
        about: str,
        default: T | Callable[[Shape], T],
        *,
        low: float = -math.inf,
        high: float = math.inf,
        above: bool = False,
        below: bool = False,
        choices: tuple[str, ...] = (),
        drawn: Literal["no", "uniform", "log"] = "no",
        option: str | None = None,
        picture: Mapping[str, Any] | None = None,
    ) -> None:
        self.kind: type[T] = kind
        self.about = about
        self.default: T | Callable[[Shape], T] = default
        self.low, self.high, self.above, self.below = low, high, above, below
        self.choices, self.drawn, self._option, self._picture = choices, drawn, option, picture

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.option = name.replace("_", "-") if self._option is None else self._option
        self.picture: Parameter[T] | None = None
        if self._picture is not None:
            self.picture = Parameter(self.kind, self.about, self.default)
            self.picture.__dict__.update({**vars(self), "name": self.option, "default": None, **self._picture})

    @overload
    def __get__(self, task: None, owner: type) -> Parameter[T]: ...
    @overload
    def __get__(self, task: object, owner: type) -> T: ...
    def __get__(self, task: object | None, owner: type) -> Parameter[T] | T:
        if task is None:
            return self
        value: T = task.__dict__[self.name]
        return value

    def paper(self, shape: Shape) -> T:
        """Return the paper's value for images of this height and width."""
        return self.default(shape) if callable(self.default) else self.default

    def checked(self, task: str, value: Any) -> T:
        """Return the value as the parameter's type; ValueError if it is none that the task can have."""
        wrong, number = "", value
        if self.kind is str:
            if not isinstance(value, str) or (self.choices and value not in self.choices):
                wrong = f" must be {self._valid()}, got {value!r}"
        else:
            fits = False
            with suppress(TypeError, ValueError, OverflowError):
                number = float(value)
                fits = not isinstance(value, bool) and (self.kind is float or number == int(number))
            if not fits:
                wrong = f" must be {'a whole number' if self.kind is int else 'a number'}, got {value!r}"
            elif not self._inside(number):
                wrong = f", the {self.about}, must be {self._valid()}, got {value}"
        if wrong:
            raise ValueError(f"{task}: {self.name}{wrong}")
        return self.kind(number)

    def checked_range(self, task: str, value: Any) -> Range:
        """Return a range [low, high] that training draws from, as floats; ValueError where it is none."""
        fixed = self.drawn == "no"
        ends = [float(self.checked(task, v)) for v in value if not (fixed or isinstance(v, list | tuple | dict))]
        if not len(ends) == len(value) == 2 or ends[0] > ends[1]:
            wrong = "cannot be a range" if fixed else f"must be a number or a range [low, high], got {value}"
            raise ValueError(f"{task}: {self.name} {wrong}")
        return ends[0], ends[1]

    def _inside(self, number: float) -> bool:
        above = number > self.low if self.above else number >= self.low
        return math.isfinite(number) and above and (number < self.high if self.below else number <= self.high)

    def _valid(self) -> str:
        if self.choices:
            return " or ".join(self.choices)
        parts = []
        if self.low > -math.inf:
            parts.append(f"above {self.low:g}" if self.above else f"{self.low:g} or more")
        if self.high < math.inf:
            parts.append(f"below {self.high:g}" if self.below else f"at most {self.high:g}")
        return " and ".join(parts) or ("text" if self.kind is str else "finite")
