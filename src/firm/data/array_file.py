"""Array files of four formats, opened without running any code that they may hold; what cannot be read is named."""

from __future__ import annotations

import functools
import importlib
import io
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firm._util.checks import require
from firm.data.opening import require_contents
from firm.data.sets import files_below

ARRAY_EXTENSIONS = {".npy", ".npz", ".pt", ".h5", ".hdf5"}
BYTES = (torch.uint8, torch.int8, torch.bool)  # numpy knows no other types of one byte
SHOWN = 10  # names of arrays in a message
DEPTH = 100  # of groups in HDF5: each one takes longer to find than the one above it


class ArrayError(ValueError):
    """A file that cannot be read as an array of images; the message names it and says why, and what to do."""


class SeveralArraysError(ArrayError):
    """A file that holds more than one array, and nothing says which."""


def is_array_file(path: str | Path) -> bool:
    """Tell whether the name ends like that of an array file."""
    return Path(path).suffix.lower() in ARRAY_EXTENSIONS


def array_files(root: str | Path) -> list[Path]:
    """Return all array files below `root`, recursively, sorted by their path; hidden ones are left out."""
    return files_below(root, ARRAY_EXTENSIONS, "arrays")


@contextmanager
def open_array(
    path: str | Path, key: str | None = None, *, mapped: bool = False, max_bytes: float = math.inf
) -> Iterator[Any]:
    """Open an array file: something with ``shape`` and ``dtype`` that gives numpy arrays when sliced.

    .npy and .h5 files are read as they are sliced; .npz is read whole with the first slice, .pt at once.

    Parameters
    ----------
    path, key
        The file, and the name of the array in files that hold several (.npz, .h5, a dictionary in a .pt).
    mapped
        Map .pt into memory, and refuse .npz.
    max_bytes
        Where more would be read before the shape is known (.pt), nothing is.

    Raises
    ------
    ArrayError
        If the file is missing, empty, damaged, holds several arrays without a `key`, or anything but numbers.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    kinds = ", ".join(sorted(ARRAY_EXTENSIONS))
    require(is_array_file(path), f"{path}: not an array file ({kinds})", ArrayError)
    require_contents(path, ArrayError)
    if suffix in (".h5", ".hdf5"):
        with open_hdf5(path) as file:
            found = hdf5_dataset(path, file, key)
            yield _numbers(path, _Slices(path, found.shape, found.dtype, lambda: found, found.chunks))
    elif suffix == ".npz":
        require(not mapped, f"{path}: .npz files cannot be mapped into memory: save the array as .npy", ArrayError)
        with open(path, "rb") as file:  # numpy would leave it open if it is damaged
            with damaged(path):
                arrays = np.load(file, allow_pickle=False)
            zipped = isinstance(arrays, np.lib.npyio.NpzFile)
            require(zipped, f"{path}: a .npy file under the name of a .npz: rename it", ArrayError)
            name = _chosen(path, {name: name for name in arrays.files}, key)
            yield _numbers(path, _member(path, arrays, name))
    else:
        found = _load_npy(path) if suffix == ".npy" else _load_pt(path, mapped, max_bytes)
        several = isinstance(found, Mapping)
        single = f"{path}: holds a single array without a name; leave out the key {key!r}"
        require(key is None or several, single, ArrayError)
        yield _numbers(path, _chosen(path, found, key) if several else found)


@contextmanager
def damaged(path: Path, else_: str = "") -> Iterator[None]:
    """Name the file where its contents cannot be read: numpy, zipfile, HDF5 and torch raise errors of many kinds."""
    try:
        yield
    except Exception as error:
        if isinstance(error, ArrayError | MemoryError):
            raise
        first = next(iter(str(error).split(". ")[0].splitlines()), "") or type(error).__name__  # torch adds advice
        raise ArrayError(f"{path}: damaged or cut short{else_} ({_shown(first, 200)})") from error


def _shown(text: str, most: int) -> str:
    """Shorten text from a file, and leave out what would steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text[:most]) + ("..." if len(text) > most else "")


# .npy and .npz


def array_in(path: Path, data: bytes) -> Any:
    """Read the contents of a .npy file that lies in another file; `path` names it in messages."""
    with damaged(path):
        _header(path, io.BytesIO(data), len(data))
        return _numbers(path, np.load(io.BytesIO(data), allow_pickle=False))


def _load_npy(path: Path) -> Any:
    with open(path, "rb") as file, damaged(path):
        shape, _ = _header(path, file, path.stat().st_size)
        return np.load(path, mmap_mode="r" if math.prod(shape) else None, allow_pickle=False)  # no empty maps


def _header(path: Path, file: IO[bytes], held: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Read shape and type of a .npy file of `held` bytes without its values, of which a header may promise too many."""
    start = file.read(6)
    pickled = ", or with Python objects, which could run code: save plain numbers" if start[:1] == b"\x80" else ""
    known = start == b"\x93NUMPY"  # numpy would take all else for a pickle
    require(known, f"{path}: no .npy file: damaged{pickled}", ArrayError)
    file.seek(-6, 1)
    version = np.lib.format.read_magic(file)  # type: ignore[no-untyped-call]
    require(version in ((1, 0), (2, 0)), f"{path}: a .npy header of version {version}, not 1 or 2", ArrayError)
    one, two = np.lib.format.read_array_header_1_0, np.lib.format.read_array_header_2_0
    read: Any = one if version == (1, 0) else two
    shape, _, dtype = read(file)
    objects = f"{path}: holds Python objects, which could run code: save plain numbers"
    require(not dtype.hasobject, objects, ArrayError)
    fits = min(shape, default=1) >= 0 and math.prod(shape) * dtype.itemsize <= held
    promised = f"{path}: damaged or cut short: {_shown(str(shape), 60)} values of {dtype} are more than there are"
    require(fits, promised, ArrayError)
    return shape, dtype


def _member(path: Path, arrays: np.lib.npyio.NpzFile, name: str) -> _Slices:
    """Return an array of a .npz file, of which only the header is read until it is sliced."""
    with damaged(path):
        member = arrays.zip.getinfo(name if name in arrays.zip.namelist() else f"{name}.npy")
        with arrays.zip.open(member) as file:
            shape, dtype = _header(path, file, member.file_size)
    return _Slices(path, shape, dtype, functools.cache(lambda: arrays[name]))


# .pt


def _load_pt(path: Path, mapped: bool, max_bytes: float) -> Any:
    with damaged(path):
        packed = not mapped and zipfile.is_zipfile(path)
        with zipfile.ZipFile(path) if packed else nullcontext() as inner:  # its members may be compressed
            held = sum(member.file_size for member in inner.infolist()) if inner else 0
    large = f"{path}: holds {held / 1e6:,.0f} MB, more than {max_bytes / 1e6:,.0f}"
    require(held <= max_bytes, large + " (max_megapixels; --max-megapixels on the command line)", ArrayError)
    with damaged(path, ", or with Python objects, which could run code: save plain tensors"):
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    if isinstance(found, Mapping):
        return {str(name): value for name, value in found.items() if isinstance(value, Tensor)}
    other = f"{path}: holds a {type(found).__name__}; save a tensor, or a dictionary of tensors"
    require(isinstance(found, Tensor), other, ArrayError)
    return found


# HDF5


def open_hdf5(path: Path) -> Any:
    """Open an HDF5 file for reading, if h5py is there."""
    require(find_spec("h5py"), f"{path}: HDF5 files need h5py: pip install h5py", ArrayError)
    with damaged(path):
        return importlib.import_module("h5py").File(path, "r")


def hdf5_names(path: Path, file: Any) -> dict[str, bytes]:
    """Name the data sets of an HDF5 file; no link to another name or file is followed, and nothing is opened."""
    h5o, names = importlib.import_module("h5py").h5o, list[bytes]()

    def note(name: bytes, about: Any) -> None:
        require(name.count(b"/") < DEPTH, f"{path}: groups within groups, more than {DEPTH} deep", ArrayError)
        if about.type == h5o.TYPE_DATASET:
            names.append(name)

    with damaged(path):
        h5o.visit(file.id, note, info=True)
    return {name.decode(errors="replace"): name for name in names}


def hdf5_dataset(path: Path, file: Any, key: str | None) -> Any:
    """Return the data set called `key`, or the only one, if its values are in this very file."""
    names = hdf5_names(path, file)
    with damaged(path):
        found = file[_chosen(path, names, key)]
        # With values in other files, the file's maker would choose what is read.
        elsewhere = f"{path}: {_shown(found.name, 60)} is kept in other files (external storage, or virtual)"
        require(not found.external and not found.is_virtual, f"{elsewhere}: copy it into one", ArrayError)
        if found.chunks:  # HDF5 inflates a block to whatever it holds: it must not be stored in more than it stands for
            stored = [0]
            found.id.chunk_iter(lambda block: stored.append(block.size))
            whole = math.prod(found.chunks) * found.dtype.itemsize
            require(
                max(stored) <= 2 * whole + 1024, f"{path}: damaged: blocks of {whole:,} bytes hold more", ArrayError
            )
        return found


# What is inside


@dataclass
class _Slices:
    """An array that is read when it is sliced; damage that shows only then is named."""

    path: Path
    shape: tuple[int, ...] | None
    dtype: np.dtype[Any]
    values: Callable[[], Any]
    chunks: tuple[int, ...] | None = None  # of HDF5: the blocks that it is stored in

    def __getitem__(self, place: Any) -> NDArray[Any]:
        with damaged(self.path):
            found: NDArray[Any] = self.values()[place]
        return found


def _chosen(path: Path, arrays: Mapping[str, Any], key: str | None) -> Any:
    """Return the array called `key`, or the only one."""
    names = list(arrays)
    there = ", ".join(_shown(name, 60) for name in names[:SHOWN])
    there += f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    if key is not None:
        require(key.strip("/") in arrays, f"{path}: no array {key!r} in it; there are {there or 'none'}", ArrayError)
        return arrays[key.strip("/")]
    require(names, f"{path}: holds no arrays", ArrayError)
    several = f"{path}: holds several arrays ({there}): choose one with key=NAME (--key NAME in firm restore, evaluate,"
    require(len(names) == 1, f"{several} calibrate and info)", SeveralArraysError)
    return arrays[names[0]]


def _numbers(path: Path, array: Any) -> Any:
    """Return an array, or a tensor as numpy knows it, if it holds numbers and at least one."""
    if isinstance(array, Tensor):
        dense = array.layout == torch.strided and not array.is_quantized and not array.is_nested
        strange = f"{path}: a sparse, nested or quantized tensor; save tensor.to_dense() or tensor.dequantize()"
        require(dense, strange, ArrayError)
        require(not array.is_meta, f"{path}: a tensor without values (device meta); save one that has some", ArrayError)
        if array.dtype in (torch.bfloat16, torch.complex32):  # unknown to numpy
            array = array.to(torch.complex64 if array.is_complex() else torch.float32)
        unknown = f"{path}: holds {array.dtype}, which numpy does not know; save float32"
        require(array.dtype.itemsize > 1 or array.dtype in BYTES, unknown, ArrayError)
        array = array.detach().resolve_conj().resolve_neg().numpy()
    numeric = array.shape is not None and array.dtype.kind in "biufc"
    require(numeric, f"{path}: holds {_shown(str(array.dtype), 60)}, not numbers", ArrayError)
    require(min(array.shape, default=1) > 0, f"{path}: an empty array, {tuple(array.shape)}", ArrayError)
    return array
