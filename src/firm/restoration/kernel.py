"""The kernel of a blur, a point spread function: a small gray picture, or an array."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from firm.data.array_file import SeveralArraysError, is_array_file, open_array
from firm.data.picture import read_picture, stored_values
from firm.restoration.reading import ProblemError


def read_kernel(path: Path, max_megapixels: float) -> tuple[Tensor, str | None]:
    """The kernel (h, w), at least 0 and with the sum 1; and, where its values had to be scaled for that, a note."""
    try:
        values = _from_array(path, max_megapixels) if is_array_file(path) else _from_picture(path, max_megapixels)
    except SeveralArraysError as error:  # a key is for the images
        raise ProblemError(f"the kernel {path} is in a file with other arrays: save it alone, as .npy") from error
    total = float(values.sum())
    if not math.isfinite(total):
        raise ProblemError(f"the kernel {path} has values that are NaN or infinite")
    lowest = float(values.min())
    if lowest < 0:
        raise ProblemError(
            f"the kernel {path} has negative values, down to {lowest:.4g}: a point spread function says how much light "
            "goes where; subtract what the sensor adds in the dark, and set what is left below 0 to 0"
        )
    if total == 0:
        raise ProblemError(f"the kernel {path} is 0 everywhere: nothing would be left of the picture")
    scaled = f"the values of the kernel {path} sum to {total:.4g}: they were divided by that, to sum to 1"
    return (values / total).float(), None if math.isclose(total, 1, rel_tol=1e-3) else scaled


def _from_array(path: Path, max_megapixels: float) -> Tensor:
    with open_array(path, max_bytes=16e6 * max_megapixels) as array:
        if len(array.shape) != 2 or array.dtype.kind == "c":
            raise ProblemError(
                f"the kernel {path} is an array {tuple(array.shape)} of {array.dtype}: it must have two axes, "
                "rows and columns, of real numbers; one kernel blurs all channels"
            )
        if math.prod(array.shape) > max_megapixels * 1e6:
            raise ProblemError(f"the kernel {path}, {tuple(array.shape)}, is larger than {max_megapixels:g} megapixels")
        return torch.from_numpy(np.array(array[...], dtype=np.float64))


def _from_picture(path: Path, max_megapixels: float) -> Tensor:
    """Black is 0, white 1, more than 8 bits as they are stored; what is transparent counts as black."""
    stored = stored_values(path, max_megapixels)
    if stored is not None:
        return torch.from_numpy(stored)
    values = read_picture(path, max_megapixels=max_megapixels, background="black")
    if not bool((values == values[:1]).all()):
        raise ProblemError(f"the kernel {path} is in color: one kernel blurs all channels; save a gray picture")
    return (values[0].double() + 1) / 2
