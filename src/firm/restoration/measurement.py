"""Which image a file y = A x + noise of a custom task is a measurement of, and with which operator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from firm._util.checks import require
from firm._util.custom import custom_code, require_operator
from firm.data.array_file import is_array_file, open_array
from firm.operators import LinearOperator
from firm.operators.base import require_tensor
from firm.restoration.reading import ProblemError, Reading, read
from firm.tasks import BaseTask

Sides = tuple[int, int]  # height and width


def measured(
    path: Path, kind: type[BaseTask], settings: Mapping[str, Any], size: Sides | None, channels: int,
    max_megapixels: float, key: str | None,
) -> tuple[Reading, BaseTask, LinearOperator, Tensor]:  # fmt: skip
    """Read a measurement, and make the task and its operator for the image that it is of.

    The arguments are those of `Problem.from_measurement`; the measurement is returned in the axes that A gives.
    """
    array = is_array_file(path)
    reading = _read(path, max_megapixels, key) if array else read(path, channels, None, max_megapixels, key)
    sides = _sides(path, reading.image) if size is None else size
    try:
        task, op, like = _operator(kind, settings, sides, channels)
        y = _in_axes_of(like, path, task, reading, channels)
        if size is None and y.shape != like.shape:
            with custom_code(task=kind):
                sides = _sides(path, op.A_adjoint(y))
            task, op, like = _operator(kind, settings, sides, channels)
            y = _in_axes_of(like, path, task, reading, channels)
    except ValueError as error:
        # what custom code raises where sizes do not fit
        of_size = size is None and isinstance(error.__cause__, ValueError | RuntimeError | IndexError)
        if isinstance(error, ProblemError):
            raise
        raise ProblemError(f"{error}{_guess(sides, reading.image) if of_size else ''}") from error
    if y.shape != like.shape:
        wrong = f"{path}: the task {task.name} measures {tuple(like.shape)} of an image {(1, channels, *sides)}"
        guess = _guess(sides, reading.image) if size is None else ""
        raise ProblemError(f"{wrong}, and the file holds {tuple(y.shape)}{guess}")
    return reading, task, op, y


def _guess(sides: Sides, y: Tensor) -> str:
    order = "; arrays have their channels first" if y.shape[-1] <= 4 else ""
    return f" (the image was taken to have {sides[1]}x{sides[0]} pixels: --size gives another size{order})"


def _sides(path: Path, x: Tensor) -> Sides:
    unknown = f"{path}: {tuple(x.shape)} values do not tell the size of the image: give it with --size"
    require(x.ndim >= 2, unknown, ProblemError)
    return int(x.shape[-2]), int(x.shape[-1])


def _operator(
    kind: type[BaseTask], settings: Mapping[str, Any], sides: Sides, channels: int
) -> tuple[BaseTask, LinearOperator, Tensor]:
    """Return the task for images of these sides, its operator, and what A makes of an image of zeros."""
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
    """Return the measurement with as many axes as `like`, if it has no more; their lengths are its own."""
    y, measures = reading.image, f"{path}: the task {task.name} measures"
    if not reading.array:
        picture = not like.is_complex() and like.ndim == 4
        require(picture, f"{measures} what no picture can hold: give an array file (.npy)", ProblemError)
        fits = like.shape[1] != 1 or channels == 1 or reading.gray
        require(fits, f"{measures} one channel, and the picture has colors", ProblemError)
        return y[:, :1] if like.shape[1] == 1 else y
    fits = like.is_complex() or not y.is_complex()
    require(fits, f"{measures} real values, and the file holds complex ones", ProblemError)
    if like.is_complex():
        y = y.to(like.dtype)
    if [n for n in y.shape if n > 1] == [n for n in like.shape if n > 1]:
        return y.reshape(like.shape)
    return y.reshape(*[1] * (like.ndim - y.ndim), *y.shape)


def _read(path: Path, max_megapixels: float, key: str | None) -> Reading:
    """Read an array file that holds a measurement: floats, real or complex, of any shape and as they are."""
    with open_array(path, key, max_bytes=48e6 * max_megapixels) as array:
        shape, dtype = tuple(array.shape), array.dtype
        wrong = f"{path}: holds {dtype}; a measurement is taken as it is, for images in [-1, 1]: save floats"
        require(dtype.kind in "fc", wrong, ProblemError)
        large = f"{path}: {shape} values are more than {max_megapixels:g} megapixels in three channels (max_megapixels)"
        require(math.prod(shape) <= 3e6 * max_megapixels, large, ProblemError)
        values = np.array(array[...], dtype=np.complex64 if dtype.kind == "c" else np.float32)
    require(np.isfinite(values).all(), f"{path}: NaN or infinite values", ProblemError)
    return Reading(torch.from_numpy(values), array=True)
