"""NIfTI volumes: header, affine and scaling are kept, and slices are written one after the other."""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from firm._util.checks import require
from firm._util.extras import extra
from firm._util.files import replacing
from firm.data.volumes import Values, Volume, VolumeError, VolumeWriter, damaged, to_stored

USE = "Reading NIfTI"


class Nifti(Volume):
    """A .nii or .nii.gz file of one value a voxel; slices along the third axis, volumes of a series one by one.

    A slice is (y, x). Of a compressed file the stored values are held in memory, of others a slice is read at a time.
    """

    what = "NIfTI"

    def __init__(self, path: Path) -> None:
        nibabel = extra("nibabel", USE, "medical")
        self.path = path
        with damaged(path):
            image = nibabel.load(path)
        kind = f"{path}: a {type(image).__name__}; NIfTI files of one part (.nii, .nii.gz) are read"
        require(isinstance(image, nibabel.Nifti1Image), kind, VolumeError)
        self.header, shape = image.header, image.shape
        self.dtype = np.dtype(image.get_data_dtype())
        wrong = f"{path}: an array {shape} of {self.dtype}: three axes or more, of real numbers, are restored"
        require(len(shape) >= 3 and min(shape) > 0 and self.dtype.kind in "uif", wrong, VolumeError)
        self.size, self.count = (shape[1], shape[0]), math.prod(shape[2:])
        slope, inter = float(image.dataobj.slope), float(image.dataobj.inter)
        self.slope, self.inter = (slope, inter) if slope else (1.0, 0.0)
        x, y, z = (float(v) for v in self.header.get_zooms()[:3])
        self.spacing = z, y, x
        unit = self.header.get_xyzt_units()[0]
        self.length = {"micron": "um", "meter": "m"}.get(unit, "mm")
        self._image = image
        self._whole: Values | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """The values that the stored type can hold, in physical units."""
        ends = [self.slope * end + self.inter for end in super().ends]
        return min(ends), max(ends)

    def read(self, i: int) -> Values:
        """Read slice `i`, (H, W), as floats where the file scales its values."""
        place: Any = (..., *np.unravel_index(i, self._image.shape[:1:-1])[::-1])  # the third axis runs first
        with damaged(self.path):
            if self._whole is None and self.path.suffix == ".gz":
                self._whole = np.asarray(self._image.dataobj.get_unscaled())
            source = self._image.dataobj if self._whole is None else self._whole
            values = np.asarray(source[place]).T
        if self._whole is not None and (self.slope, self.inter) != (1, 0):
            values = self.slope * values + self.inter
        return values

    @contextmanager
    def writer(self, stem: Path, deviation: bool = False) -> Iterator[VolumeWriter]:
        """Yield what writes a file with this header, type and scaling; standard deviations are float32."""
        ending = ".nii.gz" if self.path.suffix == ".gz" else ".nii"
        path, header = stem.with_name(stem.name + ending), self.header.copy()
        dtype, slope, inter = (np.dtype(np.float32), 1.0, 0.0) if deviation else (self.dtype, self.slope, self.inter)
        header.set_data_dtype(dtype)
        header.set_slope_inter(slope, inter)
        header["cal_min"] = header["cal_max"] = 0  # the range that is shown, which is another one
        with ExitStack() as stack:
            file: Any = stack.enter_context(replacing(path))
            if ending == ".nii.gz":
                file = stack.enter_context(gzip.GzipFile("", "wb", 6, file, 0))
            header.set_data_offset(0)  # the least that there may be
            header.write_to(file)
            file.write(b"\0" * (header.get_data_offset() - file.tell()))
            yield _Writer(path, file, dtype.newbyteorder(header.endianness), slope, inter)


class _Writer:
    def __init__(self, path: Path, file: Any, dtype: np.dtype[Any], slope: float, inter: float) -> None:
        self.path, self.file, self.dtype, self.slope, self.inter, self.next = path, file, dtype, slope, inter, 0

    def put(self, i: int, values: Values) -> None:
        """Append slice `i`, (y, x), which is how the file has it: x runs first."""
        require(i == self.next, f"{self.path}: slices are written in their order, {self.next} is next, not {i}")
        self.next += 1
        stored = to_stored((np.asarray(values, np.float64) - self.inter) / self.slope, self.dtype)
        self.file.write(np.ascontiguousarray(stored).tobytes())
