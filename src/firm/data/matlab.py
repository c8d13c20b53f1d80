"""MATLAB files: numbers, texts and structures, of version 5 read here, of version 7.3 (HDF5) by h5py.

scipy reads version 5 too, but a damaged file may end its process; here every length is checked against what is there.
"""

from __future__ import annotations

import importlib
import math
import struct
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firm._util.checks import require
from firm.data.array_file import ArrayError

DEPTH = 4  # of structures within structures
MATRIX, COMPRESSED = 14, 15  # kinds of data elements
CELL, STRUCT, CHAR = 1, 2, 4  # classes of arrays; 6 to 15 are numbers
NUMBERS = {  # kinds of data elements that hold numbers
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8",
    16: "u1", 17: "u2", 18: "u4",
}  # fmt: skip
COMPLEX = 0x0800  # in the flags of an array


def read_matlab(path: Path, max_bytes: int) -> dict[str, Any]:
    """Return the variables of a file: arrays of numbers, texts, and structures as dictionaries of these.

    Cells, objects, complex numbers and arrays of several structures are left out. ArrayError, one sentence, says what
    is wrong with a file; of more than `max_bytes`, unpacked, none is read.
    """
    with open(path, "rb") as file:
        start = file.read(128)
    try:
        if b"MATLAB 7.3" in start or start[:4] == b"\x89HDF":
            require(find_spec("h5py"), f"{path}: MATLAB files of version 7.3 need h5py: pip install h5py", ArrayError)
            with importlib.import_module("h5py").File(path, "r") as file:
                return _of_hdf5(file, 0, max_bytes)
        order = {b"IM": "<", b"MI": ">"}.get(start[126:128])
        require(order, f"{path}: no MATLAB file of version 5 or later", ArrayError)
        assert order is not None
        return _variables(_Bytes(path.read_bytes()[128:], order), max_bytes)
    except (OSError, RuntimeError, KeyError, ValueError, IndexError, TypeError, struct.error, zlib.error) as error:
        if isinstance(error, ArrayError):
            raise
        first = next(iter(str(error).splitlines()), "") or type(error).__name__
        shown = "".join(c if c.isprintable() else "?" for c in first[:200])
        raise ArrayError(f"{path}: damaged or cut short ({shown})") from error


class _Bytes:
    """What is left to be read: data elements, each a kind, a length and so many bytes."""

    def __init__(self, data: bytes, order: str) -> None:
        self.data, self.order, self.place = data, order, 0

    def __bool__(self) -> bool:
        return self.place + 8 <= len(self.data)

    def element(self) -> tuple[int, bytes]:
        """Return the next element; small ones share eight bytes with their kind and length."""
        kind, length = struct.unpack_from(self.order + "II", self.data, self.place)
        begin, step = self.place + 8, length + (-length % 8 if kind != COMPRESSED else 0)
        if kind >> 16:
            kind, length, begin, step = kind & 0xFFFF, kind >> 16, self.place + 4, 4
            require(length <= 4, "a small element of more than four bytes")
        end = begin + length
        require(end <= len(self.data), f"{length:,} bytes promised, {len(self.data) - begin:,} there")
        self.place = begin + step
        return kind, self.data[begin:end]

    def numbers(self) -> NDArray[Any]:
        """Return the numbers of the next element."""
        kind, data = self.element()
        require(kind in NUMBERS, f"an element of kind {kind} where numbers are expected")
        dtype = np.dtype(self.order + NUMBERS[kind])
        return np.frombuffer(data, dtype, len(data) // dtype.itemsize)


def _variables(file: _Bytes, max_bytes: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while file:
        kind, data = file.element()
        if kind == COMPRESSED:
            unpacked = zlib.decompressobj().decompress(data, max_bytes)
            inner = _Bytes(unpacked, file.order)
            kind, data = inner.element() if inner else (0, b"")
        if kind == MATRIX:
            name, value = _matrix(_Bytes(data, file.order), 0)
            if value is not None:
                found[name] = value
    return found


def _matrix(file: _Bytes, depth: int) -> tuple[str, Any]:
    """The name and the value of an array, None for what is left out."""
    if not file:
        return "", None  # an empty field
    flags = int(file.numbers()[0])
    shape = [int(n) for n in file.numbers()]
    name = file.element()[1].decode("latin1")
    kind, count = flags & 0xFF, math.prod(shape)
    require(min(shape, default=0) >= 0, "an array of negative size")
    if kind == STRUCT:
        return name, _structure(file, depth) if count == 1 and depth < DEPTH else None
    if kind == CELL or kind not in (CHAR, *range(6, 16)) or flags & COMPLEX:
        return name, None
    values = file.numbers()
    require(len(values) == count, f"{len(values):,} numbers in an array of {' x '.join(map(str, shape))}")
    if kind == CHAR:
        return name, "".join(map(chr, values.tolist()))
    return name, values.reshape(shape, order="F")


def _structure(file: _Bytes, depth: int) -> dict[str, Any]:
    length = int(file.numbers()[0])
    names = file.element()[1]
    require(length > 0 and len(names) % length == 0, "names of fields that do not fit")
    found: dict[str, Any] = {}
    for i in range(0, len(names), length):
        kind, data = file.element()
        require(kind == MATRIX, f"an element of kind {kind} for a field")
        value = _matrix(_Bytes(data, file.order), depth + 1)[1]
        if value is not None:
            found[names[i : i + length].split(b"\0")[0].decode("latin1")] = value
    return found


def _of_hdf5(group: Any, depth: int, max_bytes: int) -> dict[str, Any]:
    """What a group holds: MATLAB stores arrays transposed, texts as numbers, and structures as groups."""
    found: dict[str, Any] = {}
    for key in group:
        if group.get(key, getlink=True).__class__.__name__ != "HardLink":
            continue  # the file's maker would choose what is read
        value = group[key]
        if hasattr(value, "keys"):
            found |= {key: _of_hdf5(value, depth + 1, max_bytes)} if depth < DEPTH and not key.startswith("#") else {}
        elif not value.external and not value.is_virtual and value.size * value.dtype.itemsize <= max_bytes:
            if value.attrs.get("MATLAB_class") == b"char":
                found[key] = "".join(map(chr, np.asarray(value[()]).ravel().astype(int)))
            elif value.dtype.kind in "biuf":
                found[key] = np.asarray(value[()]).T
    return found
