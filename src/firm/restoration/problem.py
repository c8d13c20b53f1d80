"""From a picture or an array to an inverse problem: operator, measurements, noise level."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from firm._util.seeds import generator_for
from firm._util.text import did_you_mean
from firm.data.array_values import Range
from firm.data.picture import MAX_MEGAPIXELS
from firm.metrics import visible
from firm.operators import Blur, LinearOperator
from firm.restoration.blur_estimate import BlurEstimate, estimate_blur
from firm.restoration.jpeg import has_blocks, jpeg_note, jpeg_quality
from firm.restoration.kernel import read_kernel
from firm.restoration.mask import mask_note, read_mask
from firm.restoration.noise import SMALLEST, estimate_noise, smoothest_noise
from firm.restoration.reading import ProblemError as ProblemError
from firm.restoration.reading import Reading, read
from firm.tasks import BaseTask, Degraded, built_in, option_of, task_class
from firm.tasks._own import blamed
from firm.tasks.base import on_device

GREY_FACTOR = math.sqrt(3)  # see `independent_channels`
SMALL = 64  # side of the picture that settings are tried on


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
    alpha: Tensor | None = None  # (h, w), bytes, of a picture with transparency
    noise_factor: float = 1.0  # `sigma` by that of the picture: a grey one gets more noise for a model of colour
    known: Tensor | None = None  # (1, C, H, W), NaN in the holes: pixels that the result must have exactly
    notes: tuple[str, ...] = ()  # for the user

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
        """The same for standard deviations: 0 where the pixels are known. Of a grey picture, the channels' average."""
        std = self.together(std)
        return std if self.known is None else torch.where(self.known.isnan(), std, 0.0)

    def together(self, x: Tensor) -> Tensor:
        """Cut the margin off images (..., B, C, H, W) and put their channels together: (..., 1, C, H, W)."""
        if self.margin:
            x = x[..., self.margin : -self.margin, self.margin : -self.margin]
        if self.apart:
            x = x.transpose(-3, -4)
        return x.mean(-3, keepdim=True) if self.grey else x


def picture_problem(
    path: Path,
    task: str,
    *,
    sigma: float | None = None,
    mask: Path | None = None,
    keep_known: bool | None = None,
    kernel: Path | None = None,
    channels: int = 3,
    value_range: Range | None = None,
    max_megapixels: float = MAX_MEGAPIXELS,
    **settings: Any,
) -> Problem:
    """A degraded picture to restore as it is.

    Without `sigma` the noise level is estimated (`estimate_noise`), without `blur` or `kernel` the blur's width
    (`estimate_blur`).

    Parameters
    ----------
    path
        The picture, of any size, grey or colour; or an array file.
    task
        "denoising", "deblurring", "motion-deblurring", "super-resolution", "inpainting" or "demosaicing".
    sigma
        Noise level in units of pictures in [-1, 1]: twice that of [0, 1], and 2/255 of that of 0..255.
    mask
        For inpainting, a picture of the same size, white where pixels are missing; transparent pixels are kept.
    keep_known
        For inpainting: leave the pixels outside the mask exactly as they are. Otherwise their noise is removed too. If
        None, they are left where there is no noise, a level of at most 0.002, which is the rounding to 8 bits.
    kernel
        For deblurring: the point spread function, a small grey picture or an array (h, w). Its centre is the pixel
        (h // 2, w // 2). It is divided by its sum.
    channels
        That the model takes.
    value_range
        Of an array: what stands for -1 and 1 (complex: 0 and 1); as they are, if not given. Results have it too. Of a
        grey picture of more than 8 bits: black and white; 0 and 65535, or of floats 0 and 1, if not given.
    max_megapixels
        Larger pictures, and masks, are refused from their header.
    settings
        Of the task: `blur` (standard deviation in pixels) for deblurring; `scale` (2 if not given) and `filter`
        ("bicubic" if not given, "box" or "stride") for super-resolution.
    """
    kind = picture_task(task)
    given = _own_settings(task, sigma, mask, keep_known, kernel, settings)
    reading = read(path, channels, value_range, max_megapixels)
    with _named(path):
        seen = None if mask is None else read_mask(mask, reading.image, max_megapixels)
    scaled = None
    if kernel is not None:
        given["kernel"], scaled = read_kernel(kernel, max_megapixels)
    blur = _blur(path, reading) if task == "deblurring" and not {"blur", "kernel"} & set(given) else None
    if blur is not None:
        given["blur"] = blur.width
    with _named(path):
        degraded = kind.from_picture(reading.image, given, seen)
    if degraded.colour and (channels != 3 or reading.array):
        raise ProblemError(f"{path}: {task} makes a picture in colour: it takes a picture file, and a model for colour")
    level = _noise(path, reading, degraded) if sigma is None else sigma
    how_sure = {} if blur is None else {"blur_error": blur.error}
    about = {"task": task, **degraded.settings, **how_sure, "estimated": sigma is None, "sigma": level}
    about |= {} if kernel is None else {"kernel": str(kernel)}
    keep = level <= SMALLEST if keep_known is None else keep_known
    about |= {"keep_known": keep} if task == "inpainting" else {}
    notes = [scaled, *_notes(path, reading, task, seen)]
    shown = reading.image if degraded.seen is None else reading.image * degraded.seen
    problem = Problem(
        degraded.op, degraded.y, level, visible(shown, reading.complex), about, margin=degraded.margin,
        complex=reading.complex, array=reading.array, value_range=value_range, alpha=reading.alpha,
        known=_known(reading, degraded.seen) if keep else None, notes=tuple(note for note in notes if note is not None),
    )  # fmt: skip
    return problem if degraded.colour else fitted(problem, reading, channels)


def check_picture_settings(
    task: str,
    sigma: float | None = None,
    mask: Path | None = None,
    keep_known: bool | None = None,
    kernel: Path | None = None,
    max_megapixels: float = MAX_MEGAPIXELS,
    **settings: Any,
) -> None:
    """Raise `ProblemError` for settings that `picture_problem` refuses whatever the picture is, before one is read."""
    given = _own_settings(task, sigma, mask, keep_known, kernel, settings)
    if kernel is not None:
        read_kernel(kernel, max_megapixels)
    if task == "deblurring":
        given.setdefault("blur", 1.0)  # would be estimated, or there is a kernel
    seen = None if mask is None else torch.ones(SMALL, SMALL)
    try:
        picture_task(task).from_picture(torch.zeros(1, 1, SMALL, SMALL), given, seen)
    except ValueError as error:
        raise ProblemError(str(error)) from error


def _own_settings(
    task: str,
    sigma: float | None,
    mask: Path | None,
    keep_known: bool | None,
    kernel: Path | None,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """The settings that were given, by the names of the task; an error for those of other tasks."""
    known = {} if task == "inpainting" else picture_task(task).parameters
    names = {parameter.option: key for key, parameter in known.items()} | {key: key for key in known}
    given = {key: value for key, value in settings.items() if value is not None}
    for key in given:
        if key not in names:
            raise ProblemError(f"{option_of(key)} does not belong to {task}")
    if task != "inpainting" and (mask is not None or keep_known):
        raise ProblemError(f"{'keep_known' if mask is None else 'mask'} does not belong to {task}")
    if task != "deblurring" and kernel is not None:
        raise ProblemError(f"kernel does not belong to {task}: a kernel of your own is undone by deblurring")
    if kernel is not None and "blur" in given:
        raise ProblemError("give either blur, the width of a Gaussian, or kernel, the blur itself: not both")
    check_sigma(sigma)
    return {names[key]: value for key, value in given.items()}


def _blur(path: Path, reading: Reading) -> BlurEstimate:
    """The blur's width, estimated; an error that asks for it where that is not possible."""
    try:
        if reading.complex:
            raise ValueError("complex images have no spectrum of photographs")
        return estimate_blur(reading.image)
    except ValueError as error:
        raise ProblemError(
            f"{path}: deblurring needs the blur's standard deviation in pixels: give --blur, or its --kernel; {error}"
        ) from error


def _noise(path: Path, reading: Reading, degraded: Degraded) -> float:
    """The noise level, estimated; an error that asks for it where that is not possible."""
    try:
        if degraded.noise_in is not None:
            return smoothest_noise(degraded.noise_in)
        return estimate_noise(reading.image, _visible_part(reading, degraded.seen))
    except ValueError as error:
        raise ProblemError(f"{path}: {error}: give its level with --sigma") from error


def _visible_part(reading: Reading, seen: Tensor | None) -> Tensor | None:
    """1 where a pixel was measured and is not wholly transparent, (H, W); None where all are."""
    if reading.alpha is None:
        return seen
    opaque = (reading.alpha > 0).float()
    return opaque if seen is None else opaque * seen


def _known(reading: Reading, seen: Tensor | None) -> Tensor | None:
    """The pixels that were seen, (1, C, H, W), NaN in the holes; of a grey picture in one channel."""
    if seen is None:
        return None
    image = reading.image[:, :1] if reading.grey else reading.image
    return torch.where(seen.bool(), image, math.nan)


def _notes(path: Path, reading: Reading, task: str, seen: Tensor | None) -> list[str | None]:
    """What is worth knowing of the files themselves."""
    notes = [*reading.notes, None if seen is None else mask_note(seen)]
    if not reading.array:
        notes.append(jpeg_note(jpeg_quality(path), has_blocks(reading.image), task))
    return notes


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
    with _named(path):
        kind = task_class(name)
        if kind.colour and channels != 3:
            raise ValueError(f"{kind.name} makes a picture in colour: it takes a model for colour")
        with blamed(kind):
            task = kind((int(truth.shape[-2]), int(truth.shape[-1])), **settings)
        task.require_values()
        if task.settings().get("factor", 1) > max(task.shape):
            raise ValueError(f"a factor of {task.settings()['factor']} is larger than the picture's sides")
        check_sigma(task.sigma)
        op, y = task.measure(truth[:, :1] if reading.grey and not kind.colour else truth, seed)
        problem = posed(name, task, op, y, reading)
    problem = _without_rim(replace(problem, truth=truth, value_range=value_range))
    return problem if kind.colour else fitted(problem, reading, channels)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Let errors name the picture: it may be one of many."""
    try:
        yield
    except ValueError as error:
        raise ProblemError(f"{path}: {error}") from error


def _without_rim(problem: Problem) -> Problem:
    """Cut off what a blur with unknown surroundings does not measure: a photograph would not show it either."""
    if not isinstance(problem.op, Blur) or problem.op.boundary != "valid" or problem.truth is None:
        return problem
    margin = (problem.truth.shape[-1] - problem.y.shape[-1]) // 2
    inside = (..., slice(margin, -margin or None), slice(margin, -margin or None))
    alpha = None if problem.alpha is None else problem.alpha[inside]
    return replace(problem, margin=margin, truth=problem.truth[inside], alpha=alpha)


def posed(name: str, task: BaseTask, op: LinearOperator, y: Tensor, reading: Reading) -> Problem:
    """The problem of a measurement `y` (B, ...) with the operator of the task that the user calls `name`."""
    with blamed(type(task)):
        adjoint = op.A_adjoint(y)
    shown = y if not y.is_complex() and y.ndim == 4 and y.shape[1] == adjoint.shape[1] else adjoint
    known = built_in().get(task.name) is type(task)  # the library's own may be named as package.module:Class, too
    about = {"task": task.name if known else name, "estimated": False, **task.settings()}
    return Problem(
        op, y, task.sigma, visible(shown, reading.complex), about, complex=reading.complex, array=reading.array,
        alpha=reading.alpha, notes=reading.notes,
    )  # fmt: skip


def check_simulation(name: str, settings: Mapping[str, Any]) -> None:
    """Raise `ProblemError` for settings that `simulated_problem` and `measured_problem` refuse for any picture."""
    try:
        kind = task_class(name)
        kind.check_names(settings)
        single = {key: value for key, value in settings.items() if not isinstance(value, list | tuple)}
        values = {key: kind.parameters[key].checked(kind.name, value) for key, value in single.items()}
    except ValueError as error:
        raise ProblemError(str(error)) from error
    check_sigma(values.get("sigma"))


def fitted(problem: Problem, reading: Reading, channels: int) -> Problem:
    """The problem for a model of `channels`: grey pictures for colour models, and colour for grey ones."""
    if reading.array:
        return problem
    if channels == 3:
        if not reading.grey:
            return problem
        y, sigma = independent_channels(problem.y[:, :1], problem.sigma)
        return replace(problem, y=y, sigma=sigma, noise_factor=GREY_FACTOR, grey=True)
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


def picture_task(name: str) -> type[BaseTask]:
    """The task that undoes a kind of degradation in pictures; an error that names those that there are."""
    kinds = picture_tasks()
    if name not in kinds:
        raise ProblemError(f"no task {name!r} for pictures; there are {', '.join(kinds)}{did_you_mean(name, kinds)}")
    return kinds[name][0]


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
    """Measurements (B, 1, ...) of a grey picture as those of three equal channels with independent noise.

    Models for colour expect independent noise, three copies of one channel share theirs. Adding noise that sums to
    zero over the channels, of the right size, makes it independent with deviation sqrt(3) sigma, and leaves the mean
    of the channels, which is all that is known, as it was.
    """
    level = GREY_FACTOR * sigma
    # The same picture gives the same result. These must not be the numbers that `restore` starts from.
    noise = torch.randn((len(y), 3, *y.shape[2:]), dtype=y.dtype, generator=generator_for(0, 0, "channels"))
    return y + level * (noise - noise.mean(1, keepdim=True)), level
