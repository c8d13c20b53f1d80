"""Images collected in memory, or once and for all in a .npy file of the cache that is only mapped from then on."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import secrets
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from firm._util.files import write_atomically

Blocks = Iterable[tuple[Sequence[int], NDArray[Any]]]  # the numbers of some images, and the images (m, C, H, W)
NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Python names it from 3.13 on
HEADER = 256  # bytes: room for any number of images


def fingerprint(path: Path) -> tuple[int, int]:
    """Size and time of change of a file; (-1, -1) if there is none."""
    try:
        status = path.stat()
    except OSError:
        return (-1, -1)
    return (status.st_size, status.st_mtime_ns)


def cache_key(about: dict[str, Any]) -> str:
    """Short name for all that decides what a cached file holds."""
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]


def collect(
    blocks: Callable[[], Blocks],
    n: int,
    shape: tuple[int, int, int],
    dtype: DTypeLike,
    *,
    cache: Path | None,
    about: dict[str, Any],
) -> tuple[NDArray[Any], list[int]]:
    """Gather at most `n` images (C, H, W), given in order block by block; return them and their numbers.

    Without `cache` they are collected in memory. With it, a folder, they are written to a file there, one block in
    memory at a time, which is then mapped; the next time it is only mapped, if all of `about` is the same.
    """
    if cache is None:
        array, kept = np.empty((n, *shape), dtype), list[int]()
        for numbers, block in blocks():
            array[len(kept) : len(kept) + len(block)] = block
            kept.extend(numbers)
        return array[: len(kept)], kept
    key = cache_key(about)
    path, index = cache / f"{key}.npy", cache / f"{key}.json"
    found = _cached(path, index, about, shape, np.dtype(dtype))
    if found is None:
        found = write_npy(path, blocks(), shape, np.dtype(dtype))
        write_atomically(index, json.dumps({**about, "kept": found}))  # last: it vouches for the array
    return map_npy(path), found


def _cached(
    path: Path, index: Path, about: dict[str, Any], shape: tuple[int, ...], dtype: np.dtype[Any]
) -> list[int] | None:
    """The numbers of the images in a valid cache, or None."""
    try:
        saved = json.loads(index.read_text())
        kept: list[int] = saved.pop("kept")
        array = np.load(path, mmap_mode="r")
    except (OSError, ValueError, KeyError, EOFError):
        return None
    return kept if saved == about and array.shape == (len(kept), *shape) and array.dtype == dtype else None


def write_npy(path: Path, blocks: Blocks, shape: tuple[int, ...], dtype: np.dtype[Any]) -> list[int]:
    """Write blocks one after the other as one .npy file, under another name until all are there.

    Written, not mapped: a full disk is an OSError, where writing to mapped memory would kill the process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    kept: list[int] = []
    try:
        with open(temporary, "wb") as file:
            file.write(b"\0" * HEADER)
            for numbers, block in blocks:
                if block.shape[1:] != shape or block.dtype != dtype:
                    raise ValueError(f"a block {block.shape[1:]} {block.dtype} in a file of {shape} {dtype}")
                file.write(np.ascontiguousarray(block).data)
                kept.extend(numbers)
            file.seek(0)
            file.write(_header((len(kept), *shape), dtype))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return kept


def _header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """Of a .npy file, format 1.0, padded to HEADER bytes."""
    about = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    text = str(about).ljust(HEADER - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


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
