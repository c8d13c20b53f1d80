"""What a task is: declared settings, an operator and a noise level; measurements with a seed, and for training."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar, overload

import torch
from torch import Tensor

from firm._util.checks import did_you_mean, generator_for
from firm._util.custom import custom_code, require_operator
from firm.operators import LinearOperator, Operator
from firm.operators.base import require_tensor

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


@dataclass(frozen=True)
class Rows:
    """The part of a batch that this process works on.

    Every process draws the random numbers of the whole batch, after the same seed, and keeps its rows: a run does not
    depend on how the batch is split. Nothing here waits for the device, so a CUDA graph can hold it.
    """

    total: int
    start: int
    stop: int

    def rand(self, *shape: int, device: torch.device) -> Tensor:
        """Draw uniform numbers for the whole batch and return those of these rows, (stop - start, *shape)."""
        return torch.rand(self.total, *shape, device=device)[self.start : self.stop]

    def randn(self, *shape: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
        """Draw standard normal numbers for the whole batch and return those of these rows."""
        return torch.randn(self.total, *shape, device=device, dtype=dtype)[self.start : self.stop]

    def __len__(self) -> int:
        return self.stop - self.start


class BaseTask:
    """A restoration task. Derive from it, declare the settings, and say which operator they make.

    A task of your own needs one method, `build`, where its settings alone make the operator::

        class MotionBlur(BaseTask):
            length = Parameter(float, "length of the motion, in pixels", 9.0, low=1, high=31, drawn="uniform")

            def build(self, values):
                return Blur(motion_kernels(31, values["length"], torch.zeros_like(values["length"])))

    A task that draws something at random (a mask) has `operator` and `draw_operator` instead.

    Parameters
    ----------
    size
        Image side, or (height, width).
    settings
        Settings of the task, by name; those not given have the paper's value for the size. A pair (low, high) is a
        range that `draw` draws from for every sample; `measure` then takes the paper's value, or the nearest end of the
        range where that lies outside it.
    """

    name: ClassVar[str] = ""  # in tables and cards; the class's name, in lower case with hyphens, where not set
    table: ClassVar[int | None] = None  # its column in the paper's tables
    picture: ClassVar[str] = ""  # the kind of degraded picture it is for, `firm restore --task`; "" for none
    picture_file: ClassVar[str] = ""  # what a degraded picture may come with: "mask" or "kernel"
    color: ClassVar[bool] = False  # whether images must have three channels, of which a pixel shows one
    parameters: ClassVar[dict[str, Parameter[Any]]] = {}

    sigma = Parameter(
        float, "noise level, for pixels in [-1, 1] (2/255 of that in 0..255)", 0.05, low=0, drawn="log"
    )  # of complex noise where the measurements are complex

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        declared = {key: value for key, value in vars(cls).items() if isinstance(value, Parameter)}
        sigma = declared.pop("sigma", cls.parameters.get("sigma", BaseTask.__dict__["sigma"]))
        inherited = {key: value for key, value in cls.parameters.items() if key != "sigma"}
        cls.parameters = {**inherited, **declared, "sigma": sigma}
        if not vars(cls).get("name"):
            words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", cls.__name__)  # MRI is one
            cls.name = words.lower()

    def __init__(self, size: int | tuple[int, int] = 128, **settings: Any) -> None:
        self.size = size
        if min(self.shape) < 1:
            raise ValueError(f"{self.name}: size must be at least 1, got {size}")
        given = self.checked({key: value for key, value in settings.items() if value is not None})
        self.ranges: dict[str, Range] = {}
        for key, parameter in self.parameters.items():
            value = given[key] if key in given else parameter.checked(self.name, parameter.paper(self.shape))
            if isinstance(value, tuple):
                low, high = self.ranges[key] = value
                # of the paper's value the nearest that training has seen
                value = parameter.checked(self.name, min(max(parameter.paper(self.shape), low), high))
            self.__dict__[key] = value
        self._constants: dict[torch.device, LinearOperator] = {}

    @classmethod
    def checked(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings as values of their types, and as (low, high) where they are ranges.

        Raises ValueError for those that the task does not have, or that are not valid for images of any size.
        """
        found: dict[str, Any] = {}
        for key, value in settings.items():
            if key not in cls.parameters:
                hint = did_you_mean(key, cls.parameters) or f"; it has {', '.join(cls.parameters)}"
                raise ValueError(f"the task {cls.name} has no setting {key!r}{hint}")
            p = cls.parameters[key]
            found[key] = (p.checked_range if isinstance(value, list | tuple) else p.checked)(cls.name, value)
        return found

    @classmethod
    def takes_mask(cls) -> bool:
        """Whether tasks of this class have a random mask, shared or fresh."""
        return "mask" in cls.parameters and "fresh" in cls.parameters["mask"].choices

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the images."""
        return (self.size, self.size) if isinstance(self.size, int) else (self.size[0], self.size[1])

    def settings(self) -> dict[str, Any]:
        """Return the values of its parameters, without the ranges."""
        return {key: self.__dict__[key] for key in self.parameters}

    def require_values(self) -> None:
        """Raise ValueError if a setting is a range: one image has one value."""
        if self.ranges:
            raise ValueError(f"{self.name}: a range is for training; {', '.join(self.ranges)} must be one value here")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self) or not isinstance(other, BaseTask):
            return False
        return (self.shape, self.settings(), self.ranges) == (other.shape, other.settings(), other.ranges)

    def __hash__(self) -> int:
        return hash((type(self), self.shape, *self.settings().values()))

    def __repr__(self) -> str:
        values = {**self.settings(), **self.ranges}
        return f"{type(self).__name__}({self.size}, {', '.join(f'{k}={v!r}' for k, v in values.items())})"

    # The operator

    def build(self, values: Mapping[str, Tensor]) -> LinearOperator:
        """Make the operator for settings given as tensors on the device of the images: one value per sample, (B,).

        Where nothing is drawn it is one for all, (1,). Settings that are text are attributes of the task. Must not wait
        for the device (no ``.item()``), so that training may record it as a CUDA graph.
        """
        raise ValueError(f"the task {self.name} must define build(values), or operator() and draw_operator()")

    def operator(self, seed: int = 42, indices: tuple[int, ...] = (0,)) -> LinearOperator:
        """Return the operator for the images with these `indices` in their data set, with this task's values.

        What is random must follow from `seed` and index alone (`firm.tasks.generator_for`).
        """
        return self._built(lambda key: torch.tensor([float(self.__dict__[key])]))

    def draw_operator(self, rows: Rows, device: torch.device) -> LinearOperator:
        """Draw the operator for a batch in training: settings from their ranges, all random numbers from `rows`."""
        if not self.ranges.keys() - {"sigma"}:
            return self.constant(device)
        return self._built(lambda key: self.sample(key, rows, device))

    def _built(self, value: Callable[[str], Tensor]) -> LinearOperator:
        """Call `build` with the `value` of each of its settings, the numbers of the operator; see that it makes one."""
        numbers = sorted(key for key, p in self.parameters.items() if p.kind is not str and key != "sigma")
        op = self.build({key: value(key) for key in numbers})
        require_operator(self, op, "build")
        return op

    def constant(self, device: torch.device) -> LinearOperator:
        """Return `operator` where it draws nothing, made once for each device."""
        if device not in self._constants:
            self._constants[device] = _on_device(self.operator(), device)
        return self._constants[device]

    def sample(self, key: str, rows: Rows, device: torch.device) -> Tensor:
        """Draw one value per sample of the setting `key`, (B,), from its range; the same number where it has none."""
        value = self.__dict__[key]
        low, high = self.ranges.get(key, (value, value))
        u = rows.rand(device=device)
        log = self.parameters[key].drawn == "log" and low > 0
        drawn: Tensor = low * (high / low) ** u if log else low + (high - low) * u
        return drawn.round() if self.parameters[key].kind is int else drawn

    # Measurements

    def measure(self, x: Tensor, seed: int = 42, index: int = 0) -> tuple[LinearOperator, Tensor]:
        """Measure images `x` (B, C, H, W): the operator, and y = A x + sigma noise, on the device of `x`.

        Image i of the batch has the number ``index + i`` in its data set. Its noise (and its mask, if fresh) depend on
        seed and number alone: they are drawn on the CPU, one image at a time, so batches and devices do not matter.
        """
        require_tensor(f"{self.name}: x", x)
        (H, W), floats = self.shape, x.is_floating_point() and not x.is_meta
        for fits, why in (
            (floats, f"x must be floats with values, got {x.dtype} on {x.device}"),
            (x.ndim == 4 and x.shape[-2:] == (H, W), f"images of shape {tuple(x.shape)}, expected (B, C, {H}, {W})"),
        ):
            if not fits:
                raise ValueError(f"{self.name}: {why}")
        self._require_color(x)
        indices = tuple(range(index, index + len(x)))
        measured = []
        with torch.device("cpu"), custom_code(task=type(self)):  # whatever the default device is
            for i, image in zip(indices, x.cpu(), strict=True):
                single = self.operator(seed, (i,))
                require_operator(self, single, "operator")
                clean = _on_device(single, torch.device("cpu"), x.dtype).A(image[None])
                # complex noise has variance sigma^2 in all, half of it in each part
                noise = torch.randn(clean.shape, dtype=clean.dtype, generator=generator_for(seed, i, "noise"))
                measured.append(clean + self.sigma * noise)
            return _on_device(self.operator(seed, indices), x.device, x.dtype), torch.cat(measured).to(x.device)

    def told(self, op: LinearOperator, y: Tensor) -> LinearOperator:
        """Return the operator that restoring a measurement (B, ...) works with: `op`, or an estimate of it."""
        return op

    def draw(self, x: Tensor, rows: Rows) -> tuple[LinearOperator, Tensor, Tensor]:
        """Draw operators and noise levels for a batch in training, and measure it.

        The images `x` (B, C, H, W) are the `rows` of the batch, which draw all random numbers. Returned are the
        operator, the measurements, and the noise levels (B,).
        """
        self._require_color(x)
        op, sigma = self.draw_operator(rows, x.device), self.sample("sigma", rows, x.device)
        clean = op.A(x)
        noise = rows.randn(*clean.shape[1:], device=x.device, dtype=clean.dtype)
        return op, clean + sigma.reshape(-1, *[1] * (clean.ndim - 1)) * noise, sigma

    def _require_color(self, x: Tensor) -> None:
        if self.color and x.shape[1] != 3:
            raise ValueError(f"{self.name}: images have three channels, red, green and blue; these have {x.shape[1]}")

    # Degraded pictures

    @classmethod
    def from_picture(
        cls, picture: Tensor, settings: Mapping[str, Any], given: Tensor | None = None
    ) -> tuple[Operator, Tensor, int]:
        """Take a degraded picture (1, C, h, w) for a measurement; tasks with a `picture` define it.

        Parameters
        ----------
        picture
            As it was read, in [-1, 1].
        settings
            Of the degradation, by name: all that are declared with ``picture=``, checked. One without a default may be
            left out where `given` replaces it.
        given
            What came with the picture, `picture_file`: a mask (h, w), 1 = seen, or a kernel (h, w).

        Returns
        -------
        The operator, the measurement y (1, C, ...), and how many pixels around the picture are restored and cut off.
        """
        raise NotImplementedError(f"{cls.name} does not take degraded pictures")


def _on_device(op: LinearOperator, device: torch.device, dtype: torch.dtype | None = None) -> LinearOperator:
    """Return the operator where the images are; one that is no module stays as it is."""
    if not isinstance(op, torch.nn.Module) or dtype is None:
        return op.to(device) if isinstance(op, torch.nn.Module) else op
    # Module.to would make complex buffers real, and drop what is imaginary
    moved: LinearOperator = op._apply(lambda v: v.to(device, _like(v.dtype, dtype)))  # type: ignore[no-untyped-call]
    return moved


def _like(own: torch.dtype, wanted: torch.dtype) -> torch.dtype:
    """Return the type in which a tensor fits those of the type `wanted`; complex and whole numbers stay such."""
    if own.is_complex:
        return wanted.to_complex()
    return wanted if own.is_floating_point else own
