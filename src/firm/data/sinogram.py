"""Sinograms of tomographs with their geometry: MATLAB files of the Helsinki challenge, and arrays with names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firm._util.checks import require
from firm.data.array_file import ArrayError, open_array
from firm.data.matlab import read_matlab
from firm.data.opening import require_contents

SINOGRAM_EXTENSIONS = {".mat", ".npy", ".npz", ".h5", ".hdf5"}
LENGTHS = {"mm": 1.0, "cm": 10.0, "m": 1000.0, "um": 0.001}  # in mm
MOST_BYTES = 2**31  # of a sinogram
SCALARS = ("spacing", "source", "detector", "offset", "curved")


@dataclass(frozen=True)
class Sinogram:
    """Measurements of one or more slices, and where source and detector stood; all lengths in mm, or in bins."""

    values: NDArray[Any]  # (slices, views, bins): line integrals, or photons
    angles: NDArray[np.float64]  # of the views, in radians, (views,)
    blank: NDArray[Any] | None = None  # photons without an object, where `values` are counts; broadcasts over them
    spacing: float = 1.0  # of the bins
    source: float | None = None  # distance of the source from the axis; None: parallel rays
    detector: float = 0.0  # distance of the detector from the axis
    offset: float = 0.0  # of the detector's center along the detector
    curved: bool = False
    unit: str = ""  # "mm" where lengths are known
    notes: tuple[str, ...] = ()  # what was assumed


def read_sinogram(path: str | Path) -> Sinogram:
    """Read a sinogram; ArrayError, one sentence, says what is wrong with the file.

    A MATLAB file holds a structure of the Helsinki challenge, ``CtDataFull`` or ``CtDataLimited``, or has variables
    like all others: ``sinogram`` with line integrals, or ``counts`` with ``blank``, the photons without an object (one
    number, or one of every bin); ``angles`` in degrees; and where rays are a fan ``source`` and ``detector``, their
    distances from the axis. ``spacing`` is that of the bins, ``offset`` the place of the detector's center, ``curved``
    1 for an arc; lengths are in mm. Sinograms are (views, bins) or (slices, views, bins). A .npy file has parallel
    views all around half a turn.
    """
    path = Path(path)
    known = path.suffix.lower() in SINOGRAM_EXTENSIONS
    require(known, f"{path}: not a sinogram ({', '.join(sorted(SINOGRAM_EXTENSIONS))})", ArrayError)
    require_contents(path, ArrayError)
    large = f"{path}: {path.stat().st_size / 1e6:,.0f} MB, and sinograms are read up to {MOST_BYTES / 1e6:,.0f}"
    require(path.stat().st_size <= MOST_BYTES, large, ArrayError)
    if path.suffix.lower() == ".npy":
        with open_array(path, max_bytes=MOST_BYTES) as array:
            return _sinogram(path, {"sinogram": np.asarray(array)})
    if path.suffix.lower() != ".mat":
        return _sinogram(path, _named(path))
    found = read_matlab(path, MOST_BYTES)
    for name in ("CtDataFull", "CtDataLimited"):
        if name in found:
            return _helsinki(path, found[name], name)
    return _sinogram(path, found)


def _named(path: Path) -> dict[str, Any]:
    """The arrays of our layout in a .npz or .h5 file."""
    found: dict[str, Any] = {}
    for key in ("sinogram", "counts", "blank", "angles", *SCALARS):
        try:
            with open_array(path, key) as array:
                size = math.prod(array.shape) * array.dtype.itemsize
                require(size <= MOST_BYTES, f"{path}: {key} has {size / 1e6:,.0f} MB", ArrayError)
                found[key] = np.asarray(array[()])
        except ArrayError as error:
            if f"no array {key!r}" not in str(error):
                raise
    return found


def _helsinki(path: Path, data: Any, name: str) -> Sinogram:
    """A structure of the Helsinki tomography challenge 2022: `sinogram` and `parameters`, of a flat detector."""
    structure = isinstance(data, Mapping) and isinstance(data.get("parameters"), Mapping) and "sinogram" in data
    require(structure, f"{path}: {name} must be a structure with sinogram and parameters", ArrayError)
    p = data["parameters"]
    needed = ("distanceSourceOrigin", "distanceSourceDetector", "pixelSizePost", "angles")
    missing = [key for key in needed if key not in p]
    require(not missing, f"{path}: {name}.parameters lacks {', '.join(missing)}", ArrayError)
    source, total = (_number(path, key, p[key]) for key in needed[:2])
    return _sinogram(path, {
        "sinogram": data["sinogram"], "angles": p["angles"], "source": source, "detector": total - source,
        "spacing": p["pixelSizePost"], "unit": p.get("distanceUnit", "mm"),
    })  # fmt: skip


def _sinogram(path: Path, found: Mapping[str, Any]) -> Sinogram:
    """Check what was found, and bring it to radians and mm."""
    counted = "counts" in found
    require(counted or "sinogram" in found, f"{path}: no array called sinogram, nor counts and blank", ArrayError)
    values = _array(path, "counts" if counted else "sinogram", found)
    values = values[None] if values.ndim == 2 else values
    shown = " x ".join(map(str, values.shape))
    require(
        values.ndim == 3 and min(values.shape) > 0, f"{path}: (slices, views, bins) wanted, got {shown}", ArrayError
    )
    notes = []
    views, bins = values.shape[1:]
    if "angles" in found:
        angles = np.deg2rad(_array(path, "angles", found).astype(np.float64).ravel())
        require(len(angles) == views, f"{path}: {len(angles)} angles for {views} views", ArrayError)
    else:
        angles = np.arange(views) * (math.pi / views)
        notes.append("the file has no angles: its views are taken for parallel ones all around half a turn")
    blank = None
    if counted:
        require("blank" in found, f"{path}: counts need blank, the photons without an object", ArrayError)
        blank = _array(path, "blank", found).astype(np.float64)
        fits = blank.size in (1, bins) and blank.min() > 0
        require(fits, f"{path}: blank must be one number above 0 or one for each of the {bins} bins", ArrayError)
        blank = blank.reshape(1, 1, -1)
        require(values.min() >= 0, f"{path}: counts are negative", ArrayError)
    unit = str(found.get("unit", "mm" if "spacing" in found else "")).strip()
    require(unit in ("", *LENGTHS), f"{path}: the unit {unit[:20]!r} is none of {', '.join(LENGTHS)}", ArrayError)
    lengths = {key: _number(path, key, found[key]) for key in SCALARS if key in found}
    curved = bool(lengths.pop("curved", 0))
    in_mm: dict[str, Any] = {key: value * LENGTHS.get(unit, 1.0) for key, value in lengths.items()}
    for key, of in (("spacing", "the spacing of the bins"), ("source", "the distance of the source")):
        require(in_mm.get(key, 1.0) > 0, f"{path}: {of} must be above 0", ArrayError)
    return Sinogram(values, angles, blank, **in_mm, curved=curved, unit="mm" if unit else "", notes=tuple(notes))


def _array(path: Path, key: str, found: Mapping[str, Any]) -> NDArray[Any]:
    """Return numbers, all finite."""
    value = np.asarray(found[key])
    numeric = value.dtype.kind in "biuf" and value.size > 0
    require(numeric, f"{path}: {key} must hold real numbers", ArrayError)
    require(np.isfinite(value).all(), f"{path}: {key} holds NaN or infinite values", ArrayError)
    return value


def _number(path: Path, key: str, value: Any) -> float:
    one = _array(path, key, {key: value})
    require(one.size == 1, f"{path}: {key} must be one number", ArrayError)
    return float(one.ravel()[0])
