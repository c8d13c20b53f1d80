"""What a noise model is: a likelihood p(y | u) of measurements y of u = A x, and what follows from it.

A noise model takes the place of the noise level wherever the library takes ``sigma=``. Its measurements are in the
units of images in [-1, 1], where black is -1: counts of photons are ``(y + offset) / gain``.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import Generator, Tensor, nn

from firm._util.checks import require
from firm.operators.base import LinearOperator, data_consistency, diagonal, shape, synchronizes

N = TypeVar("N", bound="Noise")
SPLITS = 12  # of w = A x, where A A' is not diagonal: the error is about 1e-4 then, and 1e-6 after 20
RATIO = 100.0  # the largest relative standard deviation that the network is told


@dataclass(frozen=True)
class Rows:
    """The part of a batch that this process works on, and what draws its random numbers.

    Every process draws the random numbers of the whole batch, after the same seed, and keeps its rows: a run does not
    depend on how the batch is split. Nothing here waits for the device, so a CUDA graph can hold it. With a `generator`
    the numbers are drawn on its device, and moved.
    """

    total: int
    start: int
    stop: int
    generator: Generator | None = None

    def rand(self, *shape: int, device: torch.device) -> Tensor:
        """Draw uniform numbers for the whole batch and return those of these rows, (stop - start, *shape)."""
        drawn = torch.rand(self.total, *shape, device=self._place(device), generator=self.generator)
        return drawn[self.start : self.stop].to(device)

    def randn(self, *shape: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
        """Draw standard normal numbers for the whole batch and return those of these rows."""
        place = self._place(device)
        drawn = torch.randn(self.total, *shape, device=place, dtype=dtype, generator=self.generator)
        return drawn[self.start : self.stop].to(device)

    def _place(self, device: torch.device) -> torch.device:
        return device if self.generator is None else self.generator.device

    def __len__(self) -> int:
        return self.stop - self.start


class Noise(nn.Module, ABC):
    """Base of the noise models: immutable, buffers only. Its parameters are numbers, one per sample (B,), or maps.

    The library calls `on` first, which gives all parameters the axes of the measurements; the other methods then trust
    their input. A subclass defines the likelihood, how to draw from it, its standard deviation and its proximal step.
    The data-consistency step, and what the network is told, follow from these.
    """

    takes_complex: ClassVar[bool] = False

    def _register(self, check: bool, zero: bool = False, **parameters: float | Tensor | None) -> None:
        """Hold parameters as buffers, a number in double precision; with `check` they must be positive (or `zero`)."""
        for name, value in parameters.items():
            number = None if value is None else torch.as_tensor(value, dtype=None if _real(value) else torch.float64)
            if check and number is not None and name != "offset":
                valid = bool(((number >= 0 if zero else number > 0) & number.isfinite()).all()) and number.numel()
                wanted = "at least 0" if zero else "above 0"
                require(valid, f"{type(self).__name__}: {name} must be finite and {wanted}, got {_shown(value)}")
            self.register_buffer(name, number)

    def on(self: N, op: LinearOperator, y: Tensor, like: Tensor) -> N:
        """Return this noise with parameters that broadcast over the measurements `y` (B, ...) of images like `like`.

        An offset that was not given is A 1, what the operator measures of an image of ones: black measures -A 1.
        ValueError says which parameter does not fit the measurements.
        """
        if y.is_complex() and not self.takes_complex:
            raise ValueError(f"{self} is noise of real measurements, and these are complex: take Gaussian noise")
        placed = {key: None if v is None else self._placed(key, v, y) for key, v in self._buffers.items()}
        if "offset" in placed and placed["offset"] is None:
            with torch.no_grad():
                placed["offset"] = op.A(torch.ones_like(like))
        return self._with(placed)

    def _placed(self, key: str, value: Tensor, y: Tensor) -> Tensor:
        """Return a parameter in the type and with the axes of `y`; a number keeps none."""
        value = value.to(y.device, y.real.dtype)
        if value.ndim == 1 and len(value) == len(y):
            return value.reshape(-1, *[1] * (y.ndim - 1))
        fits = value.ndim <= y.ndim and all(n in (1, m) for n, m in zip(value.shape[::-1], y.shape[::-1], strict=False))
        if not fits:
            raise ValueError(
                f"{type(self).__name__}: {key} has shape {shape(value)}, the measurements {shape(y)}: give a number, "
                f"one per sample, ({len(y)},), or a map that broadcasts over them"
            )
        if value.ndim in (0, y.ndim):
            return value
        return value.reshape(*[1] * (y.ndim - value.ndim), *value.shape)

    def _with(self: N, buffers: Mapping[str, Tensor | None]) -> N:
        if all(self._buffers[key] is value for key, value in buffers.items()):
            return self
        made = copy.copy(self)
        made._buffers = dict(buffers)
        return made

    def repeated(self: N, runs: int) -> N:
        """Return the noise of a batch that is repeated so many times, run by run, as `firm.restore` does."""
        return self._with({
            key: v if v is None or v.ndim == 0 or len(v) == 1 else v.repeat(runs, *[1] * (v.ndim - 1))
            for key, v in self._buffers.items()
        })  # fmt: skip

    def scaled(self: N, c: Tensor) -> N:
        """Return the noise of c y for what `on` returned, with a factor c for each sample, (B,), or for all, (1,)."""
        return self._with({
            key: v if v is None or key in self.without_unit else v * c.to(v).reshape(-1, *[1] * max(0, v.ndim - 1))
            for key, v in self._buffers.items()
        })  # fmt: skip

    without_unit: ClassVar[tuple[str, ...]] = ()  # parameters that are not in the units of y

    @abstractmethod
    def neg_log_likelihood(self, u: Tensor, y: Tensor) -> Tensor:
        """Compute -log p(y | u) of every sample, (B,), up to a constant in `u`."""

    @abstractmethod
    def draw(self, u: Tensor, source: Rows | Generator | None = None) -> Tensor:
        """Draw measurements y of `u` = A x, (B, ...), with the random numbers of `source`; None is torch's own."""

    @abstractmethod
    def std(self, u: Tensor) -> Tensor:
        """Return the standard deviation of every measurement for the noiseless `u`, or as estimated from y."""

    @abstractmethod
    def prox(self, v: Tensor, y: Tensor, weight: float | Tensor) -> Tensor:
        """Return argmin_u -log p(y | u) + weight/2 |u - v|^2, elementwise; `weight` broadcasts over `v`."""

    def impossible(self, y: Tensor) -> Tensor:
        """Count the measurements that this noise cannot make, a number on their device; `impossible_because` why."""
        return y.new_zeros((), dtype=torch.int64)

    impossible_because: ClassVar[str] = ""

    def level(self, y: Tensor) -> Tensor:
        """Return the one noise level of every sample, (B,): the root mean square of `std` where something is seen."""
        std, seen = self.std(y), self._seen(y)
        largest = std.flatten(1).amax(1)  # of a constant map the result is the constant itself
        share = (std / largest.clamp(min=torch.finfo(std.dtype).tiny).reshape(-1, *[1] * (y.ndim - 1))).square()
        if seen is None:
            return largest * share.flatten(1).mean(1).sqrt()
        count = seen.flatten(1).sum(1).clamp(min=1)
        return largest * ((share * seen).flatten(1).sum(1) / count).sqrt()

    def _seen(self, y: Tensor) -> Tensor | None:
        """Return 1 where a measurement sees something, in the shape of `y`; None where all do."""
        return None

    def data_consistency(self, op: LinearOperator, z: Tensor, y: Tensor, rho: float | Tensor) -> Tensor:
        """Return argmin_x -level^2 log p(y | A x) + rho/2 |x - z|^2, with rho a float or (B, 1, ..., 1).

        Where A A' = diag(d), x = z + A'[(prox(A z) - A z) / d] exactly, with the weight rho / (d level^2) of the
        proximal step: the x that make A x = u lie at the distance |x - z|^2 = sum (u - A z)^2 / d from z, or farther.
        Elsewhere w = A x is split off (ADMM, `SPLITS` iterations): a solve with the operator as for Gaussian noise, a
        proximal step in every measurement.
        """
        level = _as(y, self.level(y))
        d = diagonal(op, y)
        if d is not None:
            u, safe = op.A(z), torch.where(d > 0, d, 1)
            return z + op.A_adjoint((self.prox(u, y, _as(y, rho) / (safe * level.square())) - u) / safe)
        w, p, weight = y, torch.zeros_like(y), 1 / level.square()
        x = z
        for _ in range(SPLITS):
            x = data_consistency(op, z, w - p, rho)
            u = op.A(x) + p
            w = self.prox(u, y, weight)
            p = u - w
        return x

    def synchronizes(self, op: LinearOperator, y: Tensor) -> bool:
        """Tell whether `data_consistency` reads from the device, for measurements like `y`."""
        return synchronizes(op)

    def relative(self, op: LinearOperator, y: Tensor, like: Tensor) -> Tensor:
        """What a network with ``extra: [noise]`` sees: log(A'(std / level) / A'1), where A'1 > 0, else 0; as `like`.

        It is exactly 0 for constant noise.
        """
        ratio = self.std(y) / _as(y, self.level(y))
        ones = op.A_adjoint(torch.ones_like(y))
        seen = ones > 1e-3  # the Fourier transform leaves traces where nothing is seen
        share = op.A_adjoint(ratio.to(y.dtype).expand_as(y)) / torch.where(seen, ones, 1)
        return torch.where(seen, share.clamp(1 / RATIO, RATIO).log(), 0).to(like.dtype)

    def extra_repr(self) -> str:
        """Show the parameters: numbers as they are, of others their shapes."""
        held = [(key, v) for key, v in self._buffers.items() if v is not None]
        return ", ".join(f"{key}={f'{float(v):.4g}' if v.ndim == 0 else shape(v)}" for key, v in held)


def rows_of(u: Tensor, source: Rows | Generator | None) -> Rows:
    """Return what draws the numbers of the samples of `u`."""
    return source if isinstance(source, Rows) else Rows(len(u), 0, len(u), source)


def _as(y: Tensor, value: float | Tensor) -> Any:
    """Make a value per sample, (B,) or (B, 1, ...), broadcast over `y`; a number stays one."""
    if not isinstance(value, Tensor) or value.ndim == 0:
        return value
    return value.reshape(-1, *[1] * (y.ndim - 1))


def _real(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _shown(value: object) -> str:
    return f"a tensor of {shape(value)}" if isinstance(value, Tensor) and value.numel() > 8 else repr(value)
