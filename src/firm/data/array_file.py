"""Array files of four formats, opened without running any code that they may hold; what cannot be read is named."""

from __future__ import annotations

import functools
import importlib
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firm.data.folder import files_below

ARRAY_EXTENSIONS = {".npy", ".npz", ".pt", ".h5", ".hdf5"}


class ArrayError(ValueError):
    """A file that cannot be read as an array of images; the message names it and says why, and what to do."""


class SeveralArraysError(ArrayError):
    """A file that holds more than one array, and nothing says which."""


def is_array_file(path: str | Path) -> bool:
    """Whether the name ends like that of an array file."""
    return Path(path).suffix.lower() in ARRAY_EXTENSIONS


def array_files(root: str | Path) -> list[Path]:
    """All array files below `root`, recursively, sorted by their path; hidden files and folders are left out."""
    return files_below(root, ARRAY_EXTENSIONS, "arrays")


@contextmanager
def open_array(
    path: str | Path, key: str | None = None, *, mapped: bool = False, max_bytes: float = math.inf
) -> Iterator[Any]:
    """Open an array file: something with ``shape`` and ``dtype`` that gives numpy arrays when sliced.

    .npy and .h5 files are read as they are sliced; .npz is read whole with the first slice, .pt at once, or, if
    `mapped`, .pt is mapped into memory and .npz refused. `key` names the array in files that hold several (.npz, .h5,
    a dictionary in a .pt). Where more than `max_bytes` would be read before the shape is known (.pt), they are not.

    Raises
    ------
    ArrayError
        If the file is missing, empty, damaged, holds several arrays without a `key`, or anything but numbers.
    """
    path = Path(path)
    if not is_array_file(path):
        raise ArrayError(f"{path}: not an array file ({', '.join(sorted(ARRAY_EXTENSIONS))})")
    if not path.is_file():
        raise ArrayError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise ArrayError(f"{path}: the file is empty")
    suffix = path.suffix.lower()
    if suffix in (".h5", ".hdf5"):
        with _open_hdf5(path) as file:
            yield _numbers(path, _chosen(path, _datasets(file), key))
    elif suffix == ".npz":
        if mapped:
            raise ArrayError(f"{path}: .npz files cannot be mapped into memory: save the array as .npy")
        with _open_npz(path) as arrays:
            yield _numbers(path, _chosen(path, arrays, key))
    else:
        found = _load_npy(path) if suffix == ".npy" else _load_pt(path, mapped, max_bytes)
        if key is not None and not isinstance(found, Mapping):
            raise ArrayError(f"{path}: holds a single array without a name; leave out the key {key!r}")
        yield _numbers(path, _chosen(path, found, key) if isinstance(found, Mapping) else found)


def _load_npy(path: Path) -> Any:
    with open(path, "rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise ArrayError(f"{path}: no .npy file of numbers (damaged, or pickled objects, which could run code)")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        if "object" in str(error).lower():
            raise ArrayError(f"{path}: holds Python objects, which could run code; save plain numbers") from error
        raise ArrayError(f"{path}: damaged, cut short or without any values ({error})") from error


@contextmanager
def _open_npz(path: Path) -> Iterator[Mapping[str, Any]]:
    with open(path, "rb") as file:  # numpy would leave it open if it is damaged
        try:
            arrays = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ArrayError(f"{path}: damaged, or no .npz file ({error})") from error
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise ArrayError(f"{path}: a .npy file under the name of a .npz: rename it")
        with arrays:
            yield {name: _Member(path, arrays, name) for name in arrays.files}


class _Member:
    """An array of a .npz file: its header, and, when first sliced, its values."""

    def __init__(self, path: Path, arrays: np.lib.npyio.NpzFile, name: str) -> None:
        self.path, self.arrays, self.name = path, arrays, name
        self.values: NDArray[Any] | None = None

    @functools.cached_property
    def header(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and type, without the values: a kilobyte may say that it holds gigabytes."""
        inner = self.arrays.zip
        name = self.name if self.name in inner.namelist() else f"{self.name}.npy"
        with _damaged(self.path), inner.open(name) as file:
            read: dict[Any, Any] = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }
            version = np.lib.format.read_magic(file)  # type: ignore[no-untyped-call]
            if version not in read:
                raise ValueError(f"a .npy header of version {version}")
            shape, _, dtype = read[version](file)
        if dtype.hasobject:
            raise ArrayError(f"{self.path}: holds Python objects, which could run code; save plain numbers")
        return shape, dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """As the header says."""
        return self.header[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        """As the header says."""
        return self.header[1]

    def __getitem__(self, place: Any) -> Any:
        if self.values is None:
            with _damaged(self.path):
                self.values = self.arrays[self.name]
        return self.values[place]


@contextmanager
def _damaged(path: Path) -> Iterator[None]:
    """Name the file where its contents cannot be read; NotImplementedError is a compression that zipfile lacks."""
    try:
        yield
    except (OSError, ValueError, EOFError, SyntaxError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, ArrayError):
            raise
        if "object" in str(error).lower():
            raise ArrayError(f"{path}: holds Python objects, which could run code; save plain numbers") from error
        raise ArrayError(f"{path}: damaged or cut short ({error})") from error


def _load_pt(path: Path, mapped: bool, max_bytes: float) -> Any:
    try:
        if not mapped and zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as inner:  # its members may be compressed
                held = sum(member.file_size for member in inner.infolist())
            if held > max_bytes:
                raise ArrayError(
                    f"{path}: holds {held / 1e6:,.0f} MB, more than {max_bytes / 1e6:,.0f} "
                    "(max_megapixels; --max-megapixels on the command line)"
                )
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except ArrayError:
        raise
    except Exception as error:  # of the unpickler: many kinds, and long texts about how to run untrusted code
        first = str(error).split(". ")[0].splitlines()[0] if str(error) else type(error).__name__
        raise ArrayError(f"{path}: no plain tensor, or damaged ({first[:200]})") from error
    if isinstance(found, Tensor):
        return found
    if isinstance(found, Mapping):
        return {str(name): value for name, value in found.items() if isinstance(value, Tensor)}
    raise ArrayError(f"{path}: holds a {type(found).__name__}; save a tensor, or a dictionary of tensors")


def _open_hdf5(path: Path) -> Any:
    try:
        h5py = importlib.import_module("h5py")
    except ModuleNotFoundError as error:
        raise ArrayError(f"{path}: HDF5 files need h5py: pip install h5py") from error
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise ArrayError(f"{path}: damaged, or no HDF5 file ({error})") from error


def _datasets(file: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    file.visititems(lambda name, item: found.update({name: item}) if hasattr(item, "dtype") else None)
    return found


def _chosen(path: Path, arrays: Mapping[str, Any], key: str | None) -> Any:
    """The array called `key`, or the only one."""
    names = list(arrays)
    if key is None and len(names) != 1:
        if not names:
            raise ArrayError(f"{path}: holds no arrays")
        raise SeveralArraysError(
            f"{path}: holds several arrays ({', '.join(names)}): choose one with key=NAME (--key NAME in firm restore, "
            "evaluate, calibrate and info)"
        )
    if key is not None and key.strip("/") not in names:
        raise ArrayError(f"{path}: no array {key!r} in it; there are {', '.join(names) or 'none'}")
    with _damaged(path):
        return arrays[names[0] if key is None else key.strip("/")]


def _numbers(path: Path, array: Any) -> Any:
    """The same as numpy knows it, if it holds numbers."""
    if isinstance(array, Tensor):
        if array.layout != torch.strided or array.is_quantized:
            raise ArrayError(f"{path}: a sparse or quantized tensor; save tensor.to_dense() or tensor.dequantize()")
        if array.dtype in (torch.bfloat16, torch.complex32):  # unknown to numpy
            array = array.to(torch.complex64 if array.is_complex() else torch.float32)
        try:
            array = array.detach().resolve_conj().resolve_neg().numpy()
        except TypeError as error:
            raise ArrayError(f"{path}: holds {array.dtype}, which numpy does not know; save float32") from error
    if array.shape is None or array.dtype.kind not in "biufc":
        raise ArrayError(f"{path}: holds {array.dtype}, not numbers")
    if 0 in array.shape:
        raise ArrayError(f"{path}: an empty array, {tuple(array.shape)}")
    return array
