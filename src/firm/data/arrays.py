"""Arrays as images: any number of channels, real or complex, from one file or a folder of files.

A single file is a stack of images: (n, C, H, W), or (n, H, W) of gray ones; (H, W) is a stack of one. In a folder each
file is one image: (C, H, W), or (H, W) if gray.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firm._util.checks import counted, require
from firm._util.terminal import progress_bar
from firm.data.array_file import ArrayError, array_files, open_array
from firm.data.cache import Blocks, collect, fingerprint, map_npy, read_once
from firm.data.images import Images
from firm.data.opening import MAX_MEGAPIXELS
from firm.data.picture import Range, to_float

BLOCK = 2**24  # bytes of images read at a time


class ChannelsError(ArrayError):
    """Images with `found` real channels, where another number is asked for."""

    def __init__(self, message: str, found: int) -> None:
        super().__init__(message)
        self.found = found


@dataclass(frozen=True)
class ArrayOptions:
    """How arrays are read; see `firm.data.load_images`."""

    size: int | None = None
    channels: int | None = None
    limit: int = 0
    key: str | None = None
    value_range: Range | None = None
    cache: Path | None = None
    mapped: bool = False
    broken: Literal["refuse", "skip"] = "refuse"
    progress: bool = True
    max_megapixels: float = MAX_MEGAPIXELS  # of one image


def load_arrays(root: Path, options: ArrayOptions) -> Images:
    """Read a stack from a file, or the images from the files of a folder.

    If mapped, nothing is kept in memory: a .npy stack of uint8 or float32 is mapped as it is, all else is converted
    once to such a file in the cache. Otherwise the cache is not used.

    Parameters
    ----------
    root
        An array file that holds a stack, or a folder of files that hold one image each.
    options
        How to read them, and which.
    """
    return _load_folder(root, options) if root.is_dir() else _load_stack(root, options)


def read_array_image(path: Path, options: ArrayOptions) -> tuple[Tensor, bool]:
    """Read a file that is one image.

    Parameters
    ----------
    path, options
        An array file that holds (C, H, W) or (H, W), and how to read it.

    Returns
    -------
    The image (C, H, W), float32 in [-1, 1], and whether its channels are complex.
    """
    layout, values, largest = _read_file(path, options)
    layout.require_channels(path, options.channels)
    _warn_if_large(path, largest)
    return to_float(torch.from_numpy(values)[0]), layout.complex


def check_range(value_range: Range | None) -> None:
    """Refuse anything but (low, high) with low < high."""
    if value_range is not None:
        rises = len(value_range) == 2 and all(map(math.isfinite, value_range)) and value_range[0] < value_range[1]
        require(rises, f"value_range is (low, high) with low < high, got {value_range}")


def check_size(path: Path, c: int, H: int, W: int, max_megapixels: float) -> None:
    """Refuse an image that is larger than a picture in color may be: the header says so before anything is read."""
    large = f"{path}: an image of {c} x {H} x {W} values is larger than {max_megapixels:g} megapixels in three channels"
    fits = H * W * max(1, c / 3) <= max_megapixels * 1e6
    require(fits, large + " (max_megapixels; --max-megapixels on the command line)", ArrayError)


def _load_stack(path: Path, o: ArrayOptions) -> Images:
    with open_array(path, o.key, mapped=o.mapped) as array:
        layout = look(path, array, o, stack=True)
        layout.require_channels(path, o.channels)
        n = min(o.limit or layout.n, layout.n)
        names = [f"{path.name}[{i}]" for i in range(n)]
        step = max(1, BLOCK // (4 * math.prod(layout.shape)))  # images read at a time

        def blocks() -> Blocks:
            largest = 0.0
            with progress_bar(total=n, desc=f"reading {path.name}", unit="img", shown=o.progress) as bar:
                for start in range(0, n, step):
                    stop = min(start + step, n)
                    values, peak = to_values(path, layout.read(array, start, stop), o.value_range, start)
                    largest = max(largest, peak)
                    bar.update(stop - start)
                    yield range(start, stop), values
            _warn_if_large(path, largest)

        about = _about([path], layout, o) | {"n": n}
        plain = path.suffix.lower() == ".npy" and array.dtype in (np.uint8, np.float32) and array.dtype.isnative
        if o.mapped and plain and o.value_range is None:
            if layout.dtype == "float32":
                read_once(blocks, cache=o.cache, about=about)  # for its NaNs
            whole = torch.from_numpy(map_npy(path))[(..., *layout.window)]
            data = whole[None, None] if whole.ndim == 2 else whole[:, None] if whole.ndim == 3 else whole
            return Images(data[:n], names)
        pixels, _ = collect(blocks, n, layout.shape, layout.dtype, cache=_cache(path, o), about=about)
    return Images(torch.from_numpy(pixels), names, layout.complex)


def _load_folder(root: Path, o: ArrayOptions) -> Images:
    files = array_files(root)[: o.limit or None]
    unreadable = f"{root}: none of the {len(files)} files could be read"
    expected = None  # of the first file that can be read; all others must be like it
    for path in files:
        with _unless_broken(o, str), open_array(path, o.key, max_bytes=48e6 * o.max_megapixels) as array:
            expected = look(path, array, o)
            break
    if expected is None:
        raise ArrayError(unreadable)
    expected.require_channels(root, o.channels)

    def blocks() -> Blocks:
        largest, readable = 0.0, 0
        bar = progress_bar(files, desc=f"reading {root.name}", unit="img", shown=o.progress)
        for i, path in enumerate(bar):
            with _unless_broken(o, bar.write):
                _, values, peak = _read_file(path, o, expected)
                largest, readable = max(largest, peak), readable + 1
                yield [i], values
        require(readable, unreadable, ArrayError)
        _warn_if_large(root, largest)

    about = _about(files, expected, o) | {"broken": o.broken}
    pixels, kept = collect(blocks, len(files), expected.shape, expected.dtype, cache=_cache(root, o), about=about)
    names = [files[i].relative_to(root).as_posix() for i in kept]
    return Images(torch.from_numpy(pixels), names, expected.complex)


@contextmanager
def _unless_broken(o: ArrayOptions, say: Callable[[str], object]) -> Iterator[None]:
    """Let a file that cannot be read be an error, or skip it and `say` so."""
    try:
        yield
    except ArrayError as error:
        if o.broken == "refuse":
            raise
        say(f"skipped {error}")


def _read_file(path: Path, o: ArrayOptions, expected: Layout | None = None) -> tuple[Layout, NDArray[Any], float]:
    with open_array(path, o.key, max_bytes=48e6 * o.max_megapixels) as array:  # three channels of complex128
        return read_one(path, array, o, expected)


def read_one(
    path: Path, array: Any, o: ArrayOptions, expected: Layout | None = None
) -> tuple[Layout, NDArray[Any], float]:
    """Read an open file that is one image: its layout, its values (1, C, H, W), and their largest magnitude."""
    layout = look(path, array, o)
    other = f"{path}: {layout}, but the folder's first file has {expected}"
    require(expected is None or str(layout) == str(expected), other, ArrayError)
    return layout, *to_values(path, layout.read(array, 0, 1), o.value_range)


def _about(files: list[Path], layout: Layout, o: ArrayOptions) -> dict[str, Any]:
    """Return all that decides what a converted file holds."""
    return {
        "arrays": [[str(path.resolve()), *fingerprint(path)] for path in files], "key": o.key,
        "value_range": None if o.value_range is None else list(o.value_range),
        "shape": list(layout.shape), "dtype": layout.dtype, "complex": layout.complex,
    }  # fmt: skip


def _cache(root: Path, o: ArrayOptions) -> Path | None:
    needed = f"{root}: must be converted before it can be mapped into memory: give a folder, cache=DIR"
    require(not o.mapped or o.cache is not None, needed)
    return o.cache if o.mapped else None


@dataclass(frozen=True)
class Layout:
    """The `n` images of a file: `shape` is (C, H, W) of one, after the crop, complex channels counted twice."""

    n: int
    shape: tuple[int, int, int]
    dtype: str  # "uint8" or "float32", after conversion
    complex: bool
    stacked: bool
    window: tuple[slice, slice]  # rows and columns of the center crop

    def __str__(self) -> str:
        C, H, W = self.shape
        channels = counted(C // 2, "complex channel") if self.complex else counted(C, "channel")
        return f"{channels} of {H}x{W} ({'bytes' if self.dtype == 'uint8' else 'floats'})"

    def read(self, array: Any, start: int, stop: int) -> NDArray[Any]:
        """Read images ``start:stop`` of an open file, cropped, as they are stored: (m, c, H, W)."""
        place = (slice(start, stop), ..., *self.window) if self.stacked else (..., *self.window)
        return np.asarray(array[place]).reshape(stop - start, -1, *self.shape[1:])

    def require_channels(self, path: Path, channels: int | None) -> None:
        """Refuse other than `channels` real channels."""
        C, H, W = self.shape
        if channels is None or channels == C:
            return
        c = C // 2 if self.complex else C
        axes, order = ("(n, C, H, W)", "0, 3, 1, 2") if self.stacked else ("(C, H, W)", "2, 0, 1")
        last = (
            f"{path}: {counted(c, 'channel')} of {H}x{W} pixels; the channels seem to come last, and arrays are "
            f"{axes}: save it as array.transpose({order})"
        )
        require(not W <= 4 < c, last, ArrayError)
        count = f"{c} complex, so {C} real channels" if self.complex else counted(C, "channel")
        raise ChannelsError(f"{path}: {count}, where {channels} are asked for", C)


def look(path: Path, array: Any, o: ArrayOptions, stack: bool = False) -> Layout:
    """Look at the shape and type of an open file; refuse what cannot be images, or are too large to be read."""
    shape, kind = tuple(array.shape), array.dtype
    known = "(n, C, H, W) or (n, H, W)" if stack else "(C, H, W) or (H, W)"
    hint = "; here a file is one image: save those of a stack one by one, or give the stack itself as a data set"
    axes = f"{path}: an array {shape}; expected {known}{hint if len(shape) == 4 else ''}"
    require(len(shape) in ((2, 3, 4) if stack else (2, 3)), axes, ArrayError)
    ranged = kind.kind not in "iub" or kind in (np.uint8, np.uint16) or o.value_range is not None
    values = f"{path}: {kind} has no range of its own; use value_range to say which values stand for -1 and 1"
    require(ranged, values, ArrayError)
    is_complex = kind.kind == "c"
    divided = not is_complex or o.value_range is None or o.value_range[0] == 0
    start = f"{path}: complex values are only divided by the end of value_range; it must start at 0"
    require(divided, start, ArrayError)
    stacked = stack and len(shape) > 2
    inner = shape[1:] if stacked else shape
    c, H, W = (1, *inner) if len(inner) == 2 else inner
    check_size(path, c, H, W, o.max_megapixels)
    chunks = getattr(array, "chunks", None) or ()  # HDF5 unpacks these whole, and they may be larger than the array
    large = f"{path}: stored in blocks of {tuple(chunks)}, larger than {o.max_megapixels:g} megapixels"
    most = max(3e6 * o.max_megapixels, math.prod(shape) if stack else 0)
    require(math.prod(chunks) <= most, large, ArrayError)
    h, w = (H, W) if o.size is None else (o.size, o.size)
    last = "; channels come before rows and columns" if shape[-1] <= 4 else ""
    require(h <= H and w <= W, f"{path}: images of {H}x{W} are smaller than {h}x{w}{last}", ArrayError)
    dtype = "uint8" if kind == np.uint8 and o.value_range is None else "float32"
    top, left = (H - h) // 2, (W - w) // 2
    window = slice(top, top + h), slice(left, left + w)
    return Layout(shape[0] if stacked else 1, (2 * c if is_complex else c, h, w), dtype, is_complex, stacked, window)


def to_values(path: Path, block: NDArray[Any], value_range: Range | None, first: int = 0) -> tuple[NDArray[Any], float]:
    """Convert stored values (m, c, H, W) to uint8 or float32 (m, C, H, W), and find the largest magnitude of floats.

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
    bad = f"{path}: NaN or infinite values, first in image {first + int(np.argmin(finite))}"
    require(finite.all(), bad, ArrayError)
    if block.dtype.kind == "c":
        return values, float(np.hypot(*np.split(values, 2, 1)).max())
    return values, float(max(values.max(), -values.min()))


def _warn_if_large(path: Path, largest: float) -> None:
    """Floats are taken as they are: say so if they are not in FIRM's units."""
    if largest > 1.001:
        warnings.warn(
            f"{path}: values reach {largest:.4g} in magnitude, but FIRM works in [-1, 1]; "
            "use value_range to say which values stand for -1 and 1",
            stacklevel=2,
        )
