"""DICOM series: sorted by position, in units such as HU; results are a new series of derived images."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from firm._util.checks import require
from firm._util.extras import extra
from firm._util.files import replacing, replacing_folder
from firm.data.volumes import Values, Volume, VolumeError, VolumeWriter, damaged, to_stored

USE = "Reading DICOM"
APART = 0.02  # by how much of itself the distance of slices may differ from place to place
FINE = 64  # steps of a unit in which standard deviations are stored


class DicomSeries(Volume):
    """One series of plain (not multi-frame) DICOM images, one a file, of one size and direction.

    Values are ``stored * slope + intercept`` of each image. Slices are sorted along their normal; where they have no
    position, by their number.
    """

    what = "DICOM series"

    def __init__(self, path: Path, files: Sequence[Path]) -> None:
        pydicom = extra("pydicom", USE, "medical")
        self.path = path
        heads = []
        for file in files:
            with damaged(file):
                heads.append((file, pydicom.dcmread(file, stop_before_pixels=True)))
        heads = [(file, head) for file, head in heads if "Rows" in head] or heads  # without a DICOMDIR, a report
        _one_series(path, [head for _, head in heads])
        places = _places(path, heads)
        order = np.argsort(places, kind="stable")
        self.files = [heads[i][0] for i in order]
        first = heads[order[0]][1]
        self.count, self.size = len(self.files), (int(first.Rows), int(first.Columns))
        bits, signed = int(first.BitsAllocated), int(first.PixelRepresentation)
        known = f"{path}: {bits} bits a value; 8, 16 and 32 are read"
        require(bits in (8, 16, 32), known, VolumeError)
        self.dtype = np.dtype(f"{'i' if signed else 'u'}{bits // 8}")
        own = "HU" if first.get("Modality") == "CT" else first.get("Units", "")  # the latter of PET, such as BQML
        self.unit = str(first.get("RescaleType", "") or own)
        self.unit = "" if self.unit == "US" else self.unit  # unspecified
        self.slope, self.intercept = _rescale(first)
        apart = _spacing(path, np.sort(np.array(places)), first)
        pixel = first.get("PixelSpacing")
        if pixel is not None and apart is not None:
            self.spacing = apart, float(pixel[0]), float(pixel[1])

    @property
    def ends(self) -> tuple[float, float]:
        """The values that the bits of the first slice can hold, in physical units."""
        about = np.iinfo(self.dtype)
        ends = [self.slope * end + self.intercept for end in (about.min, about.max)]
        return min(ends), max(ends)

    def read(self, i: int) -> Values:
        """Read slice `i`, (H, W), float32, as its file rescales it."""
        head = self._image(i)
        slope, intercept = _rescale(head)
        with damaged(self.files[i]):
            try:
                stored = head.pixel_array
            except RuntimeError as error:  # compressed in a way that needs another package
                name = head.file_meta.TransferSyntaxUID.name
                needs = "pip install 'firm[medical]' brings pyjpegls; for others pylibjpeg[all]"
                raise VolumeError(f"{self.files[i]}: compressed as {name}: {needs}") from error
        require(stored.shape == self.size, f"{self.files[i]}: {stored.shape} pixels, not {self.size}", VolumeError)
        return (stored * np.float64(slope) + intercept).astype(np.float32)

    @contextmanager
    def writer(self, stem: Path, deviation: bool = False) -> Iterator[VolumeWriter]:
        """Yield what writes a series of derived images: a folder, or of a single file a file."""
        uid = extra("pydicom.uid", USE, "medical")
        series = str(uid.generate_uid())
        if self.path.is_dir():
            with replacing_folder(stem) as folder:
                yield _Writer(self, stem, folder, series, deviation)
        else:
            path = stem.with_name(stem.name + ".dcm")
            with replacing(path) as file:
                yield _Writer(self, path, file, series, deviation)

    def _image(self, i: int) -> Any:
        with damaged(self.files[i]):
            return extra("pydicom", USE, "medical").dcmread(self.files[i])


class _Writer:
    def __init__(self, volume: DicomSeries, path: Path, place: Any, series: str, deviation: bool) -> None:
        self.volume, self.path, self.place, self.series, self.deviation = volume, path, place, series, deviation

    def put(self, i: int, values: Values) -> None:
        """Write slice `i` as a derived image: new identifiers, the original as its source, values like those read."""
        v, uid = self.volume, extra("pydicom.uid", USE, "medical")
        image = v._image(i)
        source = copy.deepcopy(image)
        slope, intercept = _rescale(image)
        bits, signed = int(image.BitsStored), int(image.PixelRepresentation)
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        what = "Restored by FIRM, a learned method; not for diagnosis"
        if self.deviation:
            slope, intercept, what = slope / FINE, 0.0, f"Standard deviation of samples. {what}"
            image.BitsAllocated, image.BitsStored, image.HighBit, image.PixelRepresentation = 16, 16, 15, 0
            low, high, signed = 0, 2**16 - 1, 0
            for name in ("WindowCenter", "WindowWidth", "VOILUTSequence"):
                if name in image:
                    delattr(image, name)
            image.RescaleSlope, image.RescaleIntercept = slope, intercept
        dtype = np.dtype(f"<{'i' if signed else 'u'}{image.BitsAllocated // 8}")
        stored = to_stored((np.asarray(values, np.float64) - intercept) / slope, dtype, (low, high))
        for name in ("SmallestImagePixelValue", "LargestImagePixelValue", "PixelPaddingRangeLimit"):
            if name in image:
                delattr(image, name)
        kinds = list(image.get("ImageType", []))[2:]
        image.ImageType = ["DERIVED", "SECONDARY", *kinds]
        image.DerivationDescription = what
        image.SeriesDescription = f"{image.get('SeriesDescription', '')} FIRM{' std' * self.deviation}".strip()[:64]
        image.SourceImageSequence = [_reference(source)]
        image.SOPInstanceUID, image.SeriesInstanceUID = str(uid.generate_uid()), self.series
        image.file_meta.MediaStorageSOPInstanceUID = image.SOPInstanceUID
        image.file_meta.TransferSyntaxUID = uid.ExplicitVRLittleEndian
        image.PixelData = stored.tobytes() + b"\0" * (stored.nbytes % 2)
        image["PixelData"].VR = "OW" if image.BitsAllocated > 8 else "OB"
        image["PixelData"].is_undefined_length = False
        folder = isinstance(self.place, Path)
        image.save_as(self.place / f"{i + 1:05d}.dcm" if folder else self.place, enforce_file_format=True)


def _reference(source: Any) -> Any:
    made = extra("pydicom.dataset", USE, "medical").Dataset()
    made.ReferencedSOPClassUID, made.ReferencedSOPInstanceUID = source.SOPClassUID, source.SOPInstanceUID
    return made


def _rescale(head: Any) -> tuple[float, float]:
    slope = float(head.get("RescaleSlope", 1) or 1)
    return slope, float(head.get("RescaleIntercept", 0) or 0)


def _one_series(path: Path, heads: Sequence[Any]) -> None:
    """Refuse images that are not one series of gray slices of one size."""
    first = heads[0]
    series = sorted({str(head.get("SeriesInstanceUID")) for head in heads})
    sizes = {(head.get("Rows"), head.get("Columns"), head.get("BitsAllocated")) for head in heads}
    names = ", ".join(sorted({str(head.get("SeriesDescription", "without a name")) for head in heads})[:5])
    for fits, why in (
        (all("Rows" in head for head in heads), "a DICOM file without an image"),
        (len(series) == 1, f"{len(series)} series in one folder ({names}): give each its own"),
        (int(first.get("SamplesPerPixel", 1)) == 1, "color images are not read: one gray value a pixel"),
        (int(first.get("NumberOfFrames", 1) or 1) == 1, "a multi-frame DICOM is not read: convert it to NIfTI, for "
         "example with dcm2niix"),
        (len(sizes) == 1, "its images differ in size or bits: give the folder of one series"),
    ):  # fmt: skip
        require(fits, f"{path}: {why}", VolumeError)


def _places(path: Path, heads: Sequence[tuple[Path, Any]]) -> list[float]:
    """Find where each slice lies along the normal of the first; without positions, its number."""
    first = heads[0][1]
    positions = [head.get("ImagePositionPatient") for _, head in heads]
    directions = [head.get("ImageOrientationPatient") for _, head in heads]
    if any(p is None for p in positions) or any(d is None for d in directions):
        return [float(head.get("InstanceNumber", i) or i) for i, (_, head) in enumerate(heads)]
    turned = max(float(np.abs(np.subtract(d, first.ImageOrientationPatient)).max()) for d in directions)
    require(turned < 1e-3, f"{path}: its slices do not lie in one direction (a localizer?)", VolumeError)
    normal = np.cross(np.array(first.ImageOrientationPatient[:3], float), first.ImageOrientationPatient[3:])
    return [float(np.dot(normal, np.array(position, float))) for position in positions]


def _spacing(path: Path, places: Values, first: Any) -> float | None:
    """Return the distance of slices; where it is not the same everywhere, VolumeError: a slice is missing or twice."""
    if first.get("ImagePositionPatient") is None or len(places) < 2:
        thick = first.get("SpacingBetweenSlices", first.get("SliceThickness"))
        return None if thick is None else float(thick)
    steps = np.diff(places)
    middle = float(np.median(steps))
    even = middle > 0 and float(np.abs(steps - middle).max()) <= APART * middle + 1e-3
    apart = f"{path}: its slices are {steps.min():.4g} to {steps.max():.4g} mm apart: one is missing or there twice"
    require(even, apart, VolumeError)
    return middle
