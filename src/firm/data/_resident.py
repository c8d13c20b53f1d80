"""A whole split decoded once and kept as one array of bytes, memory-mapped from a cache: training at GPU speed."""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firm._util.progress import progress_bar
from firm.data.cache import Blocks, collect, fingerprint
from firm.data.picture import MAX_MEGAPIXELS, PictureError, decode_array


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
) -> tuple[Tensor, list[Path]]:
    """Decode `files` to one tensor of bytes (n, channels, size, size); return it and the files it holds.

    With `cache`, a folder, the array is written there, picture by picture (so the set may be larger than the memory),
    and from then on only mapped. The cache knows the files' paths, sizes and times of change and the settings; if any
    of these differ, the pictures are decoded anew.

    Parameters
    ----------
    files, size, crop, channels, max_megapixels
        As for `read_picture`. Turn bytes into images in [-1, 1] with ``firm.data.picture.to_tensor``.
    broken
        "refuse": an unreadable file is an error. "skip": it is left out, and named in a warning on the bar.
    """
    if broken not in ("refuse", "skip"):
        raise ValueError(f'broken must be "refuse" or "skip", got {broken!r}')
    about = {
        "files": [[str(Path(f).resolve()), *fingerprint(Path(f))] for f in files],
        "size": size, "crop": crop, "channels": channels, "broken": broken,
    }  # fmt: skip

    def blocks() -> Blocks:
        return _decode_all(files, size, crop, channels, broken, progress, max_megapixels)

    folder = None if cache is None else Path(cache)
    pixels, kept = collect(blocks, len(files), (channels, size, size), np.uint8, cache=folder, about=about)
    return torch.from_numpy(pixels), [Path(files[i]) for i in kept]


def _decode_all(
    files: Sequence[Path],
    size: int,
    crop: int | None,
    channels: int,
    broken: str,
    progress: bool,
    max_megapixels: float = MAX_MEGAPIXELS,
) -> Iterator[tuple[list[int], NDArray[np.uint8]]]:
    """Decode with a few threads (Pillow releases the interpreter lock), a few pictures ahead of what is taken."""

    def read(path: Path) -> NDArray[np.uint8] | PictureError:
        try:
            return decode_array(path, size, crop=crop, channels=channels, max_megapixels=max_megapixels)
        except PictureError as error:
            return error

    workers, readable = min(8, os.cpu_count() or 1), 0
    waiting: deque[Future[NDArray[np.uint8] | PictureError]] = deque()
    with warnings.catch_warnings(), ThreadPoolExecutor(workers) as pool:
        warnings.simplefilter("ignore")  # of Pillow, in the threads
        bar = progress_bar(range(len(files)), desc="decoding", unit="img", shown=progress)
        try:
            for i in bar:
                while len(waiting) < 2 * workers and i + len(waiting) < len(files):
                    waiting.append(pool.submit(read, files[i + len(waiting)]))
                result = waiting.popleft().result()
                if not isinstance(result, PictureError):
                    readable += 1
                    yield [i], result[None]
                elif broken == "refuse":
                    raise result
                else:
                    bar.write(f"skipped {result}")
        finally:
            pool.shutdown(cancel_futures=True)
    if not readable:
        raise PictureError(f"none of the {len(files)} files could be read")
