"""An inverse problem made from a picture or an array: operator, measurements, noise level."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from firm._util.custom import custom_code
from firm._util.seeds import generator_for
from firm.data.array_values import Range
from firm.metrics import scores, visible
from firm.operators import LinearOperator
from firm.restoration.reading import ProblemError as ProblemError
from firm.restoration.reading import Reading
from firm.tasks import BaseTask, built_in
from firm.tasks.base import on_device

GRAY_FACTOR = math.sqrt(3)  # see `independent_channels`


@dataclass(frozen=True)
class Problem:
    """One image to restore."""

    op: LinearOperator
    y: Tensor  # measurements, (B, ...): of one image, or of its channels one by one
    sigma: float  # their noise level
    shown: Tensor  # the measurement as a picture, (1, C, h, w)
    settings: dict[str, Any]  # of the task, for the report; sigma is that of the picture
    truth: Tensor | None = None  # (1, C, H, W), where a clean picture was degraded
    gray: bool = False  # three equal channels
    apart: bool = False  # a gray model restores the channels as images of their own
    margin: int = 0  # pixels around the picture that are restored and cut off again
    complex: bool = False  # real channels, then imaginary ones
    array: bool = False  # no picture: results are arrays
    value_range: Range | None = None  # of the array
    alpha: Tensor | None = None  # (h, w), bytes, of a picture with transparency
    noise_factor: float = 1.0  # `sigma` by that of the picture: a gray one gets more noise for a model of color
    known: Tensor | None = None  # (1, C, H, W), NaN in the holes: pixels that the result must have exactly
    notes: tuple[str, ...] = ()  # for the user

    @classmethod
    def from_file(cls, path: Path, task: str, **settings: Any) -> Problem:
        """A degraded picture or array; see `picture_problem` for the settings."""
        from firm.restoration.degraded import picture_problem

        return picture_problem(path, task, **settings)

    @classmethod
    def from_measurement(cls, path: Path, task: str, *args: Any, **settings: Any) -> Problem:
        """The measurement y of a custom task; see `measured_problem` for the settings."""
        from firm.restoration.measurement import measured_problem

        return measured_problem(path, task, *args, **settings)

    @classmethod
    def simulated(cls, path: Path, task: str, *args: Any, **settings: Any) -> Problem:
        """A clean picture or array, degraded; see `simulated_problem` for the settings."""
        from firm.restoration.simulated import simulated_problem

        return simulated_problem(path, task, *args, **settings)

    def to(self, device: torch.device) -> Problem:
        """The same on another device."""
        truth = None if self.truth is None else self.truth.to(device)
        known = None if self.known is None else self.known.to(device)
        op = on_device(self.op, device)
        return replace(self, op=op, y=self.y.to(device), shown=self.shown.to(device), truth=truth, known=known)

    def finish(self, x: Tensor) -> Tensor:
        """Restored images (..., B, C, H, W) as the picture's: (..., 1, C, H, W), with the pixels that are known."""
        x = self.together(x)
        return x if self.known is None else torch.where(self.known.isnan(), x, self.known)

    def spread(self, std: Tensor) -> Tensor:
        """The same for standard deviations: 0 where the pixels are known. Of a gray picture, the channels' average."""
        std = self.together(std)
        return std if self.known is None else torch.where(self.known.isnan(), std, 0.0)

    def scores(self, x: Tensor) -> dict[str, float]:
        """PSNR and, where they are defined, SSIM and LPIPS of a finished image; none where the truth is not known.

        Complex images are compared by their magnitudes; gray counts as three channels.
        """
        if self.truth is None:
            return {}
        truth = self.truth[:, :1] if self.gray else self.truth
        x, truth = visible(x, self.complex), visible(truth, self.complex)
        if x.shape[1] == 1:
            x, truth = (v.expand(-1, 3, -1, -1) for v in (x, truth))
        return {key: round(float(value), 4) for key, value in scores(x, truth, "text").items()}

    def together(self, x: Tensor) -> Tensor:
        """Cut the margin off images (..., B, C, H, W) and put their channels together: (..., 1, C, H, W)."""
        if self.margin:
            x = x[..., self.margin : -self.margin, self.margin : -self.margin]
        if self.apart:
            x = x.transpose(-3, -4)
        return x.mean(-3, keepdim=True) if self.gray else x


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Let errors name the picture: it may be one of many."""
    try:
        yield
    except ValueError as error:
        raise ProblemError(f"{path}: {error}") from error


def posed(name: str, task: BaseTask, op: LinearOperator, y: Tensor, reading: Reading) -> Problem:
    """The problem of a measurement `y` (B, ...) with the operator of the task that the user calls `name`."""
    with custom_code(task=type(task)):
        adjoint = op.A_adjoint(y)
    shown = y if not y.is_complex() and y.ndim == 4 and y.shape[1] == adjoint.shape[1] else adjoint
    known = built_in().get(task.name) is type(task)  # the library's own may be named as package.module:Class, too
    about = {"task": task.name if known else name, "estimated": False, **task.settings()}
    return Problem(
        op, y, task.sigma, visible(shown, reading.complex), about, complex=reading.complex, array=reading.array,
        alpha=reading.alpha, notes=reading.notes,
    )  # fmt: skip


def fitted(problem: Problem, reading: Reading, channels: int) -> Problem:
    """The problem for a model of `channels`: gray pictures for color models, and color for gray ones."""
    if reading.array:
        return problem
    if channels == 3:
        if not reading.gray:
            return problem
        y, sigma = independent_channels(problem.y[:, :1], problem.sigma)
        return replace(problem, y=y, sigma=sigma, noise_factor=GRAY_FACTOR, gray=True)
    if reading.gray:
        return replace(problem, y=problem.y[:, :1], gray=True)
    return replace(problem, y=problem.y.transpose(0, 1), apart=True)


def check_sigma(sigma: float | None) -> None:
    """Refuse what is no noise level of pixels in [-1, 1]; most often it is one of 0..255."""
    if sigma is None or (0 <= sigma <= 2):
        return
    hint = (
        f"; a level of {sigma:g} on the scale 0..255 is {2 * sigma / 255:.3g}, or --sigma {sigma:g}/255"
        if 2 < sigma <= 255
        else ""
    )
    raise ProblemError(f"sigma must be from 0 to 2, for pixels in [-1, 1], got {sigma:g}{hint}")


def independent_channels(y: Tensor, sigma: float) -> tuple[Tensor, float]:
    """Measurements (B, 1, ...) of a gray picture as those of three equal channels with independent noise.

    Models for color expect independent noise, three copies of one channel share theirs. Adding noise that sums to
    zero over the channels, of the right size, makes it independent with deviation sqrt(3) sigma, and leaves the mean
    of the channels, which is all that is known, as it was.
    """
    level = GRAY_FACTOR * sigma
    # The same picture gives the same result. These must not be the numbers that `restore` starts from.
    noise = torch.randn((len(y), 3, *y.shape[2:]), dtype=y.dtype, generator=generator_for(0, 0, "channels"))
    return y + level * (noise - noise.mean(1, keepdim=True)), level
