"""What the numbers of an array file mean as images: shape, channels, range; and what is refused."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firm._util.text import counted
from firm.data.array_file import ArrayError
from firm.data.picture import MAX_MEGAPIXELS

Range = tuple[float, float]
BLOCK = 2**24  # bytes of images read at a time


class ChannelsError(ArrayError):
    """Images with `found` real channels, where another number is asked for."""

    def __init__(self, message: str, found: int) -> None:
        super().__init__(message)
        self.found = found


def check_range(value_range: Range | None) -> None:
    """Refuse anything but (low, high) with low < high."""
    if value_range is not None and not (
        len(value_range) == 2 and all(math.isfinite(v) for v in value_range) and value_range[0] < value_range[1]
    ):
        raise ValueError(f"value_range is (low, high) with low < high, got {value_range}")


def look(
    path: Path,
    array: Any,
    *,
    stack: bool,
    size: int | None = None,
    value_range: Range | None = None,
    max_megapixels: float = MAX_MEGAPIXELS,
) -> Layout:
    """Look at the shape and type of an open file; refuse what cannot be images, or are too large to be read."""
    shape, kind = tuple(array.shape), array.dtype
    if len(shape) not in ((2, 3, 4) if stack else (2, 3)):
        known = "(n, C, H, W) or (n, H, W)" if stack else "(C, H, W) or (H, W)"
        hint = "; here a file is one image: save those of a stack one by one, or give the stack itself as a data set"
        raise ArrayError(f"{path}: an array {shape}; expected {known}{hint if len(shape) == 4 else ''}")
    if kind.kind in "iub" and kind not in (np.uint8, np.uint16) and value_range is None:
        raise ArrayError(
            f"{path}: {kind} has no range of its own; use value_range to say which values stand for -1 and 1"
        )
    is_complex = kind.kind == "c"
    if is_complex and value_range is not None and value_range[0] != 0:
        raise ArrayError(f"{path}: complex values are only divided by the end of value_range; it must start at 0")
    stacked = stack and len(shape) > 2
    inner = shape[1:] if stacked else shape
    c, H, W = (1, *inner) if len(inner) == 2 else inner
    check_size(path, c, H, W, max_megapixels)
    blocks = getattr(array, "chunks", None) or ()  # HDF5 unpacks these whole, and they may be larger than the array
    if not stack and math.prod(blocks) > 3 * max_megapixels * 1e6:
        raise ArrayError(f"{path}: stored in blocks of {tuple(blocks)}, larger than {max_megapixels:g} megapixels")
    h, w = (H, W) if size is None else (size, size)
    if size is not None and min(H, W) < size:
        hint = "; channels come before rows and columns" if shape[-1] <= 4 else ""
        raise ArrayError(f"{path}: images of {H}x{W} are smaller than {size}x{size}{hint}")
    dtype = "uint8" if kind == np.uint8 and value_range is None else "float32"
    channels = 2 * c if is_complex else c
    return Layout(shape[0] if stacked else 1, (channels, h, w), dtype, is_complex, stacked, (H - h) // 2, (W - w) // 2)


def check_size(path: Path, c: int, H: int, W: int, max_megapixels: float) -> None:
    """One image may be as large as a picture in color: the header says so before anything is read."""
    values = H * W * max(1, c / 3)
    if not values <= max_megapixels * 1e6:
        raise ArrayError(
            f"{path}: an image of {c} x {H} x {W} values is larger than {max_megapixels:g} megapixels in three "
            "channels (max_megapixels; --max-megapixels on the command line)"
        )


@dataclass(frozen=True)
class Layout:
    """The `n` images of a file: `shape` is (C, H, W) of one, after the crop, complex channels counted twice."""

    n: int
    shape: tuple[int, int, int]
    dtype: str  # "uint8" or "float32", after conversion
    complex: bool
    stacked: bool
    top: int
    left: int

    def __str__(self) -> str:
        C, H, W = self.shape
        channels = counted(C // 2, "complex channel") if self.complex else counted(C, "channel")
        return f"{channels} of {H}x{W} ({'bytes' if self.dtype == 'uint8' else 'floats'})"

    @property
    def window(self) -> tuple[slice, slice]:
        """Rows and columns of the center crop."""
        _, H, W = self.shape
        return slice(self.top, self.top + H), slice(self.left, self.left + W)

    @property
    def per_block(self) -> int:
        """How many images to read at a time."""
        return max(1, BLOCK // (4 * math.prod(self.shape)))

    def read(self, array: Any, start: int, stop: int) -> NDArray[Any]:
        """Images ``start:stop`` of an open file, cropped, as they are stored: (m, c, H, W)."""
        place = (slice(start, stop), ..., *self.window) if self.stacked else (..., *self.window)
        return np.asarray(array[place]).reshape(stop - start, -1, *self.shape[1:])

    def require(self, path: Path, channels: int | None) -> None:
        """Refuse other than `channels` real channels."""
        C, H, W = self.shape
        if channels is None or channels == C:
            return
        c = C // 2 if self.complex else C
        if W <= 4 < c:
            axes, order = ("(n, C, H, W)", "0, 3, 1, 2") if self.stacked else ("(C, H, W)", "2, 0, 1")
            raise ArrayError(
                f"{path}: {counted(c, 'channel')} of {H}x{W} pixels; the channels seem to come last, and arrays are "
                f"{axes}: save it as array.transpose({order})"
            )
        count = f"{c} complex, so {C} real channels" if self.complex else counted(C, "channel")
        raise ChannelsError(f"{path}: {count}, where {channels} are asked for", C)


def to_values(path: Path, block: NDArray[Any], value_range: Range | None, first: int = 0) -> tuple[NDArray[Any], float]:
    """Stored values (m, c, H, W) to uint8 or float32 (m, C, H, W), and the largest magnitude among the floats.

    `first` is the number of the first image, for messages. Complex channels become real parts, then imaginary parts.
    """
    if block.dtype == np.uint8 and value_range is None:
        return np.array(block), 0.0
    if block.dtype == np.uint16 and value_range is None:
        value_range = (0, 65535)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused below
        if block.dtype.kind == "c":
            scaled = block if value_range is None else block / value_range[1]
            values = np.concatenate([scaled.real, scaled.imag], 1).astype(np.float32)
        elif value_range is None:
            values = block.astype(np.float32)
        else:
            low, high = value_range
            wide = block.astype(np.float64)
            wide -= low  # in place: large arrays are held a few times only
            wide *= 2 / (high - low)
            wide -= 1
            values = wide.astype(np.float32)
    finite = np.isfinite(values).all((1, 2, 3))
    if not finite.all():
        raise ArrayError(f"{path}: NaN or infinite values, first in image {first + int(np.argmin(finite))}")
    if block.dtype.kind == "c":
        return values, float(np.hypot(*np.split(values, 2, 1)).max())
    return values, float(max(values.max(), -values.min()))


def warn_if_large(path: Path, largest: float) -> None:
    """Floats are taken as they are: say so if they are not in FIRM's units."""
    if largest > 1.001:
        warnings.warn(
            f"{path}: values reach {largest:.4g} in magnitude, but FIRM works in [-1, 1]; "
            "use value_range to say which values stand for -1 and 1",
            stacklevel=2,
        )
