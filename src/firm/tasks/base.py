"""What a task is: an operator and a noise level for images of a size; measurements with a seed, and for training."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from firm._util.checks import require
from firm._util.custom import custom_code, require_operator
from firm._util.seeds import generator_for
from firm._util.text import did_you_mean
from firm.operators import LinearOperator, Operator
from firm.operators.checks import require_tensor
from firm.tasks.parameter import Parameter, Range


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
        require(min(self.shape) >= 1, f"{self.name}: size must be at least 1, got {size}")
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
            parameter = cls.parameters[key]
            check = parameter.checked_range if isinstance(value, list | tuple) else parameter.checked
            found[key] = check(cls.name, value)
        return found

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the images."""
        return (self.size, self.size) if isinstance(self.size, int) else (self.size[0], self.size[1])

    def settings(self) -> dict[str, Any]:
        """The values of its parameters, without the ranges."""
        return {key: self.__dict__[key] for key in self.parameters}

    def require_values(self) -> None:
        """Raise ValueError if a setting is a range: one image has one value."""
        ranges = ", ".join(self.ranges)
        require(not ranges, f"{self.name}: a range is for training; {ranges} must be one value here")

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
        """The operator for settings given as tensors on the device of the images: one value per sample, (B,).

        Where nothing is drawn it is one for all, (1,). Settings that are text are attributes of the task. Must not wait
        for the device (no ``.item()``), so that training may record it as a CUDA graph.
        """
        raise ValueError(f"the task {self.name} must define build(values), or operator() and draw_operator()")

    def operator(self, seed: int = 42, indices: tuple[int, ...] = (0,)) -> LinearOperator:
        """The operator for the images with these `indices` in their data set, with this task's values.

        What is random must follow from `seed` and index alone (`firm.tasks.generator_for`).
        """
        return self._built({key: torch.tensor([float(self.__dict__[key])]) for key in self._numbers()})

    def draw_operator(self, rows: Rows, device: torch.device) -> LinearOperator:
        """The operator for a batch in training, settings drawn from their ranges; all random numbers from `rows`."""
        drawn = {key for key in self.ranges if key != "sigma"}
        if not drawn:
            return self.constant(device)
        return self._built({key: self.sample(key, rows, device) for key in self._numbers()})

    def _built(self, values: Mapping[str, Tensor]) -> LinearOperator:
        """Call `build`, and let its errors name the user's file and line."""
        with custom_code(task=type(self)):
            op = self.build(values)
            require_operator(self, op, "build")
        return op

    def _numbers(self) -> list[str]:
        """The settings that `build` gets: numbers of the operator."""
        return sorted(key for key, p in self.parameters.items() if p.kind is not str and key != "sigma")

    def constant(self, device: torch.device) -> LinearOperator:
        """`operator` where it draws nothing, made once for each device."""
        if device not in self._constants:
            op = self.operator()
            require_operator(self, op, "operator")
            self._constants[device] = on_device(op, device)
        return self._constants[device]

    def sample(self, key: str, rows: Rows, device: torch.device) -> Tensor:
        """One value per sample of the setting `key`, (B,), from its range; the same number where it has none."""
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
        if x.ndim != 4 or x.shape[-2:] != self.shape:
            raise ValueError(
                f"{self.name}: images of shape {tuple(x.shape)}, expected (B, C, {self.shape[0]}, {self.shape[1]})"
            )
        indices = tuple(range(index, index + len(x)))
        measured = []
        with custom_code(task=type(self)):
            for i, image in zip(indices, x.cpu(), strict=True):
                single = self.operator(seed, (i,))
                require_operator(self, single, "operator")
                clean = on_device(single, torch.device("cpu"), x.dtype).A(image[None])
                # complex noise has variance sigma^2 in all, half of it in each part
                noise = torch.randn(clean.shape, dtype=clean.dtype, generator=generator_for(seed, i, "noise"))
                measured.append(clean + self.sigma * noise)
            return on_device(self.operator(seed, indices), x.device, x.dtype), torch.cat(measured).to(x.device)

    def draw(self, x: Tensor, rows: Rows) -> tuple[LinearOperator, Tensor, Tensor]:
        """For training: operator, measurements and noise levels (B,) for images `x`, the `rows` of the batch."""
        with custom_code(task=type(self)):
            op = self.draw_operator(rows, x.device)
            require_operator(self, op, "draw_operator")
            sigma = self.sample("sigma", rows, x.device)
            clean = op.A(x)
        noise = rows.randn(*clean.shape[1:], device=x.device, dtype=clean.dtype)
        return op, clean + sigma.reshape(-1, *[1] * (clean.ndim - 1)) * noise, sigma

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
        The operator, the measurement y (1, C, ...), and how many pixels around the picture are restored with it and
        then cut off.
        """
        raise NotImplementedError(f"{cls.name} does not take degraded pictures")


def on_device(op: LinearOperator, device: torch.device, dtype: torch.dtype | None = None) -> LinearOperator:
    """The operator where the images are; one that is no module stays as it is."""
    if not isinstance(op, torch.nn.Module) or dtype is None:
        return op.to(device) if isinstance(op, torch.nn.Module) else op
    # Module.to would make complex buffers real, and drop what is imaginary
    moved: LinearOperator = op._apply(lambda v: v.to(device, _like(v.dtype, dtype)))  # type: ignore[no-untyped-call]
    return moved


def _like(own: torch.dtype, wanted: torch.dtype) -> torch.dtype:
    """The type in which a tensor fits those of the type `wanted`: complex stays complex, whole numbers stay as well."""
    if own.is_complex:
        return wanted.to_complex()
    return wanted if own.is_floating_point else own
