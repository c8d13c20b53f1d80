"""From a picture or an array to an inverse problem: operator, measurements, noise level."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from firm.data.array_file import is_array_file
from firm.data.array_values import Range
from firm.data.load import read_image
from firm.data.picture import MAX_MEGAPIXELS, read_picture
from firm.metrics import visible
from firm.operators import LinearOperator
from firm.restoration.noise import estimate_noise
from firm.tasks import BaseTask, built_in, task_class
from firm.tasks.base import on_device


class ProblemError(ValueError):
    """Settings that do not make a restoration problem; the message says what is missing or wrong."""


@dataclass(frozen=True)
class Problem:
    """One image to restore."""

    op: LinearOperator
    y: Tensor  # measurements, (B, ...): of one image, or of its channels one by one
    sigma: float  # their noise level
    shown: Tensor  # the measurement as a picture, (1, C, h, w)
    settings: dict[str, Any]  # of the task, for the report; sigma is that of the picture
    truth: Tensor | None = None  # (1, C, H, W), where a clean picture was degraded
    grey: bool = False  # three equal channels
    apart: bool = False  # a grey model restores the channels as images of their own
    margin: int = 0  # pixels around the picture that are restored and cut off again
    complex: bool = False  # real channels, then imaginary ones
    array: bool = False  # no picture: results are arrays
    value_range: Range | None = None  # of the array

    def to(self, device: torch.device) -> Problem:
        """The same on another device."""
        truth = None if self.truth is None else self.truth.to(device)
        op = on_device(self.op, device)
        return replace(self, op=op, y=self.y.to(device), shown=self.shown.to(device), truth=truth)

    def finish(self, x: Tensor) -> Tensor:
        """Cut the margin off restored images (..., B, C, H, W) and put their channels together: (..., 1, C, H, W)."""
        if self.margin:
            x = x[..., self.margin : -self.margin, self.margin : -self.margin]
        if self.apart:
            x = x.transpose(-3, -4)
        return x.mean(-3, keepdim=True) if self.grey else x


@dataclass(frozen=True)
class Reading:
    """An image as it was read, for a model with a number of channels."""

    image: Tensor  # (1, C, H, W)
    grey: bool
    complex: bool
    array: bool


def read(
    path: Path, channels: int = 3, value_range: Range | None = None, max_megapixels: float = MAX_MEGAPIXELS
) -> Reading:
    """Read a picture or an array for a model of `channels`; pictures in colour, whatever the model takes."""
    if is_array_file(path):
        image, complex_image = read_image(path, channels, value_range=value_range, max_megapixels=max_megapixels)
        return Reading(image[None], False, complex_image, True)
    if channels not in (1, 3):
        raise ProblemError(
            f"{path}: the model takes {channels} channels; a picture has three: give an array file (.npy)"
        )
    picture = read_picture(path, max_megapixels=max_megapixels)[None]
    grey = bool((picture == picture[:, :1]).all())
    return Reading(picture, grey, False, False)


def picture_problem(
    path: Path,
    task: str,
    *,
    sigma: float | None = None,
    mask: Path | None = None,
    channels: int = 3,
    value_range: Range | None = None,
    max_megapixels: float = MAX_MEGAPIXELS,
    **settings: Any,
) -> Problem:
    """A degraded picture to restore as it is. Without `sigma` the noise level is estimated (`estimate_noise`).

    Parameters
    ----------
    path
        The picture, of any size, grey or colour; or an array file.
    task
        "denoising", "deblurring", "super-resolution" or "inpainting".
    sigma
        Noise level in units of pictures in [-1, 1]: twice that of [0, 1], and 2/255 of that of 0..255.
    mask
        For inpainting, a picture of the same size, white where pixels are missing.
    channels
        That the model takes.
    value_range
        Of an array: what stands for -1 and 1 (complex: 0 and 1); as they are, if not given. Results have it too.
    max_megapixels
        Larger pictures, and masks, are refused from their header.
    settings
        Of the task: `blur` (standard deviation in pixels) for deblurring; `scale` (2 if not given) and `filter`
        ("bicubic" if not given, "box" or "stride") for super-resolution.
    """
    kinds = picture_tasks()
    if task not in kinds:
        raise ProblemError(f"no task {task!r} for pictures; there are {', '.join(kinds)}")
    known = {} if task == "inpainting" else kinds[task][0].parameters
    names = {parameter.option: key for key, parameter in known.items()} | {key: key for key in known}
    given = {key: value for key, value in settings.items() if value is not None}
    for key in given:
        if key not in names:
            raise ProblemError(f"{key} does not belong to {task}")
    given = {names[key]: value for key, value in given.items()}
    if mask is not None and task != "inpainting":
        raise ProblemError(f"mask does not belong to {task}")
    check_sigma(sigma)
    reading = read(path, channels, value_range, max_megapixels)
    seen = None if mask is None else _read_mask(mask, reading.image, max_megapixels)
    try:
        degraded = kinds[task][0].from_picture(reading.image, given, seen)
        level = estimate_noise(reading.image, degraded.seen) if sigma is None else sigma
    except ValueError as error:
        raise ProblemError(f"{path}: {error}" if sigma is None and "noise" in str(error) else str(error)) from error
    about = {"task": task, **degraded.settings, "estimated": sigma is None, "sigma": level}
    shown = reading.image if degraded.seen is None else reading.image * degraded.seen
    problem = Problem(
        degraded.op, degraded.y, level, visible(shown, reading.complex), about, margin=degraded.margin,
        complex=reading.complex, array=reading.array, value_range=value_range,
    )  # fmt: skip
    return _fitted(problem, reading, channels)


def simulated_problem(
    path: Path,
    name: str,
    settings: Mapping[str, Any],
    seed: int = 0,
    channels: int = 3,
    value_range: Range | None = None,
    max_megapixels: float = MAX_MEGAPIXELS,
) -> Problem:
    """A clean picture or array, degraded as in the task `name`, of any size; `settings` change the task's own.

    `name` may be a task of your own, ``file.py:Class``: its code is run.
    """
    reading = read(path, channels, value_range, max_megapixels)
    truth = reading.image
    try:
        task = task_class(name)((int(truth.shape[-2]), int(truth.shape[-1])), **settings)
        task.require_values()
        if task.settings().get("factor", 1) > max(task.shape):
            raise ValueError(f"{path}: a factor of {task.settings()['factor']} is larger than the picture's sides")
        check_sigma(task.sigma)
        op, y = task.measure(truth[:, :1] if reading.grey else truth, seed)
    except ValueError as error:
        raise ProblemError(str(error)) from error
    adjoint = op.A_adjoint(y)
    shown = y if not y.is_complex() and y.ndim == 4 and y.shape[1] == adjoint.shape[1] else adjoint
    about = {"task": name, "estimated": False, **task.settings()}
    problem = Problem(
        op,
        y,
        task.sigma,
        visible(shown, reading.complex),
        about,
        truth,
        complex=reading.complex,
        array=reading.array,
        value_range=value_range,
    )
    return _fitted(problem, reading, channels)


def _fitted(problem: Problem, reading: Reading, channels: int) -> Problem:
    """The problem for a model of `channels`: grey pictures for colour models, and colour for grey ones."""
    if reading.array:
        return problem
    if channels == 3:
        if not reading.grey:
            return problem
        y, sigma = independent_channels(problem.y[:, :1], problem.sigma)
        return replace(problem, y=y, sigma=sigma, grey=True)
    if reading.grey:
        return replace(problem, y=problem.y[:, :1], grey=True)
    return replace(problem, y=problem.y.transpose(0, 1), apart=True)


def picture_tasks() -> dict[str, list[type[BaseTask]]]:
    """The kinds of degraded pictures, with the tasks that train for each."""
    kinds: dict[str, list[type[BaseTask]]] = {}
    for task in built_in().values():
        if task.picture:
            kinds.setdefault(task.picture, []).append(task)
    return kinds


def check_sigma(sigma: float | None) -> None:
    """Refuse what is no noise level of pixels in [-1, 1]; most often it is one of 0..255."""
    if sigma is None or (0 <= sigma <= 2):
        return
    hint = f"; a level of {sigma:g} on the scale 0..255 is {2 * sigma / 255:.3g}" if 2 < sigma <= 255 else ""
    raise ProblemError(f"sigma must be from 0 to 2, for pixels in [-1, 1], got {sigma:g}{hint}")


def independent_channels(y: Tensor, sigma: float) -> tuple[Tensor, float]:
    """Measurements (B, 1, ...) of a grey picture as those of three equal channels with independent noise.

    Models for colour expect independent noise, three copies of one channel share theirs. Adding noise that sums to
    zero over the channels, of the right size, makes it independent with deviation sqrt(3) sigma, and leaves the mean
    of the channels, which is all that is known, as it was.
    """
    level = math.sqrt(3) * sigma
    noise = torch.randn(
        (len(y), 3, *y.shape[2:]), dtype=y.dtype, generator=torch.Generator().manual_seed(0)
    )  # of one seed: the same picture gives the same result
    return y + level * (noise - noise.mean(1, keepdim=True)), level


def _read_mask(path: Path, picture: Tensor, max_megapixels: float) -> Tensor:
    """1 = seen, (H, W), from a picture that is white where pixels are missing."""
    missing = read_picture(path, channels=1, max_megapixels=max_megapixels)[0] > 0
    if missing.shape != picture.shape[-2:]:
        (h, w), (H, W) = missing.shape, picture.shape[-2:]
        raise ProblemError(f"the mask {path} has {w}x{h} pixels, the picture {W}x{H}: they must be of one size")
    if bool(missing.all()):
        raise ProblemError(f"the mask {path} is white everywhere: nothing is left of the picture")
    return 1 - missing.float()
