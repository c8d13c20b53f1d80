"""A degraded picture as an inverse problem: what is known of the degradation is given, the rest estimated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from firm._util.text import did_you_mean
from firm.data.picture import Range
from firm.data.picture_file import MAX_MEGAPIXELS
from firm.metrics import visible
from firm.restoration.blur_estimate import BlurEstimate, estimate_blur
from firm.restoration.jpeg import has_blocks, jpeg_note, jpeg_quality
from firm.restoration.kernel import read_kernel
from firm.restoration.mask import mask_note, read_mask
from firm.restoration.noise import SMALLEST, estimate_noise, smoothest_noise
from firm.restoration.problem import Problem, ProblemError, check_sigma, fitted, named
from firm.restoration.reading import Reading, read
from firm.tasks import BaseTask, Degraded, built_in, option_of

SMALL = 64  # side of the picture that settings are tried on


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
    key: str | None = None,
    **settings: Any,
) -> Problem:
    """A degraded picture to restore as it is.

    Without `sigma` the noise level is estimated (`estimate_noise`), without `blur` or `kernel` the blur's width
    (`estimate_blur`).

    Parameters
    ----------
    path
        The picture, of any size, gray or color; or an array file.
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
        For deblurring: the point spread function, a small gray picture or an array (h, w). Its center is the pixel
        (h // 2, w // 2). It is divided by its sum.
    channels
        That the model takes.
    value_range
        Of an array: what stands for -1 and 1 (complex: 0 and 1); as they are, if not given. Results have it too. Of a
        gray picture of more than 8 bits: black and white; 0 and 65535, or of floats 0 and 1, if not given.
    max_megapixels
        Larger pictures, and masks, are refused from their header.
    key
        The name of the array in a file that holds several.
    settings
        Of the task: `blur` (standard deviation in pixels) for deblurring; `scale` (2 if not given) and `filter`
        ("bicubic" if not given, "box" or "stride") for super-resolution.
    """
    kind = picture_task(task)
    given = _own_settings(task, sigma, mask, keep_known, kernel, settings)
    reading = read(path, channels, value_range, max_megapixels, key)
    with named(path):
        seen = None if mask is None else read_mask(mask, reading.image, max_megapixels)
    scaled = None
    if kernel is not None:
        given["kernel"], scaled = read_kernel(kernel, max_megapixels)
    blur = _blur(path, reading) if task == "deblurring" and not {"blur", "kernel"} & set(given) else None
    if blur is not None:
        given["blur"] = blur.width
    with named(path):
        degraded = kind.from_picture(reading.image, given, seen)
    if degraded.color and (channels != 3 or reading.array):
        raise ProblemError(f"{path}: {task} makes a picture in color: it takes a picture file, and a model for color")
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
    return problem if degraded.color else fitted(problem, reading, channels)


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
    """The pixels that were seen, (1, C, H, W), NaN in the holes; of a gray picture in one channel."""
    if seen is None:
        return None
    image = reading.image[:, :1] if reading.gray else reading.image
    return torch.where(seen.bool(), image, math.nan)


def _notes(path: Path, reading: Reading, task: str, seen: Tensor | None) -> list[str | None]:
    """What is worth knowing of the files themselves."""
    notes = [*reading.notes, None if seen is None else mask_note(seen)]
    if not reading.array:
        notes.append(jpeg_note(jpeg_quality(path), has_blocks(reading.image), task))
    return notes


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
