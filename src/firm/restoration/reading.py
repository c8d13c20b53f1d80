"""An image file as the library restores it: pictures, arrays, and pictures that were saved as arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from firm.data.array_file import is_array_file, open_array
from firm.data.arrays import check_range
from firm.data.load import read_image
from firm.data.picture import Range, read_with_alpha
from firm.data.picture_file import MAX_MEGAPIXELS, check_size, frames, has_more_bits, whole_numbers


class ProblemError(ValueError):
    """Settings that do not make a restoration problem; the message says what is missing or wrong."""


@dataclass(frozen=True)
class Reading:
    """An image as it was read, for a model with a number of channels."""

    image: Tensor  # (1, C, H, W); of `read_measurement` as it is stored
    gray: bool = False
    complex: bool = False
    array: bool = False
    alpha: Tensor | None = None  # (H, W), bytes, of pictures with transparency
    notes: tuple[str, ...] = ()  # on what was assumed or left out


def read(
    path: Path,
    channels: int = 3,
    value_range: Range | None = None,
    max_megapixels: float = MAX_MEGAPIXELS,
    key: str | None = None,
) -> Reading:
    """Read a picture or an array for a model of `channels`; pictures in color, whatever the model takes.

    `value_range` is what stands for -1 and 1, in an array or in a gray picture of more than 8 bits; other pictures have
    a range of their own. `key` names the array in a file that holds several.
    """
    check_range(value_range)
    if key is not None and not is_array_file(path):
        raise ProblemError(f"{path}: a picture; the key {key!r} is for files that hold several arrays: leave it out")
    if is_array_file(path) and (value_range is not None or key is not None or not is_saved_picture(path, channels)):
        image, complex_image = read_image(
            path, channels, value_range=value_range, key=key, max_megapixels=max_megapixels
        )
        return Reading(image[None], complex=complex_image, array=True)
    if channels not in (1, 3):
        raise ProblemError(
            f"{path}: the model takes {channels} channels; a picture has three: give an array file (.npy)"
        )
    if is_array_file(path):
        image, alpha = read_saved_picture(path, max_megapixels)
    else:
        image, alpha = read_with_alpha(path, max_megapixels=max_megapixels, value_range=value_range)
    picture = image[None]
    gray = bool((picture == picture[:, :1]).all())
    notes = () if is_array_file(path) else (*frame_notes(path), *range_notes(path, image, value_range))
    return Reading(picture, gray=gray, alpha=alpha, notes=notes)


def frame_notes(path: Path) -> tuple[str, ...]:
    """That one picture is read of a file that holds several."""
    count, what = frames(path)
    return (f"the first of {count} {what} is restored, the others are left out",) if count > 1 else ()


def range_notes(path: Path, image: Tensor, value_range: Range | None = None) -> tuple[str, ...]:
    """What was assumed on black and white of a picture, where it may be wrong; or that their range had no effect."""
    if value_range is not None:
        ignored = "--value-range is for gray pictures of more than 8 bits, and had no effect here"
        return () if has_more_bits(path) else (ignored,)
    bits, own = whole_numbers(path)
    notes = []
    if bits and not own:
        notes.append(
            f"whole numbers of {bits} bits have no range of their own: 0 was taken for black and 65535 for white; "
            "--value-range low,high says otherwise"
        )
    if bits and float(image.max()) < 2 / 16 - 1:
        notes.append(
            "the brightest pixel has less than 1/16 of white, 65535: if white is less than that, as 4095 in pictures "
            "of 12 bits, --value-range 0,4095 says so"
        )
    return tuple(notes)


def read_measurement(path: Path, max_megapixels: float = MAX_MEGAPIXELS, key: str | None = None) -> Reading:
    """An array file that holds a measurement: floats, real or complex, of any shape and as they are."""
    with open_array(path, key, max_bytes=48e6 * max_megapixels) as array:
        if array.dtype.kind not in "fc":
            raise ProblemError(
                f"{path}: holds {array.dtype}; a measurement is taken as it is, for images in [-1, 1]: save floats"
            )
        if math.prod(array.shape) > 3e6 * max_megapixels:
            raise ProblemError(
                f"{path}: {tuple(array.shape)} values are more than {max_megapixels:g} megapixels in three channels "
                "(max_megapixels; --max-megapixels on the command line)"
            )
        values = np.array(array[...], dtype=np.complex64 if array.dtype.kind == "c" else np.float32)
    if not np.isfinite(values).all():
        raise ProblemError(f"{path}: NaN or infinite values")
    return Reading(torch.from_numpy(values), array=True)


def is_saved_picture(path: Path, channels: int = 3) -> bool:
    """Whether a file is a picture as ``--format npy`` writes them: floats (H, W, C), where arrays are (C, H, W)."""
    if path.suffix.lower() != ".npy" or channels not in (1, 3) or not path.is_file():
        return False
    with open_array(path) as array:
        shape = array.shape
        return len(shape) == 3 and array.dtype == np.float32 and 1 <= shape[2] <= 4 and shape[0] != channels


def read_saved_picture(path: Path, max_megapixels: float = MAX_MEGAPIXELS) -> tuple[Tensor, Tensor | None]:
    """Colors (3, H, W) in [-1, 1] and alpha (H, W), if any, of a picture that ``--format npy`` wrote."""
    with open_array(path) as array:
        check_size(path, array.shape[1], array.shape[0], max_megapixels)
        values = torch.from_numpy(np.array(array)).permute(2, 0, 1)
    alpha = None
    if len(values) in (2, 4):
        alpha = (values[-1].clamp(0, 1) * 255).round().to(torch.uint8)
        values = values[:-1]
    low, high = float(values.min()), float(values.max())
    if not (low >= -0.25 and high <= 1.25):  # restored values may leave [0, 1] a little; NaN is refused too
        raise ProblemError(
            f"{path}: an array (H, W, C) is read as a picture in [0, 1], as --format npy writes them, but its values "
            f"go from {low:.4g} to {high:.4g}; save it as (C, H, W) in [-1, 1], or give --value-range"
        )
    return (2 * values - 1).expand(3, -1, -1).contiguous(), alpha
