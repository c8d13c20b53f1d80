"""What a task is: declared settings, an operator and a noise level; measurements with a seed, and for training."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from firm._util.checks import did_you_mean, generator_for, require
from firm._util.custom import custom_code, require_operator
from firm.noise import Gaussian, Noise
from firm.noise.base import Rows as Rows
from firm.operators import LinearOperator, Operator
from firm.operators.base import is_linear, require_tensor
from firm.operators.scale import Scaled, norms, unit_scale
from firm.tasks.parameter import Parameter, Range


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
    picture_file: ClassVar[str] = ""  # what a degraded picture may come with: "mask", "kernel"; "itself": its own file
    scan: ClassVar[str] = ""  # "package.module:Class" of what opens an instrument's files for it, `firm restore --task`
    color: ClassVar[bool] = False  # whether images must have three channels, of which a pixel shows one
    parameters: ClassVar[dict[str, Parameter[Any]]] = {}

    noise_settings: ClassVar[tuple[str, ...]] = ("sigma",)  # the settings that are those of its noise

    sigma = Parameter(
        float, "noise level, for pixels in [-1, 1] (2/255 of that in 0..255)", 0.05, low=0, drawn="log"
    )  # of complex noise where the measurements are complex; a task with another noise has `sigma = None`

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        declared = {key: value for key, value in vars(cls).items() if isinstance(value, Parameter)}
        sigma = declared.pop("sigma", cls.parameters.get("sigma", BaseTask.__dict__["sigma"]))
        inherited = {key: value for key, value in cls.parameters.items() if key != "sigma"}
        cls.parameters = {**inherited, **declared, **({} if cls.sigma is None else {"sigma": sigma})}
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
        self._unit: tuple[Tensor | None] | None = None  # see `_unit_scale`

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
        if not self.ranges.keys() - {*self.noise_settings}:
            return self.constant(device)
        return self._built(lambda key: self.sample(key, rows, device))

    def _built(self, value: Callable[[str], Tensor]) -> LinearOperator:
        """Call `build` with the `value` of each of its settings, the numbers of the operator; see that it makes one."""
        numbers = sorted(
            key for key, p in self.parameters.items() if p.kind is not str and key not in self.noise_settings
        )
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
        low, high = self.ranges.get(key, (self.__dict__[key],) * 2)
        u = rows.rand(device=device)
        log = self.parameters[key].drawn == "log" and low > 0
        drawn: Tensor = low * (high / low) ** u if log else low + (high - low) * u
        return drawn.round() if self.parameters[key].kind is int else drawn

    # The noise

    def noise(self, values: Mapping[str, Tensor], like: Tensor) -> Noise:
        """Make the noise model for the settings in `noise_settings`, given as tensors: one value per sample, (B,).

        Where nothing is drawn it is one for all, (1,). Must not wait for the device, as `build`. A task with other than
        Gaussian noise of the level `sigma` defines it::

            class Photons(MotionBlur):
                sigma, noise_settings = None, ("peak",)
                peak = Parameter(float, "photons at white", 30.0, low=0, above=True, drawn="log")

                def noise(self, values, like):
                    return Poisson(2 / values["peak"], check=False)

        Parameters
        ----------
        values
            The settings by name.
        like
            The images, (B, C, H, W).
        """
        return Gaussian(values["sigma"], check=False)

    def noise_for(self, like: Tensor) -> float | Noise:
        """Return the noise of measurements of images like `like`, as `firm.restore` takes it: a level, or a model."""
        if type(self).noise is BaseTask.noise:
            return self.sigma
        values = {key: torch.tensor([float(self.__dict__[key])]) for key in self.noise_settings}
        return self.noise(values, like)

    # Measurements

    def measure(self, x: Tensor, seed: int = 42, index: int = 0) -> tuple[LinearOperator, Tensor]:
        """Measure images `x` (B, C, H, W): the operator, and y = A x with its `noise`, on the device of `x`.

        Image i of the batch has the number ``index + i`` in its data set. Its noise (and its mask, if fresh) depend on
        seed and number alone: they are drawn on the CPU, one image at a time, so batches and devices do not matter.
        """
        require_tensor(f"{self.name}: x", x)
        (H, W), floats = self.shape, x.is_floating_point() and not x.is_meta
        require(floats, f"{self.name}: x must be floats with values, got {x.dtype} on {x.device}")
        sized = x.ndim == 4 and x.shape[-2:] == (H, W)
        require(sized, f"{self.name}: images of shape {tuple(x.shape)}, expected (B, C, {H}, {W})")
        self._require_color(x)
        indices = tuple(range(index, index + len(x)))
        measured = []
        with torch.device("cpu"), custom_code(task=type(self)):  # whatever the default device is
            for i, image in zip(indices, x.cpu(), strict=True):
                single = self.operator(seed, (i,))
                require_operator(self, single, "operator")
                single = _on_device(single, torch.device("cpu"), x.dtype)
                clean, level = single.A(image[None]), self.noise_for(image[None])
                # complex noise has variance sigma^2 in all, half of it in each part
                noise = level.on(single, clean, image[None]) if isinstance(level, Noise) else Gaussian(level)
                y = noise.draw(clean, generator_for(seed, i, "noise"))
                measured.append(self.observed(single, image[None], clean, y))
            return _on_device(self.operator(seed, indices), x.device, x.dtype), torch.cat(measured).to(x.device)

    def told(self, op: LinearOperator, y: Tensor) -> LinearOperator:
        """Return the operator that restoring a measurement (B, ...) works with: `op`, or an estimate of it."""
        return op

    def variant(self, x: Tensor, rows: Rows) -> Tensor:
        """Return the images that training shows, made of those of the data set (B, C, H, W): here, as they are."""
        return x

    def draw(self, x: Tensor, rows: Rows) -> tuple[LinearOperator, Tensor, Tensor | Noise]:
        """Draw operators and noise for a batch in training, and measure it.

        The images `x` (B, C, H, W) are the `rows` of the batch, which draw all random numbers. Returned are the
        operator, the measurements, and the noise levels (B,), or the noise model where these do not tell all.
        """
        self._require_color(x)
        op = self.draw_operator(rows, x.device)
        noise = self.noise({key: self.sample(key, rows, x.device) for key in self.noise_settings}, x)
        clean = op.A(x)
        noise = noise.on(op, clean, x)
        y = self.observed(op, x, clean, noise.draw(clean, rows))
        c = self._unit_scale(x)
        if c is not None:
            op, y, noise = Scaled(op, c), c.to(y) * y, noise.scaled(c).on(op, y, x)
        return op, y, noise.level(y) if isinstance(noise, Gaussian) and noise.plain else noise

    def _unit_scale(self, x: Tensor) -> Tensor | None:
        """What A, y and the noise are multiplied by in training, (1,), as in `firm.prepare`; None where that is 1.

        It is found once, for the operator of the first image of a data set, so that a run that goes on has the same.
        """
        if self._unit is None:
            op, like = _on_device(self.operator(), x.device, x.dtype), x[:1]
            c = unit_scale(norms(op, like)) if is_linear(op) else None
            self._unit = (None if c is None else c.to(x.device),)
        return self._unit[0]

    def observed(self, op: LinearOperator, x: Tensor, clean: Tensor, y: Tensor) -> Tensor:
        """Return the measurements of `x`, of which `clean` is A(x): y = A(x) + noise, unless a task says otherwise."""
        return y

    def aligned(self, x: Tensor, truth: Tensor) -> Tensor:
        """Turn images to `truth`, before they are scored, where the measurement cannot tell: here, not at all."""
        return x

    def _require_color(self, x: Tensor) -> None:
        fits, colors = not self.color or x.shape[1] == 3, "three channels, red, green and blue"
        require(fits, f"{self.name}: images have {colors}; these have {x.shape[1]}")

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

        Returns the operator, the measurement y (1, C, ...), and how many pixels around the picture are restored too and
        then cut off.
        """
        raise NotImplementedError(f"{cls.name} does not take degraded pictures")

    @classmethod
    def estimated(cls, picture: Tensor, settings: Mapping[str, Any]) -> dict[str, float]:
        """Estimate the settings of the noise that are not among `settings` from a picture (1, C, h, w) in [-1, 1].

        Returns them by name, and how sure they are, as ``gain_error`` of ``gain``. Tasks whose noise is not of one
        level define it.
        """
        raise NotImplementedError(f"{cls.name} does not estimate its noise")


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
