"""Images collected in memory, or once and for all in a .npy file of the cache that is only mapped from then on."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from firm._util.files import replacing, write_atomically

Blocks = Iterable[tuple[Sequence[int], NDArray[Any]]]  # the numbers of some images, and the images (m, C, H, W)
NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Python names it from 3.13 on
HEADER = 256  # bytes: room for any number of images


def fingerprint(path: Path) -> tuple[int, int]:
    """Return size and time of change of a file; (-1, -1) if there is none."""
    status = path.stat() if path.exists() else None
    return (status.st_size, status.st_mtime_ns) if status else (-1, -1)


def collect(
    blocks: Callable[[], Blocks],
    n: int,
    shape: tuple[int, int, int],
    dtype: DTypeLike,
    *,
    cache: Path | None,
    about: dict[str, Any],
) -> tuple[NDArray[Any], list[int]]:
    """Gather images block by block, in memory or in a file; return them (m, C, H, W) and their numbers.

    Parameters
    ----------
    blocks
        Gives the images in order.
    n, shape, dtype
        At most so many images, of the shape (C, H, W).
    cache
        None collects in memory. In a folder, the images are written to a file, one block in memory at a time, which is
        then mapped; the next time it is only mapped, if all of `about` is the same.
    about
        All that decides what the file holds.
    """
    if cache is None:
        array, kept = np.empty((n, *shape), dtype), list[int]()
        for numbers, block in blocks():
            array[len(kept) : len(kept) + len(block)] = block
            kept.extend(numbers)
        return array[: len(kept)], kept
    path, index = _place(cache, about, ".npy"), _place(cache, about, ".json")
    found = _cached(path, index, about, shape, np.dtype(dtype))
    if found is None:
        found = _write_npy(path, blocks(), shape, np.dtype(dtype))
        write_atomically(index, json.dumps({**about, "kept": found}))  # last: it vouches for the array
    return map_npy(path), found


def read_once(blocks: Callable[[], Blocks], *, cache: Path | None, about: dict[str, Any]) -> None:
    """Go through all images, which checks them; the cache, if there is one, remembers that it was done."""
    mark = None if cache is None else _place(cache, about, ".checked.json")
    if mark is None or not mark.is_file():
        deque(blocks(), 0)
        if mark is not None:
            write_atomically(mark, json.dumps(about))


def _place(cache: Path, about: dict[str, Any], ending: str) -> Path:
    """Return the file of a cache whose name stands for all that decides what it holds."""
    return cache / (hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16] + ending)


def _write_npy(path: Path, blocks: Blocks, shape: tuple[int, ...], dtype: np.dtype[Any]) -> list[int]:
    """Write blocks one after the other as one .npy file, which is there when all are; return the numbers of the images.

    Written, not mapped: a full disk is an OSError, where writing to mapped memory would kill the process.
    """
    kept: list[int] = []
    with replacing(path) as file:
        file.write(b"\0" * HEADER)
        for numbers, block in blocks:
            file.write(np.ascontiguousarray(block).data)
            kept.extend(numbers)
        about = str({"descr": dtype.str, "fortran_order": False, "shape": (len(kept), *shape)})
        text = about.ljust(HEADER - 11) + "\n"
        file.seek(0)
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode())  # format 1.0
    return kept


def map_npy(path: Path) -> NDArray[Any]:
    """Map a .npy file, however large, into memory: writable, but what is written there stays in this process.

    Numpy's own copy on write (``mmap_mode="c"``) reserves memory for all of the file: Linux refuses to map files
    larger than its memory that way.
    """
    plain = np.load(path, mmap_mode="r")
    if not hasattr(mmap, "MAP_PRIVATE") or not isinstance(plain, np.memmap):  # Windows
        return np.load(path, mmap_mode="c")
    with open(path, "rb") as file:
        flags = mmap.MAP_PRIVATE | (NO_RESERVE if os.uname().sysname == "Linux" else 0)
        memory = mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    return np.ndarray(plain.shape, plain.dtype, memory, plain.offset, plain.strides)


def _cached(
    path: Path, index: Path, about: dict[str, Any], shape: tuple[int, ...], dtype: np.dtype[Any]
) -> list[int] | None:
    """Return the numbers of the images in a valid cache, or None."""
    if not (index.is_file() and path.is_file()):  # a pipe would be waited for
        return None
    try:
        saved = json.loads(index.read_text())
        kept: list[int] = saved.pop("kept")
        array = np.load(path, mmap_mode="r")
    except (OSError, ValueError, KeyError, EOFError):
        return None
    return kept if saved == about and array.shape == (len(kept), *shape) and array.dtype == dtype else None
