"""Volumes and stacks of instruments: slices are read one at a time, and results written in the format that came in.

The formats are files of their own: DICOM (`firm.data.dicom`), NIfTI (`firm.data.nifti`), OME-TIFF and OME-Zarr
(`firm.data.stacks`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from firm._util.checks import require

Values = NDArray[Any]
STACKS, NIFTI = (".tif", ".tiff", ".zarr"), (".nii", ".nii.gz")
OME = (".ome.tif", ".ome.tiff", ".ome.zarr")
LOOKED_AT = 8  # files of a folder, to tell whether it holds a series
MAGIC, PREAMBLE = b"DICM", 128  # of a DICOM file, and the bytes before it


class VolumeError(ValueError):
    """A file that cannot be read as a volume, or not written; the message names it and says why."""


class VolumeWriter(Protocol):
    """Takes the slices of a volume in their order; the file appears, whole, when all went well."""

    path: Path

    def put(self, i: int, values: Values) -> None:
        """Take slice `i`, (H, W), in the units of `Volume.read`."""
        ...


class Volume(ABC):
    """An opened volume: its slices (H, W) in physical units, in a fixed order, and what a result must keep."""

    path: Path
    count: int  # of slices; of a time series or several channels those of all of them
    size: tuple[int, int]  # height and width
    dtype: np.dtype[Any]  # as values are stored
    unit: str = ""  # of values, such as "HU" or "counts"
    spacing: tuple[float, float, float] | None = None  # between slices, rows and columns
    length: str = "mm"  # the unit of `spacing`
    channels: int = 1  # colors of light, or the like, whose values do not compare
    what: str  # the format in a word, such as "NIfTI"

    @property
    def ends(self) -> tuple[float, float]:
        """The values that the stored type can hold, in physical units: what lies beyond is clipped in the result."""
        about = np.iinfo(self.dtype) if self.dtype.kind in "ui" else np.finfo(self.dtype)
        return float(about.min), float(about.max)

    def channel(self, i: int) -> int:
        """Return which of the channels slice `i` belongs to."""
        return 0

    @abstractmethod
    def read(self, i: int) -> Values:
        """Read slice `i`, (H, W), in physical units. VolumeError says if it is damaged."""

    @abstractmethod
    def writer(self, stem: Path, deviation: bool = False) -> AbstractContextManager[VolumeWriter]:
        """Return a context manager for a file like this one, ``stem`` with its ending, which takes all slices.

        Whole numbers are rounded and clipped to the type. Standard deviations (`deviation`) become floats where the
        format has them.
        """

    def __str__(self) -> str:
        """Describe it: "DICOM series, 60 slices of 512x512, int16 in HU, 1 x 0.7 x 0.7 mm"."""
        H, W = self.size
        slices = f"{self.count} slice{'s' if self.count > 1 else ''} of {W}x{H}"
        colors = f" in {self.channels} channels" if self.channels > 1 else ""
        unit = f" in {self.unit}" if self.unit else ""
        sizes = "" if self.spacing is None else ", " + " x ".join(f"{v:.4g}" for v in self.spacing) + f" {self.length}"
        return f"{self.what}, {slices}{colors}, {self.dtype.name}{unit}{sizes}"


def is_volume(path: str | Path) -> bool:
    """Tell whether a path is a volume by its name, or a DICOM file or a folder of them; a plain TIFF is a picture."""
    path, name = Path(path), str(path).lower().rstrip("/")
    return name.endswith((*NIFTI, *OME, ".zarr", ".dcm")) or _is_dicom(path) or bool(_dicom_within(path, LOOKED_AT))


def open_volume(path: str | Path) -> Volume:
    """Open a volume, by its ending or its contents; only what is said of it is read.

    Parameters
    ----------
    path
        A DICOM file or a folder with one series, a NIfTI file, a TIFF (OME-TIFF, of ImageJ, or plain), or the folder
        of an OME-Zarr image.

    Returns
    -------
    The volume. `VolumeError` says what is wrong with it, or which package reads it.
    """
    path, name = Path(path), str(path).lower().rstrip("/")
    require(path.exists(), f"{path}: no such file or folder", VolumeError)
    if name.endswith(NIFTI):
        from firm.data.nifti import Nifti

        return Nifti(path)
    if name.endswith(STACKS):
        from firm.data.stacks import Stack

        return Stack(path)
    files = [path] if _is_dicom(path) else _dicom_within(path)
    known = "DICOM files or a folder of them, .nii, .nii.gz, .tif, .ome.zarr"
    require(files, f"{path}: no volume that is known here ({known})", VolumeError)
    from firm.data.dicom import DicomSeries

    return DicomSeries(path, files)


def to_stored(values: Values, dtype: np.dtype[Any], ends: tuple[float, float] | None = None) -> Values:
    """Round values and clip them to a type of whole numbers, or to narrower `ends`; to floats they are converted."""
    if dtype.kind not in "ui":
        return values.astype(dtype)
    about = np.iinfo(dtype)
    low, high = ends or (about.min, about.max)
    return np.rint(np.asarray(values, np.float64)).clip(low, high).astype(dtype)


@contextmanager
def damaged(path: Path) -> Iterator[None]:
    """Make a VolumeError of whatever a library raises on a damaged file; missing packages say so themselves."""
    try:
        yield
    except Exception as error:
        if isinstance(error, VolumeError | MemoryError | ModuleNotFoundError):
            raise
        first = next(iter(str(error).splitlines()), "") or type(error).__name__
        shown = "".join(c if c.isprintable() else "?" for c in first[:200])
        raise VolumeError(f"{path}: damaged or cut short ({shown})") from error


def _is_dicom(path: Path) -> bool:
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        file.seek(PREAMBLE)
        return file.read(4) == MAGIC


def _dicom_within(path: Path, most: int | None = None) -> list[Path]:
    """Return the DICOM files of a folder, whatever their names, among its first `most`; not those of folders in it."""
    return [file for file in sorted(islice(path.iterdir(), most)) if _is_dicom(file)] if path.is_dir() else []
