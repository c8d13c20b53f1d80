"""Stacks of a microscope: TIFF (OME, of ImageJ, or plain) and OME-Zarr, with their axes, pixel sizes and type."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from firm._util.checks import require
from firm._util.extras import extra
from firm._util.files import replacing, replacing_folder
from firm.data.array_file import ArrayError
from firm.data.store import CHUNK, TIFF, Layout, create, multiscales, named_axes, opened, results
from firm.data.volumes import Values, Volume, VolumeError, VolumeWriter, damaged, to_stored

USE = "Reading stacks"
LARGE = 2**31  # bytes: beyond, results are BigTIFFs, as tifffile suggests
SPACE = {
    "um": 1.0,
    "µm": 1.0,
    "micron": 1.0,
    "micrometer": 1.0,
    "nm": 1e-3,
    "nanometer": 1e-3,
    "mm": 1e3,
    "\\u00B5m": 1,
}


class Stack(Volume):
    """A TIFF or OME-Zarr image: every plane (y, x) of its other axes, such as t, c and z, is a slice.

    Of a TIFF with several images the first is read, of a pyramid the finest level.
    """

    length, unit = "um", "counts"
    _array: Any = None

    def __init__(self, path: Path) -> None:
        extra("zarr", USE, "microscopy")
        extra("tifffile", USE, "microscopy")
        self.path, self.tiff = path, path.suffix.lower() in TIFF
        self.what = "TIFF stack" if self.tiff else "OME-Zarr"
        if self.tiff:
            _require_whole(path)
        with _sentence(path), opened(str(path)) as array:
            axes = named_axes(str(path), None, tuple(array.shape))
            self.layout = Layout.of(array, axes, 0, None)
        color = f"{path}: color is the last of its axes ({axes}): such a TIFF is a picture, not a stack of counts"
        require(not axes.endswith("c"), color, VolumeError)
        self.size, self.count, self.dtype = self.layout.size, self.layout.planes, self.layout.dtype
        self.channels = self.layout.shape[axes.index("c")] if "c" in axes else 1
        with damaged(path):
            self.spacing = self._tiff_spacing() if self.tiff else self._zarr_spacing(axes)

    def channel(self, i: int) -> int:
        """Return the channel of slice `i`."""
        axes = self.layout.axes
        place = self.layout.index(i, range(0), range(0))
        found = place[axes.index("c")] if "c" in axes else 0
        return found if isinstance(found, int) else 0

    def read(self, i: int) -> Values:
        """Read plane `i`, (H, W), as it is stored; of a tiled or chunked file only what holds it."""
        H, W = self.size
        with _sentence(self.path):
            if self._array is None:  # open until nobody has the volume: finding thousands of pages takes its time
                held = ExitStack()
                self._array = held.enter_context(opened(str(self.path)))
                weakref.finalize(self, held.close)
            return np.asarray(self._array[self.layout.index(i, range(H), range(W))])

    @contextmanager
    def writer(self, stem: Path, deviation: bool = False) -> Iterator[VolumeWriter]:
        """Yield what writes a file like this one, of the same axes; standard deviations are float32."""
        dtype = np.dtype(np.float32) if deviation else self.dtype
        if not self.tiff:
            path = stem.with_name(stem.name + (".ome.zarr" if self.path.name.endswith(".ome.zarr") else ".zarr"))
            with replacing_folder(path) as folder:
                create(str(folder), self.layout, dtype, CHUNK, {}, str(self.path), None)
                yield _ZarrWriter(path, results(str(folder)), self.layout)
            return
        path = stem.with_name(stem.name + (".ome.tif" if ".ome." in self.path.name.lower() else ".tif"))
        tifffile = extra("tifffile", USE, "microscopy")
        big = self.count * self.size[0] * self.size[1] * dtype.itemsize > LARGE
        with replacing(path) as file, tifffile.TiffWriter(file, bigtiff=big) as tiff:
            yield _TiffWriter(path, tiff, dtype, self._tags(dtype))

    def _tags(self, dtype: np.dtype[Any]) -> dict[str, Any]:
        """Return what the first page of the original says: its description, fitted to the result, and resolution."""
        tifffile = extra("tifffile", USE, "microscopy")
        with tifffile.TiffFile(self.path) as file:
            page = file.pages[0]
            text = page.description
            if file.is_ome:
                text = _ome(file.ome_metadata, dtype, self.count)
            elif not file.is_imagej:  # tifffile's own JSON, say, describes another file
                text = "" if page.description.startswith(("{", "shape=")) else text
            tags: dict[str, Any] = {"description": text.encode() or None}
            if "XResolution" in page.tags and "YResolution" in page.tags:
                tags |= {"resolution": (page.tags["XResolution"].value, page.tags["YResolution"].value)}
                tags |= {"resolutionunit": int(page.resolutionunit)}
        return tags

    def _tiff_spacing(self) -> tuple[float, float, float] | None:
        """Return pixel sizes in micrometers as OME or ImageJ have them; None where nothing is said."""
        with extra("tifffile", USE, "microscopy").TiffFile(self.path) as file:
            if file.is_ome:
                pixels = _pixels(ElementTree.fromstring(file.ome_metadata))
                sizes = [
                    float(pixels.get(f"PhysicalSize{a}", 0)) * SPACE.get(pixels.get(f"PhysicalSize{a}Unit", "um"), 0)
                    for a in "ZYX"
                ]
                return (sizes[0], sizes[1], sizes[2]) if sizes[1] and sizes[2] else None
            about = file.imagej_metadata or {}
            factor = SPACE.get(str(about.get("unit", "")))
            ends = [file.pages[0].tags.get(name) for name in ("YResolution", "XResolution")]
            if factor is None or any(end is None or not end.value[0] for end in ends):
                return None
            y, x = (factor * end.value[1] / end.value[0] for end in ends)
            return factor * float(about.get("spacing", 0)), y, x

    def _zarr_spacing(self, axes: str) -> tuple[float, float, float] | None:
        group = extra("zarr", USE, "microscopy").open(str(self.path), mode="r")
        image = {} if hasattr(group, "shape") else multiscales(group)
        for change in (image.get("datasets") or [{}])[0].get("coordinateTransformations", []):
            if change.get("type") == "scale" and len(change["scale"]) == len(axes):
                named = dict(zip(axes, change["scale"], strict=True))
                units = {a["name"]: SPACE.get(a.get("unit", "um"), 1.0) for a in image["axes"] if isinstance(a, dict)}
                z, y, x = (float(named.get(a, 0)) * units.get(a, 1.0) for a in "zyx")
                return z, y, x
        return None


class _TiffWriter:
    def __init__(self, path: Path, tiff: Any, dtype: np.dtype[Any], tags: dict[str, Any]) -> None:
        self.path, self.tiff, self.dtype, self.tags, self.next = path, tiff, dtype, tags, 0

    def put(self, i: int, values: Values) -> None:
        """Append plane `i` as a page; the first has the description of all."""
        require(i == self.next, f"{self.path}: slices are written in their order, {self.next} is next, not {i}")
        self.next += 1
        self.tiff.write(to_stored(values, self.dtype), photometric="minisblack", metadata=None, **self.tags)
        self.tags = {key: value for key, value in self.tags.items() if key != "description"}


class _ZarrWriter:
    def __init__(self, path: Path, array: Any, layout: Layout) -> None:
        self.path, self.array, self.layout = path, array, layout

    def put(self, i: int, values: Values) -> None:
        """Write plane `i`."""
        H, W = self.layout.size
        self.array[self.layout.index(i, range(H), range(W))] = to_stored(values, np.dtype(self.array.dtype))


@contextmanager
def _sentence(path: Path) -> Iterator[None]:
    """Let the messages of arrays be those of volumes, and name the file where a library fails."""
    with damaged(path):
        try:
            yield
        except ArrayError as error:
            raise VolumeError(str(error)) from error


def _require_whole(path: Path) -> None:
    """Refuse a TIFF that is cut short, of which tifffile would read what is left and log the rest."""
    said: list[str] = []
    log, listener = logging.getLogger("tifffile"), logging.Handler(logging.ERROR)
    listener.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(listener)
    shown, log.propagate = log.propagate, False
    try:
        with damaged(path), extra("tifffile", USE, "microscopy").TiffFile(path) as file:
            series = file.series[0]
            ends = [series.dataoffset + series.nbytes] if series.dataoffset is not None else [
                offset + count
                for page in series.pages if page is not None
                for offset, count in zip(page.dataoffsets, page.databytecounts, strict=True)
            ]  # fmt: skip
            whole = max(ends, default=0) <= file.filehandle.size
    finally:
        log.removeHandler(listener)
        log.propagate = shown
    why = f" ({said[0][:200]})" if said else ""
    require(whole and not said, f"{path}: damaged or cut short{why}", VolumeError)


def _pixels(root: Any) -> Any:
    return next(element for element in root.iter() if element.tag.endswith("}Pixels"))


def _ome(text: str, dtype: np.dtype[Any], planes: int) -> str:
    """Return OME-XML for the planes of the first image in the order of its axes, which is that of the pages."""
    root = ElementTree.fromstring(text)
    name = root.tag[1:].partition("}")[0]
    ElementTree.register_namespace("", name)
    root.attrib.pop("UUID", None)  # that of another file
    images = [element for element in root if element.tag.endswith("}Image")]
    for other in images[1:]:
        root.remove(other)
    pixels = _pixels(root)
    pixels.set("Type", {"float32": "float", "float64": "double"}.get(dtype.name, dtype.name))
    for child in list(pixels):
        if child.tag.endswith(("}TiffData", "}BinData", "}MetadataOnly")):
            pixels.remove(child)
    place = sum(1 for child in pixels if child.tag.endswith("}Channel"))
    pixels.insert(place, ElementTree.Element(f"{{{name}}}TiffData", {"IFD": "0", "PlaneCount": str(planes)}))
    return '<?xml version="1.0" encoding="UTF-8"?>' + ElementTree.tostring(root, encoding="unicode")
