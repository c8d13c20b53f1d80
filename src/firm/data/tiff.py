"""The directories of a TIFF: how many pages there are, and how much a program would read that reads their values."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import IO, Literal

import numpy as np

SIZES = np.array([0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8, 0], float)  # bytes of a value, by its type
SLACK = 2**20  # bytes of metadata that any file may have


def directories(file: IO[bytes]) -> Iterator[float]:
    """Walk from one directory (page) of a TIFF, or of EXIF data, to the next, and read none of their values.

    Yields
    ------
    float
        The bytes of all values that the directory points to within the file. A damaged directory, or one that was met
        before, ends the walk.
    """
    held = file.seek(0, io.SEEK_END)
    file.seek(0)
    head = file.read(16).ljust(16, b"\0")
    order: Literal["<", ">"] = "<" if head[:2] == b"II" else ">"
    big = head[2:4] in (b"+\0", b"\0+")  # BigTIFF
    (number, n), (offset, k) = (("Q", 8), ("Q", 8)) if big else (("H", 2), ("I", 4))
    entry = np.dtype([("tag", "u2"), ("type", "u2"), ("count", f"u{k}"), ("place", f"u{k}")]).newbyteorder(order)
    (place,) = struct.unpack_from(order + offset, head, k)
    met = {0}
    while place not in met and place < held:
        met.add(place)
        file.seek(place)
        start = file.read(n)
        if len(start) < n:
            return
        (count,) = struct.unpack(order + number, start)
        content = file.read(min(count, 2**16) * entry.itemsize)
        entries = np.frombuffer(content, entry, len(content) // entry.itemsize)
        sizes = SIZES.take(entries["type"], mode="clip") * entries["count"]
        yield float(sizes[sizes + entries["place"] <= held].sum())
        (place,) = struct.unpack(order + offset, file.read(k).ljust(k, b"\0"))


def fills_memory(file: IO[bytes]) -> bool:
    """Tell whether the first directory of a TIFF, or of EXIF data, points to many times the bytes that there are.

    Any number of entries may point at the same bytes, and Pillow keeps a copy for each: a file of one megabyte would
    take gigabytes.
    """
    return next(directories(file), 0) > 2 * file.seek(0, io.SEEK_END) + SLACK
