"""A setting of a task, declared once: type, valid range, the paper's value, whether training may draw it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, TypeVar, overload

from firm._util.checks import require

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
        """The paper's value for images of this height and width."""
        return self.default(shape) if callable(self.default) else self.default

    def checked(self, task: str, value: Any) -> T:
        """Return the value as the parameter's type; ValueError if it is none that the task can have."""
        if self.kind is str:
            fits = isinstance(value, str) and (not self.choices or value in self.choices)
            require(fits, f"{task}: {self.name} must be {self.valid()}, got {value!r}")
            return self.kind(value)
        try:
            number = float(value)
            fits = not isinstance(value, bool) and (self.kind is float or number == int(number))
        except (TypeError, ValueError, OverflowError):
            fits = False
        number_word = "a whole number" if self.kind is int else "a number"
        require(fits, f"{task}: {self.name} must be {number_word}, got {value!r}")
        inside = self.low <= number <= self.high and math.isfinite(number)
        inside = inside and not (self.above and number == self.low) and not (self.below and number == self.high)
        require(inside, f"{task}: {self.name}, the {self.about}, must be {self.valid()}, got {value}")
        return self.kind(number)

    def checked_range(self, task: str, value: Any) -> Range:
        """Return a range [low, high] that training draws from, as floats; ValueError where it is none."""
        require(self.drawn != "no", f"{task}: {self.name} cannot be a range")
        ends = [float(self.checked(task, v)) for v in value if not isinstance(v, list | tuple | dict)]
        fits = len(ends) == len(value) == 2 and ends[0] <= ends[1]
        require(fits, f"{task}: {self.name} must be a number or a range [low, high], got {value}")
        return ends[0], ends[1]

    def valid(self) -> str:
        """The valid values in words."""
        if self.choices:
            return " or ".join(self.choices)
        parts = []
        if self.low > -math.inf:
            parts.append(f"above {self.low:g}" if self.above else f"{self.low:g} or more")
        if self.high < math.inf:
            parts.append(f"below {self.high:g}" if self.below else f"at most {self.high:g}")
        return " and ".join(parts) or ("text" if self.kind is str else "finite")
