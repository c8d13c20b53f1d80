"""Real measurements of a task of the user's own: pictures, or arrays, that are y = A x + noise of one image x."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from firm._util.custom import custom_code, require_operator
from firm.data.array_file import is_array_file
from firm.data.picture_file import MAX_MEGAPIXELS
from firm.operators import LinearOperator
from firm.operators.checks import require_tensor
from firm.operators.complex import AsReal
from firm.restoration.problem import Problem, check_sigma, fitted, posed
from firm.restoration.reading import ProblemError, Reading, read, read_measurement
from firm.tasks import BaseTask, task_class

Sides = tuple[int, int]  # height and width


def measured_problem(
    path: Path,
    name: str,
    settings: Mapping[str, Any],
    size: Sides | None = None,
    channels: int = 3,
    max_megapixels: float = MAX_MEGAPIXELS,
    key: str | None = None,
) -> Problem:
    """A measurement to restore with the task `name`, ``file.py:Class``: its code is run.

    Parameters
    ----------
    path
        A picture; or an array file that holds y for images in [-1, 1], as A gives it: real or complex, of any shape.
        Axes of length 1, such as that of the batch, may be left out.
    settings
        Of the task; those that are not given, the noise level too, have its defaults.
    size
        Height and width of the image. If None, those of y or, where A makes another y of such an image, those of A'y.
    channels
        That the model's images have.
    key
        The name of y in a file that holds several arrays.
    """
    kind, array = task_class(name), is_array_file(path)
    reading = read_measurement(path, max_megapixels, key) if array else read(path, channels, None, max_megapixels, key)
    sides = _sides(path, reading.image) if size is None else size
    try:
        task, op, like = _operator(kind, settings, sides, channels)
        y = _in_axes_of(like, path, task, reading, channels)
        if size is None and y.shape != like.shape:
            with custom_code(task=kind):
                sides = _sides(path, op.A_adjoint(y))
            task, op, like = _operator(kind, settings, sides, channels)
            y = _in_axes_of(like, path, task, reading, channels)
        if y.shape != like.shape:
            raise WrongSizeError(
                f"{path}: the task {task.name} measures {tuple(like.shape)} of an image {(1, channels, *sides)}, and "
                f"the file holds {tuple(y.shape)}"
            )
        check_sigma(task.sigma)
        fits = y.shape[-2:] == sides
        lost = () if fits or reading.alpha is None else ("the picture's transparency is lost: the image is larger",)
        reading = replace(reading, alpha=reading.alpha if fits else None, notes=(*reading.notes, *lost))
        problem = posed(name, task, op, y, replace(reading, complex=isinstance(op, AsReal)))
    except ProblemError:
        raise
    except ValueError as error:
        likely = ValueError, RuntimeError, IndexError  # what code of the user's raises where sizes do not fit
        of_size = isinstance(error, WrongSizeError) or isinstance(error.__cause__, likely)
        raise ProblemError(f"{error}{_guess(sides, reading.image) if size is None and of_size else ''}") from error
    if array or like.shape[1] != channels:
        return problem
    return fitted(replace(problem, y=reading.image, shown=reading.image), reading, channels)


class WrongSizeError(ValueError):
    """A measurement that an image of another size would have."""


def _guess(sides: Sides, y: Tensor) -> str:
    order = "; arrays have their channels first" if y.shape[-1] <= 4 else ""
    return f" (the image was taken to have {sides[1]}x{sides[0]} pixels: --size gives another size{order})"


def _sides(path: Path, x: Tensor) -> Sides:
    if x.ndim < 2:
        raise ProblemError(f"{path}: {tuple(x.shape)} values do not tell the size of the image: give it with --size")
    return int(x.shape[-2]), int(x.shape[-1])


def _operator(
    kind: type[BaseTask], settings: Mapping[str, Any], sides: Sides, channels: int
) -> tuple[BaseTask, LinearOperator, Tensor]:
    """The task for images of these sides, its operator, and what A makes of an image of zeros."""
    with custom_code(task=kind):
        task = kind(sides, **settings)
    task.require_values()
    with custom_code(task=kind):
        op = task.operator()
        require_operator(task, op, "operator")
        like = op.A(torch.zeros(1, channels, *sides))
    require_tensor(f"{task.name}: what A returns", like)
    return task, op, like


def _in_axes_of(like: Tensor, path: Path, task: BaseTask, reading: Reading, channels: int) -> Tensor:
    """The measurement with as many axes as `like`, if it has no more; their lengths are its own."""
    y, measures = reading.image, f"{path}: the task {task.name} measures"
    if not reading.array:
        if like.is_complex() or like.ndim != 4:
            raise ProblemError(f"{measures} what no picture can hold: give an array file (.npy)")
        if like.shape[1] == 1 < channels and not reading.gray:
            raise ProblemError(f"{measures} one channel, and the picture has colors")
        return y[:, :1] if like.shape[1] == 1 else y
    if y.is_complex() and not like.is_complex():
        raise ProblemError(f"{measures} real values, and the file holds complex ones")
    if like.is_complex():
        y = y.to(like.dtype)
    if [n for n in y.shape if n > 1] == [n for n in like.shape if n > 1]:
        return y.reshape(like.shape)
    return y.reshape(*[1] * (like.ndim - y.ndim), *y.shape)
