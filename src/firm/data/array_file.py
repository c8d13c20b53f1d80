"""Array files of four formats, opened without running any code that they may hold; what cannot be read is named."""

from __future__ import annotations

import functools
import importlib
import math
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firm._util.checks import require
from firm.data.sets import files_below

ARRAY_EXTENSIONS = {".npy", ".npz", ".pt", ".h5", ".hdf5"}
BYTES = (torch.uint8, torch.int8, torch.bool)  # numpy knows no other types of one byte


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
    known = f"{path}: not an array file ({', '.join(sorted(ARRAY_EXTENSIONS))})"
    require(is_array_file(path), known, ArrayError)
    require(path.is_file(), f"{path}: no such file", ArrayError)
    require(path.stat().st_size, f"{path}: the file is empty", ArrayError)
    if suffix in (".h5", ".hdf5"):
        with _open_hdf5(path) as file:
            sets: dict[str, Any] = {}
            file.visititems(lambda name, item: sets.update({name: item}) if hasattr(item, "dtype") else None)
            found = _chosen(path, sets, key)  # of values in other files, the file's maker would choose what is read
            elsewhere = f"{path}: {found.name} is kept in other files (external storage, or virtual): copy it into one"
            require(not found.external and not found.is_virtual, elsewhere, ArrayError)
            yield _numbers(path, found)
    elif suffix == ".npz":
        require(not mapped, f"{path}: .npz files cannot be mapped into memory: save the array as .npy", ArrayError)
        with open(path, "rb") as file:  # numpy would leave it open if it is damaged
            with _damaged(path):
                arrays = np.load(file, allow_pickle=False)
            zipped = isinstance(arrays, np.lib.npyio.NpzFile)
            require(zipped, f"{path}: a .npy file under the name of a .npz: rename it", ArrayError)
            name = _chosen(path, {name: name for name in arrays.files}, key)
            yield _numbers(path, _Member(path, arrays, name))
    else:
        found = _load_npy(path) if suffix == ".npy" else _load_pt(path, mapped, max_bytes)
        several = isinstance(found, Mapping)
        single = f"{path}: holds a single array without a name; leave out the key {key!r}"
        require(key is None or several, single, ArrayError)
        yield _numbers(path, _chosen(path, found, key) if several else found)


@contextmanager
def _damaged(path: Path) -> Iterator[None]:
    """Name the file where its contents cannot be read: numpy, zipfile, HDF5 and torch raise errors of many kinds."""
    try:
        yield
    except Exception as error:
        if isinstance(error, ArrayError):
            raise
        first = next(iter(str(error).split(". ")[0].splitlines()), type(error).__name__)  # torch adds advice to run it
        kinds = "damaged, cut short, without any values, or with Python objects, which could run code"
        raise ArrayError(f"{path}: {kinds}: save plain numbers ({first[:200]})") from error


def _load_npy(path: Path) -> Any:
    with open(path, "rb") as file, _damaged(path):
        require(file.read(6) == b"\x93NUMPY", "no .npy file")  # numpy would take it for a pickle
        file.seek(0)
        _header(file, path.stat().st_size)
        return np.load(path, mmap_mode="r", allow_pickle=False)


def _header(file: IO[bytes], held: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Read shape and type of a .npy file of `held` bytes without its values, of which a header may promise too many."""
    version = np.lib.format.read_magic(file)  # type: ignore[no-untyped-call]
    require(version in ((1, 0), (2, 0)), f"a .npy header of version {version}")
    one, two = np.lib.format.read_array_header_1_0, np.lib.format.read_array_header_2_0
    read: Any = one if version == (1, 0) else two
    shape, _, dtype = read(file)
    require(not dtype.hasobject, "Python objects")
    fits = min(shape, default=1) >= 0 and math.prod(shape) * dtype.itemsize <= held
    require(fits, f"{shape} values of {dtype} are more than there are")
    return shape, dtype


class _Member:
    """An array of a .npz file: its header, and, when first sliced, its values."""

    def __init__(self, path: Path, arrays: np.lib.npyio.NpzFile, name: str) -> None:
        self.path, self.arrays, self.name = path, arrays, name
        with _damaged(path):
            member = arrays.zip.getinfo(name if name in arrays.zip.namelist() else f"{name}.npy")
            with arrays.zip.open(member) as file:
                self.shape, self.dtype = _header(file, member.file_size)

    @functools.cached_property
    def values(self) -> NDArray[Any]:
        """All values, read once."""
        with _damaged(self.path):
            return self.arrays[self.name]

    def __getitem__(self, place: Any) -> Any:
        return self.values[place]


def _load_pt(path: Path, mapped: bool, max_bytes: float) -> Any:
    with _damaged(path):
        packed = not mapped and zipfile.is_zipfile(path)
        with zipfile.ZipFile(path) if packed else nullcontext() as inner:  # its members may be compressed
            held = sum(member.file_size for member in inner.infolist()) if inner else 0
    large = f"{path}: holds {held / 1e6:,.0f} MB, more than {max_bytes / 1e6:,.0f}"
    require(held <= max_bytes, large + " (max_megapixels; --max-megapixels on the command line)", ArrayError)
    with _damaged(path):
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    if isinstance(found, Mapping):
        return {str(name): value for name, value in found.items() if isinstance(value, Tensor)}
    other = f"{path}: holds a {type(found).__name__}; save a tensor, or a dictionary of tensors"
    require(isinstance(found, Tensor), other, ArrayError)
    return found


def _open_hdf5(path: Path) -> Any:
    require(find_spec("h5py"), f"{path}: HDF5 files need h5py: pip install h5py", ArrayError)
    with _damaged(path):
        return importlib.import_module("h5py").File(path, "r")


def _chosen(path: Path, arrays: Mapping[str, Any], key: str | None) -> Any:
    """Return the array called `key`, or the only one."""
    names = list(arrays)
    there = ", ".join(names)
    if key is not None:
        require(key.strip("/") in names, f"{path}: no array {key!r} in it; there are {there or 'none'}", ArrayError)
        return arrays[key.strip("/")]
    require(names, f"{path}: holds no arrays", ArrayError)
    several = f"{path}: holds several arrays ({there}): choose one with key=NAME (--key NAME in firm restore, evaluate,"
    require(len(names) == 1, f"{several} calibrate and info)", SeveralArraysError)
    return arrays[names[0]]


def _numbers(path: Path, array: Any) -> Any:
    """Return an array, or a tensor as numpy knows it, if it holds numbers and at least one."""
    if isinstance(array, Tensor):
        sparse = f"{path}: a sparse or quantized tensor; save tensor.to_dense() or tensor.dequantize()"
        require(array.layout == torch.strided and not array.is_quantized, sparse, ArrayError)
        if array.dtype in (torch.bfloat16, torch.complex32):  # unknown to numpy
            array = array.to(torch.complex64 if array.is_complex() else torch.float32)
        unknown = f"{path}: holds {array.dtype}, which numpy does not know; save float32"
        require(array.dtype.itemsize > 1 or array.dtype in BYTES, unknown, ArrayError)
        array = array.detach().resolve_conj().resolve_neg().numpy()
    numeric = array.shape is not None and array.dtype.kind in "biufc"
    require(numeric, f"{path}: holds {array.dtype}, not numbers", ArrayError)
    require(min(array.shape, default=1) > 0, f"{path}: an empty array, {tuple(array.shape)}", ArrayError)
    return array
