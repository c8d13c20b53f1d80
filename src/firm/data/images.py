"""Images of one shape, by index: what training and evaluation see of any data set; and pictures as such a set."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from firm._util.checks import require
from firm._util.terminal import progress_bar
from firm.data.cache import Blocks, collect, fingerprint
from firm.data.picture import Range, decode, read_picture, to_tensor
from firm.data.picture_file import MAX_MEGAPIXELS, PictureError, has_more_bits


def to_float(data: Tensor) -> Tensor:
    """Turn stored values into images: bytes 0..255 to float32 in [-1, 1], float32 unchanged; any shape, any device."""
    require(data.dtype in (torch.uint8, torch.float32), f"images are uint8 or float32, not {data.dtype}", TypeError)
    return to_tensor(data) if data.dtype == torch.uint8 else data


@dataclass(frozen=True)
class Images:
    """Images of one shape, by index.

    Parameters
    ----------
    data
        (n, C, H, W): uint8, where 0..255 stand for [-1, 1], or float32 values; perhaps memory-mapped.
    names
        One for each image: its file, or its place in a stack.
    complex
        If true, the c channels are complex and C = 2c: all real parts, then all imaginary parts.
    """

    data: Tensor
    names: list[str]
    complex: bool = False

    def __post_init__(self) -> None:
        found = f"{tuple(self.data.shape)} {self.data.dtype}"
        fits = self.data.ndim == 4 and self.data.dtype in (torch.uint8, torch.float32)
        require(fits, f"images are a tensor (n, C, H, W) of uint8 or float32, got {found}")
        counts = f"{len(self.data)} images need as many names, got {len(self.names)}"
        require(len(self.names) == len(self.data), counts)
        pairs = not self.complex or (self.channels % 2 == 0 and self.data.dtype == torch.float32)
        require(pairs, f"complex images have an even number of float32 channels, got {found}")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def channels(self) -> int:
        """Real channels C of an image: 2c for c complex ones."""
        return self.data.shape[1]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (C, H, W) of one image."""
        C, H, W = self.data.shape[1:]
        return C, H, W

    def batch(self, index: Tensor | slice | range) -> Tensor:
        """Return some images as a new float32 tensor (B, C, H, W); of a memory-mapped set only these are read."""
        if isinstance(index, slice):
            index = range(len(self))[index]
        if isinstance(index, range):
            index = torch.tensor(list(index), dtype=torch.long, device=self.data.device)
        return to_float(self.data[index])

    def digest(self) -> str:
        """Return a hash of all values, read a few images at a time."""
        total = hashlib.sha256(f"{self.data.dtype} {tuple(self.data.shape)}".encode())
        for first in range(0, len(self), 64):
            total.update(self.data[first : first + 64].cpu().contiguous().numpy().data)
        return total.hexdigest()[:16]

    def part(self, start: int | None = None, stop: int | None = None) -> Images:
        """Return the images ``start:stop`` as a set; nothing is copied."""
        return Images(self.data[start:stop], self.names[start:stop], self.complex)


def resident(
    files: Sequence[Path],
    size: int,
    *,
    crop: int | None = None,
    channels: int = 3,
    cache: str | Path | None = None,
    broken: Literal["refuse", "skip"] = "refuse",
    progress: bool = True,
    max_megapixels: float = MAX_MEGAPIXELS,
    value_range: Range | None = None,
) -> tuple[Tensor, list[Path]]:
    """Decode pictures to one tensor (n, channels, size, size) of bytes, in memory or mapped from a cache.

    Gray pictures of more than 8 bits, if the first file is one, are kept as float32 in [-1, 1].

    Parameters
    ----------
    files, size, crop, channels, max_megapixels
        As for `read_picture`. `firm.data.to_float` turns the tensor into images in [-1, 1].
    cache
        A folder. The array is written there, picture by picture (so the set may be larger than the memory), and from
        then on only mapped, until paths, sizes or times of change of the files, or the settings, differ.
    broken
        "refuse": an unreadable file is an error. "skip": it is left out, and named in a warning on the bar.
    value_range
        Black and white of gray pictures of more than 8 bits: 0 and 65535 if not given, of floats 0 and 1.

    Returns
    -------
    tuple[Tensor, list[Path]]
        The images, and the files that they are from: without those that were skipped.
    """
    require(broken in ("refuse", "skip"), f'broken must be "refuse" or "skip", got {broken!r}')
    about: dict[str, Any] = {
        "files": [[str(Path(f).resolve()), *fingerprint(Path(f))] for f in files],
        "size": size, "crop": crop, "channels": channels, "broken": broken,
    }  # fmt: skip
    dtype = _first_dtype(files)
    deep = dtype == torch.float32
    if deep:
        about["value_range"] = None if value_range is None else list(value_range)
    only = "value_range is for arrays, and for gray pictures of more than 8 bits; these pictures have 8"
    require(deep or value_range is None, only)

    def read(path: Path) -> Tensor:
        return decode(path, size, crop, channels, max_megapixels, dtype, value_range=value_range, rounded=False)

    def blocks() -> Blocks:
        brightest = -1.0
        for numbers, block in _decode_ahead(files, read, broken == "skip", progress):
            brightest = max(brightest, float(block.max())) if deep else brightest
            yield numbers, block
        if deep and value_range is None and brightest < 2 / 16 - 1:
            warnings.warn(
                "the brightest pixel of the set has less than 1/16 of white: value_range=(low, high) says which values "
                "stand for black and white",
                stacklevel=2,
            )

    kind, folder = "float32" if deep else "uint8", None if cache is None else Path(cache)
    pixels, kept = collect(blocks, len(files), (channels, size, size), kind, cache=folder, about=about)
    return torch.from_numpy(pixels), [Path(files[i]) for i in kept]


class Pictures(Dataset[Tensor]):
    """Data set over a list of files, each read when asked for: a tensor (channels, size, size) in [-1, 1].

    For sets that do not fit into memory; `firm.data.resident` is faster for those that do. A file that cannot be read
    is an error that names it, or, with ``broken="skip"``, a warning that names it and the next picture in its place.
    """

    def __init__(
        self,
        files: Sequence[Path],
        size: int,
        *,
        crop: int | None = None,
        channels: int = 3,
        broken: Literal["refuse", "skip"] = "refuse",
        max_megapixels: float = MAX_MEGAPIXELS,
    ) -> None:
        self.files, self.size, self.skip = list(files), size, broken == "skip"
        self.options: dict[str, Any] = {"crop": crop, "channels": channels, "max_megapixels": max_megapixels}

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:
        require(-len(self) <= index < len(self), f"picture {index} of {len(self)}", IndexError)
        for offset in range(len(self)):
            path = self.files[(index + offset) % len(self)]
            try:
                return read_picture(path, self.size, **self.options)
            except PictureError as error:
                if not self.skip:
                    raise
                warnings.warn(f"skipped {error}", stacklevel=2)
        raise PictureError(f"none of the {len(self)} files could be read")


def _first_dtype(files: Sequence[Path]) -> torch.dtype:
    """Return float32 where the first file that can be opened is gray with more than 8 bits, else uint8."""
    for path in files:
        try:
            return torch.float32 if has_more_bits(path) else torch.uint8
        except PictureError:
            continue  # met again, and reported, when all are read
    return torch.uint8


def _decode_ahead(
    files: Sequence[Path], read: Callable[[Path], Tensor], skip: bool, progress: bool
) -> Iterator[tuple[list[int], NDArray[Any]]]:
    """Decode with a few threads (Pillow releases the interpreter lock), a few pictures ahead of what is taken."""
    workers, readable = min(8, os.cpu_count() or 1), 0
    waiting: deque[Future[Tensor]] = deque()
    with warnings.catch_warnings(), ThreadPoolExecutor(workers) as pool:
        warnings.simplefilter("ignore")  # of Pillow, in the threads
        bar = progress_bar(range(len(files)), desc="decoding", unit="img", shown=progress)
        try:
            for i in bar:
                while len(waiting) < 2 * workers and i + len(waiting) < len(files):
                    waiting.append(pool.submit(read, files[i + len(waiting)]))
                decoding = waiting.popleft()
                error = decoding.exception()
                if error is None:
                    readable += 1
                    yield [i], decoding.result()[None].numpy()
                elif skip and isinstance(error, PictureError):
                    bar.write(f"skipped {error}")
                else:
                    raise error
        finally:
            pool.shutdown(cancel_futures=True)
    require(readable, f"none of the {len(files)} files could be read", PictureError)
