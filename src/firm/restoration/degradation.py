"""What the user says of a degradation, checked; and for a custom task, which image a file y = A x + noise is of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from firm._util.checks import did_you_mean, require
from firm._util.custom import custom_code, require_operator
from firm.operators import LinearOperator
from firm.operators.base import require_tensor
from firm.restoration.reading import ProblemError, Reading, as_problem
from firm.tasks import BaseTask, built_in, option_of, picture_tasks, task_class

Sides = tuple[int, int]  # height and width
Measured = tuple[BaseTask, LinearOperator, Tensor]  # a task, its operator, and a measurement


def picture_settings(
    task: str,
    sigma: float | None = None,
    mask: Path | None = None,
    keep_known: bool | None = None,
    kernel: Path | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Check what is said of degraded pictures, as for `Problem.from_file`, before one of them is read.

    Returns
    -------
    The settings of the task by name, with its defaults; without the blur where that is estimated or given by a kernel.
    Raises `ProblemError` for those of other tasks, and for values that are not valid for any picture.
    """
    kinds = picture_tasks()
    if task not in kinds:
        hint = did_you_mean(task, kinds)
        raise ProblemError(f"no task {task!r} for pictures; there are {', '.join(kinds)}{hint}")
    kind = kinds[task][0]
    declared = {key: p.picture for key, p in kind.parameters.items() if p.picture is not None}
    names = {p.name: key for key, p in declared.items()} | {key: key for key in declared}  # p.name is the option
    given = {key: value for key, value in settings.items() if value is not None}
    for key in [key for key in given if key not in names]:
        real = any(key in k.parameters and k.parameters[key].picture for k in built_in().values())
        instead = "" if real else " but to --simulate; a real picture's mask is given with --mask"
        raise ProblemError(f"{option_of(key)} does not belong to {task}{instead}")
    for name, wanted in {"mask": mask, "keep_known": keep_known, "kernel": kernel}.items():
        if wanted and kind.picture_file != ("kernel" if name == "kernel" else "mask"):
            raise ProblemError(f"{name} does not belong to {task}")
    if mask is None and kind.picture_file == "mask":
        raise ProblemError(f"{task} needs a mask: a picture of the same size, white where pixels are missing")
    if kernel is not None and given:
        raise ProblemError("give either blur, the width of a Gaussian, or kernel, the blur itself: not both")
    check_sigma(sigma)
    values = {key: p.default for key, p in declared.items() if p.default is not None}
    values |= {names[key]: value for key, value in given.items()}
    if len(values) < len(declared) and kind.picture_file != "kernel":  # whose settings are estimated
        raise ProblemError(f"{task} needs {' and '.join(f'{p.name} ({p.about})' for p in declared.values())}")
    with as_problem():
        return {key: p.checked(task, values[key]) for key, p in declared.items() if key in values}


def task_settings(task: str, settings: Mapping[str, Any]) -> None:
    """Check settings for `Problem.simulated` and `Problem.from_measurement` before a file is read."""
    with as_problem():
        check_sigma({"sigma": None, **task_class(task).checked(settings)}["sigma"])


def check_sigma(sigma: float | tuple[float, float] | None) -> None:
    """Refuse what is no noise level of pixels in [-1, 1]; most often it is one of 0..255. Ranges pass."""
    if sigma is None or isinstance(sigma, tuple) or 0 <= sigma <= 2:
        return
    levels = f"; a level of {sigma:g} on the scale 0..255 is {2 * sigma / 255:.3g}, or --sigma {sigma:g}/255"
    hint = levels if 2 < sigma <= 255 else ""
    raise ProblemError(f"sigma must be from 0 to 2, for pixels in [-1, 1], got {sigma:g}{hint}")


# Measurements of custom tasks


def measured(
    path: Path, kind: type[BaseTask], settings: Mapping[str, Any], size: Sides | None, channels: int, reading: Reading
) -> Measured:
    """Make the task and its operator for the image that a file is a measurement of.

    Parameters
    ----------
    path, reading
        The file, and what it holds.
    kind, settings
        The custom task.
    size
        Height and width of the image. If None, those of y or, where A makes another y of such an image, those of A'y.
    channels
        That the image has.

    Returns
    -------
    The task, its operator, and the measurement in the axes that A gives.
    """
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
    return task, op, y


def _guess(sides: Sides, y: Tensor) -> str:
    order = "; arrays have their channels first" if y.shape[-1] <= 4 else ""
    return f" (the image was taken to have {sides[1]}x{sides[0]} pixels: --size gives another size{order})"


def _sides(path: Path, x: Tensor) -> Sides:
    unknown = f"{path}: {tuple(x.shape)} values do not tell the size of the image: give it with --size"
    require(x.ndim >= 2, unknown, ProblemError)
    return int(x.shape[-2]), int(x.shape[-1])


def _operator(kind: type[BaseTask], settings: Mapping[str, Any], sides: Sides, channels: int) -> Measured:
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
