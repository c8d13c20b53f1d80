"""What the user gives, checked: the settings of a degradation, pictures, arrays, and their masks and kernels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from firm._util.checks import did_you_mean, require
from firm.data.array_file import ARRAY_EXTENSIONS, SeveralArraysError, is_array_file, open_array
from firm.data.arrays import check_range
from firm.data.load import read_image
from firm.data.opening import MAX_MEGAPIXELS, check_size, frames, header, is_deep, whole_numbers
from firm.data.origin import Origin, origin_of
from firm.data.picture import Range, read_picture, read_with_alpha, stored_values
from firm.data.sets import EXTENSIONS
from firm.tasks import BaseTask, built_in, option_of, picture_tasks

NOWHERE = Origin()
MISSING = "white means missing (brightness 128 to 255 of 255)"


class ProblemError(ValueError):
    """Settings that do not make a restoration problem; the message says what is missing or wrong."""


@contextmanager
def as_problem(before: str, after: str = "") -> Iterator[None]:
    """Make a ProblemError of any ValueError, with words before and after its own, such as the name of the picture."""
    try:
        yield
    except ValueError as error:
        raise ProblemError(f"{before}{error}{after}") from error


# What is said of the pictures


def picture_settings(
    task: str, sigma: float | None = None, mask: Path | None = None, keep_known: bool | None = None,
    kernel: Path | str | None = None, **settings: Any,
) -> tuple[type[BaseTask], dict[str, Any]]:  # fmt: skip
    """Check what is said of degraded pictures, as for `Problem.from_file`, before one of them is read.

    Parameters
    ----------
    task
        A kind of degraded pictures, such as "inpainting": one of `firm.tasks.picture_tasks`.
    sigma
        The noise level for pixels in [-1, 1]; None where it is estimated.
    mask, keep_known, kernel
        As for `Problem.from_file`. The two files are not read here.
    settings
        Settings of the task by their names, or as the command line calls them; those that are None count as not given.

    Returns
    -------
    The first task that trains for such pictures, and its settings by name, with its defaults; without the blur where
    that is estimated or given by a kernel. `ProblemError` says which setting belongs to other tasks, or is not valid.
    """
    kinds = picture_tasks()
    if task not in kinds:
        hint = did_you_mean(task, kinds)
        raise ProblemError(f"no task {task!r} for pictures; there are {', '.join(kinds)}{hint}")
    kind = kinds[task][0]
    declared = {key: p.picture for key, p in kind.parameters.items() if p.picture is not None}
    names = {p.name: key for key, p in declared.items()} | {key: key for key in declared}  # p.name is the option
    given = {key: value for key, value in settings.items() if value is not None}
    for key in given:
        if key not in names:
            real = any(key in k.parameters and k.parameters[key].picture for k in built_in().values())
            instead = "" if real else " but to --simulate; a real picture's mask is given with --mask"
            raise ProblemError(f"{option_of(key)} does not belong to {task}{instead}")
    check_sigma(sigma)
    values = {key: p.default for key, p in declared.items() if p.default is not None}
    values |= {names[key]: value for key, value in given.items()}
    file, needed = kind.picture_file, " and ".join(f"{p.name} ({p.about})" for p in declared.values())
    for wrong, why in (
        (mask and file != "mask", f"mask does not belong to {task}"),
        (keep_known and file != "mask", f"keep_known does not belong to {task}"),
        (kernel and file != "kernel", f"kernel does not belong to {task}"),
        (not mask and file == "mask", f"{task} needs a mask: a picture of the same size, white where pixels are "
         "missing"),
        (kernel and {names[key] for key in given} - {*kind.noise_settings}, "give either blur, the width of a "
         "Gaussian, or kernel, the blur itself: not both"),
        (sigma is not None and "sigma" not in kind.parameters, f"sigma does not belong to {task}: give {needed}"),
        # a blur is estimated, and so is noise
        (file != "kernel" and declared.keys() - values.keys() - {*kind.noise_settings}, f"{task} needs {needed}"),
    ):  # fmt: skip
        if wrong:
            raise ProblemError(why)
    try:
        return kind, {key: p.checked(task, values[key]) for key, p in declared.items() if key in values}
    except ValueError as error:
        raise ProblemError(str(error)) from error


def check_sigma(sigma: float | tuple[float, float] | None) -> None:
    """Refuse what is no noise level of pixels in [-1, 1]; most often it is one of 0..255. Ranges pass."""
    if sigma is not None and not isinstance(sigma, tuple) and not 0 <= sigma <= 2:
        levels = f"; a level of {sigma:g} on the scale 0..255 is {2 * sigma / 255:.3g}, or --sigma {sigma:g}/255"
        hint = levels if 2 < sigma <= 255 else ""
        raise ProblemError(f"sigma must be from 0 to 2, for pixels in [-1, 1], got {sigma:g}{hint}")


# Pictures and arrays


@dataclass(frozen=True)
class Reading:
    """An image as it was read, for a model with a number of channels."""

    image: Tensor  # (1, C, H, W); of a measurement as it is stored
    gray: bool = False
    complex: bool = False
    array: bool = False
    alpha: Tensor | None = None  # (H, W), bytes, of pictures with transparency
    origin: Origin = NOWHERE  # the file's format, profile, EXIF data: what results are written like
    notes: tuple[str, ...] = ()  # on what was assumed or left out


def read(
    path: Path, channels: int = 3, value_range: Range | None = None, max_megapixels: float = MAX_MEGAPIXELS,
    key: str | None = None,
) -> Reading:  # fmt: skip
    """Read a picture or an array as an image in [-1, 1].

    Parameters
    ----------
    path
        A picture, an array file, or a picture that ``--format npy`` wrote as an array.
    channels
        That the model takes. Pictures are read in color, whatever it takes.
    value_range, max_megapixels, key
        As in `Problem.from_file`.

    Returns
    -------
    The image (1, C, H, W), float32, with its transparency and what was assumed in reading it.
    """
    if value_range is not None:
        check_range(value_range)
    array = path.suffix.lower() in ARRAY_EXTENSIONS
    if key is not None and not array:
        raise ProblemError(f"{path}: a picture; the key {key!r} is for files that hold several arrays: leave it out")
    if array and (value_range is not None or key is not None or not is_saved_picture(path, channels)):
        wanted = None if channels in (1, 3) else channels  # such models take any number, see `firm._channels`
        image, is_complex = read_image(path, wanted, value_range=value_range, key=key, max_megapixels=max_megapixels)
        last = (
            f"{path}: {len(image)} channels of {image.shape[1]}x{image.shape[2]} pixels; the channels seem to come last"
        )
        fits = not image.shape[2] <= 4 < len(image)
        require(fits, f"{last}, and arrays are (C, H, W): save it as array.transpose(2, 0, 1)", ProblemError)
        return Reading(image[None], complex=is_complex, array=True)
    if channels not in (1, 3):
        raise ProblemError(f"{path}: the model takes {channels} channels; a picture has three: give an array file")
    notes: tuple[str, ...] = ()
    origin = NOWHERE
    if array:
        image, alpha = _read_saved_picture(path, max_megapixels)
    else:
        image, alpha = read_with_alpha(path, max_megapixels=max_megapixels, value_range=value_range)
        notes, origin = _notes(path, image, value_range), origin_of(path)
    return Reading(image[None], gray=bool((image == image[:1]).all()), alpha=alpha, origin=origin, notes=notes)


def _notes(path: Path, image: Tensor, value_range: Range | None) -> tuple[str, ...]:
    """Say what was left out of a picture, and what was assumed on its black and white where that may be wrong."""
    with header(path) as picture:
        count, what = frames(path, picture)
        deep = is_deep(picture)
        bits, has_range = whole_numbers(picture)
    given, dark = value_range is not None, float(image.max()) < 2 / 16 - 1
    return tuple(note for noted, note in (
        (count > 1, f"the first of {count} {what} is restored, the others are left out"),
        (given and not deep, "--value-range is for gray pictures of more than 8 bits, and had no effect here"),
        (not given and not has_range, f"whole numbers of {bits} bits have no range of their own: 0 was taken for black "
         "and 65535 for white; --value-range low,high says otherwise"),
        (not given and bits and dark, "the brightest pixel has less than 1/16 of white, 65535: if white is less than "
         "that, as 4095 in pictures of 12 bits, --value-range 0,4095 says so"),
    ) if noted)  # fmt: skip


def is_saved_picture(path: Path, channels: int = 3) -> bool:
    """Whether a file is a picture as ``--format npy`` writes them: floats (H, W, C), where arrays are (C, H, W)."""
    if path.suffix.lower() != ".npy" or channels not in (1, 3) or not path.is_file():
        return False
    with open_array(path) as array:
        shape = array.shape
        return len(shape) == 3 and array.dtype == np.float32 and 1 <= shape[2] <= 4 and shape[0] != channels


def _read_saved_picture(path: Path, max_megapixels: float) -> tuple[Tensor, Tensor | None]:
    """Read colors (3, H, W) in [-1, 1] and alpha (H, W), if any, of a picture that ``--format npy`` wrote."""
    with open_array(path) as array:
        check_size(path, array.shape[1], array.shape[0], max_megapixels)
        values = torch.from_numpy(np.array(array)).permute(2, 0, 1)
    alpha = None
    if len(values) in (2, 4):
        values, alpha = values[:-1], (values[-1].clamp(0, 1) * 255).round().to(torch.uint8)
    low, high = float(values.min()), float(values.max())
    wrong = f"{path}: an array (H, W, C) is read as a picture in [0, 1], but its values go from {low:.4g} to {high:.4g}"
    fits = low >= -0.25 and high <= 1.25  # restored values may leave [0, 1] a little; NaN is refused too
    require(fits, f"{wrong}; save it as (C, H, W) in [-1, 1], or give --value-range", ProblemError)
    return (2 * values - 1).expand(3, -1, -1).contiguous(), alpha


# Masks


def read_mask(path: Path, picture: Tensor, max_megapixels: float) -> tuple[Tensor, str | None]:
    """Read a mask, a picture that is white where pixels are missing, for a picture (..., H, W).

    What is transparent in the mask was not painted: it is seen.

    Parameters
    ----------
    path
        The mask, a picture file.
    picture
        The picture that it is for, (..., H, W); the mask must have its size.
    max_megapixels
        A larger mask is refused from its header.

    Returns
    -------
    1 where a pixel was seen, (H, W); and a note where that is less than half of them: most often such a mask is the
    wrong way round.
    """
    values = read_picture(path, channels=1, max_megapixels=max_megapixels, background="black")[0]
    missing = values > 0  # of [-1, 1]: above 127.5 of 255
    (h, w), (H, W) = missing.shape, picture.shape[-2:]
    kept = "black, dark colors such as pure red, and transparent pixels are kept. Paint what is missing white"
    for fits, wrong in (
        ((h, w) == (H, W), f"the mask {path} has {w}x{h} pixels, the picture {W}x{H}: they must have the same size"),
        (not missing.all(), f"the mask {path} is white everywhere: nothing is left of the picture"),
        (missing.any(), f"nothing is missing by the mask {path}: {MISSING}; {kept}"),
    ):
        require(fits, wrong, ProblemError)
    seen = 1 - missing.float()
    share = 1 - float(seen.mean())
    percent = int(100 * share)  # rounded down: 100 would say that nothing is left
    much = f"{percent} % of the picture is missing by its mask: {MISSING}; if it is the wrong way round, invert it"
    return seen, much if share > 0.5 else None


def mask_in(folder: Path, picture: Path, place: Path) -> Path:
    """Find the mask of a picture, which lies at `place` below the folder of all pictures, in a folder of masks.

    It has the same place below that folder, or differs in its ending only: masks of photographs are seldom JPEGs.
    `ProblemError` says where it was looked for, or which masks could all be the one.

    Parameters
    ----------
    folder
        The folder of masks.
    picture
        The picture's file.
    place
        The path of that file relative to the folder of all pictures.
    """
    same = folder / place
    if same.is_file():
        return same
    beside = sorted(same.parent.iterdir()) if same.parent.is_dir() else []
    found = [file for file in beside if file.stem == same.stem and file.suffix.lower() in EXTENSIONS and file.is_file()]
    found = [file for file in found if not picture.with_name(file.name).exists()]  # else it is that picture's mask
    if len(found) == 1:
        return found[0]
    where = f"for {picture} in {same.parent}"
    several = f"several masks {where}: {', '.join(file.name for file in found)}; leave one of them there"
    raise ProblemError(several if found else f"no mask {where} ({same.name}, or {same.stem} with another ending)")


# Kernels


def read_kernel(path: Path, max_megapixels: float) -> tuple[Tensor, str | None]:
    """Read the point spread function of a blur: a small gray picture, or an array.

    Returns
    -------
    The kernel (h, w), at least 0 and with the sum 1; and, where its values had to be scaled for that, a note.
    """
    try:
        values = _kernel_array(path, max_megapixels) if is_array_file(path) else _kernel_picture(path, max_megapixels)
    except SeveralArraysError as error:  # a key is for the images
        raise ProblemError(f"the kernel {path} is in a file with other arrays: save it alone, as .npy") from error
    total, lowest = float(values.sum()), float(values.min())
    dark = "subtract what the sensor adds in the dark, and set what is left below 0 to 0"
    for fits, wrong in (
        (math.isfinite(total), "has values that are NaN or infinite"),
        (lowest >= 0, f"has negative values, down to {lowest:.4g}: {dark}"),
        (total > 0, "is 0 everywhere: nothing would be left of the picture"),
    ):
        require(fits, f"the kernel {path} {wrong}", ProblemError)
    scaled = f"the values of the kernel {path} sum to {total:.4g}: they were divided by that, to sum to 1"
    return (values / total).float(), None if math.isclose(total, 1, rel_tol=1e-3) else scaled


def _kernel_array(path: Path, max_megapixels: float) -> Tensor:
    with open_array(path, max_bytes=16e6 * max_megapixels) as array:
        shape = tuple(array.shape)
        wrong = f"the kernel {path} is an array {shape} of {array.dtype}: it must have two axes, of real numbers"
        require(len(shape) == 2 and array.dtype.kind != "c", wrong, ProblemError)
        large = f"the kernel {path}, {shape}, is larger than {max_megapixels:g} megapixels"
        require(math.prod(shape) <= max_megapixels * 1e6, large, ProblemError)
        return torch.from_numpy(np.array(array[...], dtype=np.float64))


def _kernel_picture(path: Path, max_megapixels: float) -> Tensor:
    """Black is 0, white 1, more than 8 bits as they are stored; what is transparent counts as black."""
    stored = stored_values(path, max_megapixels)
    if stored is not None:
        return torch.from_numpy(stored)
    values = read_picture(path, max_megapixels=max_megapixels, background="black")
    colored = f"the kernel {path} is in color: one kernel blurs all channels; save a gray picture"
    require((values == values[:1]).all(), colored, ProblemError)
    return (values[0].double() + 1) / 2
