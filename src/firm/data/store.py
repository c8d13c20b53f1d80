"""Arrays larger than memory, by their place: OME-Zarr and zarr, .npy and .h5, TIFF; and the zarr array of the results.

A place is a path, or a URL that zarr opens through fsspec (``s3://bucket/image.zarr``). What is read is a slice at a
time, and every worker opens it anew: nothing but the place travels.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firm._util.checks import require
from firm._util.extras import extra
from firm.data.array_file import ArrayError, is_array_file, open_array
from firm.data.picture import Range

CHUNK = 256  # pixels: the side of the chunks that results are stored in
TIFF = (".tif", ".tiff")
USE = "Restoring arrays block by block"


def is_url(place: str) -> bool:
    """Tell whether a place is a URL, which fsspec opens, and no path."""
    return "://" in place


@contextmanager
def opened(place: str, key: str | None = None) -> Iterator[Any]:
    """Open an array for reading: something with ``shape`` and ``dtype`` that gives numpy arrays when sliced.

    Parameters
    ----------
    place
        A path or URL. Of an OME-Zarr image the finest level is taken.
    key
        The name of the array, in a group or file that holds several.
    """
    if not is_url(place):
        require(os.path.exists(place), f"{place}: no such file or folder", ArrayError)
    if is_array_file(place):
        require(not is_url(place), f"{place}: only zarr is read from a URL: copy this file", ArrayError)
        with open_array(place, key) as array:
            yield array
    elif place.lower().endswith(TIFF):
        require(key is None, f"{place}: a TIFF has no names for its images: leave out the key {key!r}", ArrayError)
        tifffile, zarr = extra("tifffile", USE, "dask"), extra("zarr", USE, "dask")
        try:
            store = tifffile.imread(place, aszarr=True, series=0, level=0)
        except (tifffile.TiffFileError, ValueError) as error:
            raise ArrayError(f"{place}: {error}") from error
        try:
            yield zarr.open_array(store, mode="r")
        finally:
            store.close()
    else:
        yield zarr_array(place, key)


def zarr_array(place: str, key: str | None) -> Any:
    """Open a zarr array; of a group the one called `key`, the finest level of an OME-Zarr image, or the only one."""
    zarr = extra("zarr", USE, "dask")
    try:
        found = zarr.open(place, mode="r")
    except (FileNotFoundError, ValueError, KeyError) as error:
        raise ArrayError(f"{place}: no zarr array or group, .npy, .h5 or TIFF that can be read ({error})") from error
    if hasattr(found, "shape"):
        require(key is None, f"{place}: holds a single array; leave out the key {key!r}", ArrayError)
        return found
    name = key if key is not None else _finest(found)
    names = sorted(found.array_keys())
    held = f"{place}: a group of arrays ({', '.join(names[:10]) or 'none'}): name one with key"
    require(name is not None and name in found and hasattr(found[name], "shape"), held, ArrayError)
    return found[name]


def multiscales(group: Any) -> dict[str, Any]:
    """Return what an OME-Zarr group says of its image, of any version; empty if it is none."""
    about: Any = dict(group.attrs)
    images = about.get("ome", about).get("multiscales") or [{}]
    return dict(images[0])


def _finest(group: Any) -> str | None:
    """Return the name of the finest level of an OME-Zarr image, or of the only array."""
    levels = multiscales(group).get("datasets", [])
    names = list(group.array_keys())
    return levels[0]["path"] if levels else names[0] if len(names) == 1 else None


def named_axes(place: str, key: str | None, shape: tuple[int, ...]) -> str:
    """Return the axes of an array, a letter each: those that OME-Zarr or TIFF name, else by their number and sizes."""
    names = ""
    if place.lower().endswith(TIFF):
        with extra("tifffile", USE, "dask").TiffFile(place) as file:
            names = file.series[0].axes.lower().replace("s", "c")
    elif not is_array_file(place) and key is None:
        group = extra("zarr", USE, "dask").open(place, mode="r")
        if not hasattr(group, "shape"):
            listed = multiscales(group).get("axes", [])
            names = "".join(axis["name"] if isinstance(axis, Mapping) else axis for axis in listed)
    if len(names) == len(shape) and {"x", "y"} <= set(names):
        return names
    if len(shape) == 3 and shape[2] <= 4 < shape[0]:
        return "yxc"
    if len(shape) == 3 and shape[0] <= 4:
        return "cyx"
    return "tczyx"[-len(shape) :] if len(shape) in (2, 5) else "zyx" if len(shape) == 3 else ""


@dataclass(frozen=True)
class Layout:
    """Where the images are in an array: each plane of its other axes is one, of one channel or of the model's."""

    shape: tuple[int, ...]
    axes: str  # a letter for each axis: y and x, c for channels
    dtype: np.dtype[Any]
    value_range: Range  # what -1 and 1 stand for
    channels: int  # of an image: 1, or all of c

    @classmethod
    def of(cls, array: Any, axes: str, channels: int, value_range: Range | None) -> Layout:
        """Check the axes of an array, and its values' range: of whole numbers all they can be, of floats [-1, 1]."""
        shape, dtype = tuple(array.shape), np.dtype(array.dtype)
        ends = axes.replace("c", "", 1)
        fits = len(axes) == len(shape) == len(set(axes)) and ends.endswith("yx") and "ycx" not in axes
        message = (
            f"axes {axes!r} for an array {shape}: give a letter for each axis, with y and x last, such as zyx or yxc"
        )
        require(fits, message, ArrayError)
        require(dtype.kind in "uif", f"an array of {dtype}: only whole numbers and floats are restored", ArrayError)
        if value_range is None:
            whole = (float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)) if dtype.kind in "ui" else None
            value_range = whole or (-1.0, 1.0)
        low, high = value_range
        require(math.isfinite(low) and low < high, f"value_range must be low < high, got {value_range}", ArrayError)
        colored = "c" in axes and shape[axes.index("c")] == channels
        return cls(shape, axes, dtype, (low, high), channels if colored else 1)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of an image."""
        return self.shape[self.axes.index("y")], self.shape[self.axes.index("x")]

    @property
    def _other(self) -> list[int]:
        return [i for i, name in enumerate(self.axes) if name not in ("yxc" if self.channels > 1 else "yx")]

    @property
    def planes(self) -> int:
        """How many images there are."""
        return math.prod(self.shape[i] for i in self._other)

    def index(self, plane: int, rows: range, columns: range) -> tuple[int | slice, ...]:
        """Return the place of some pixels of an image in the array."""
        numbers = dict(zip(self._other, np.unravel_index(plane, [self.shape[i] for i in self._other]), strict=True))
        pixels = {"y": slice(rows.start, rows.stop), "x": slice(columns.start, columns.stop)}
        return tuple(
            int(numbers[i]) if i in numbers else pixels.get(name, slice(None)) for i, name in enumerate(self.axes)
        )

    def to_image(self, values: NDArray[Any]) -> Tensor:
        """Make what the array has at an `index` an image (C, h, w), float32 in [-1, 1]."""
        low, high = self.value_range
        image = torch.from_numpy(2 * ((values.astype(np.float32) - low) / np.float32(high - low)) - 1)
        if self.channels == 1:
            return image[None]
        return image.movedim(-1, 0) if self.axes.endswith("c") else image

    def to_values(self, image: Tensor, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Make an image (C, h, w) what the array of the results has at its `index`; whole numbers are rounded."""
        low, high = self.value_range
        image = image.float().cpu()
        image = image[0] if self.channels == 1 else image.movedim(0, -1) if self.axes.endswith("c") else image
        values = low + (high - low) * (image.numpy() + 1) / 2
        if dtype.kind in "ui":
            about = np.iinfo(dtype)
            values = np.rint(values.astype(np.float64)).clip(max(low, about.min), min(high, about.max))
        return values.astype(dtype)

    def chunks(self, side: int) -> tuple[int, ...]:
        """Return the chunks of the results: squares of one image."""
        return tuple(1 if i in self._other else n if name == "c" else side
                     for i, (name, n) in enumerate(zip(self.axes, self.shape, strict=True)))  # fmt: skip


# Results


def create(
    out: str, layout: Layout, dtype: np.dtype[Any], side: int, about: dict[str, Any], source: str, key: str | None
) -> None:
    """Make the array of the results, empty: one array, or of an OME-Zarr image an OME-Zarr image of one level."""
    zarr = extra("zarr", USE, "dask")
    found: Any = None
    if not (is_array_file(source) or source.lower().endswith(TIFF)):
        found = zarr.open(source, mode="r")
    image = {} if found is None or hasattr(found, "shape") or key is not None else multiscales(found)
    how: dict[str, Any] = {
        "shape": layout.shape, "dtype": dtype, "chunks": layout.chunks(side), "overwrite": True, "fill_value": 0,
    }  # fmt: skip
    if not image:
        zarr.create_array(out, attributes={"firm": about}, **how)
        return
    version = found.metadata.zarr_format
    if version == 2:  # OME-Zarr 0.4 has its chunks in folders
        how["chunk_key_encoding"] = {"name": "v2", "separator": "/"}
    kept = {**image, "datasets": [{**image["datasets"][0], "path": "0"}]}
    given = dict(found.attrs)
    ome = {"ome": {**given["ome"], "multiscales": [kept]}} if "ome" in given else {"multiscales": [kept]}
    group = zarr.create_group(out, overwrite=True, zarr_format=version, attributes=ome)
    group.create_array("0", attributes={"firm": about}, **how)


def results(out: str, mode: str = "r+") -> Any:
    """Open the array of the results; None where there is none."""
    zarr = extra("zarr", USE, "dask")
    try:
        found = zarr.open(out, mode=mode)
    except FileNotFoundError:
        return None
    if not hasattr(found, "shape"):
        found = found.get("0")
    # A chunk of zeros is stored, too: what is there has been restored.
    return None if found is None else found.with_config({"write_empty_chunks": True})


def stored_chunks(array: Any) -> set[str]:
    """Return the keys of all chunks that are there; zarr writes each at once, so none is half of one."""
    sync = extra("zarr.core.sync", USE, "dask").sync

    async def listed() -> set[str]:
        return {key async for key in array.store_path.store.list_prefix(array.store_path.path)}

    start = f"{array.store_path.path}/" if array.store_path.path else ""
    return {key.removeprefix(start) for key in sync(listed())}


def chunk_keys(array: Any, place: tuple[int | slice, ...]) -> Iterator[str]:
    """Yield the keys of the chunks that hold the values at a place, whose slices begin at chunks."""
    ranges = []
    for at, chunk, n in zip(place, array.chunks, array.shape, strict=True):
        start, stop, _ = at.indices(n) if isinstance(at, slice) else (at, at + 1, 1)
        ranges.append(range(start // chunk, -(-stop // chunk)))
    for numbers in np.ndindex(*map(len, ranges)):
        yield array.metadata.encode_chunk_key(tuple(r[i] for r, i in zip(ranges, numbers, strict=True)))


def describe(place: str, array: Any) -> dict[str, Any]:
    """Say what tells an array from another without reading it: its shape and type, and its file's time of change."""
    path = Path(place)
    files = [path, path / "zarr.json", path / ".zarray", path / ".zattrs"] if not is_url(place) else []
    times = [(file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
    return {"shape": list(array.shape), "dtype": str(array.dtype), "files": times}
