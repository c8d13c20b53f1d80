"""ISMRMRD files: acquisitions of single lines, each with a header, and an XML header for all of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firm._util.checks import require
from firm.data.array_file import ArrayError, damaged, hdf5_dataset, open_hdf5
from firm.data.kspace import KSpace, require_matrix

ACQUISITIONS = 2**20  # whose headers are read at once, 340 bytes each
XML = 10_000_000  # bytes
NOISE, CALIBRATION, REVERSED = 1 << 18, 1 << 19, 1 << 21  # flags: bit n - 1 for the flag that the format numbers n
OTHER = sum(1 << (n - 1) for n in (23, 24, 26, 27, 28, 29, 30, 31))  # navigators, phase correction, dummies, feedback
COUNTERS = ("slice", "contrast", "phase", "repetition", "set")  # that tell images apart


@dataclass(frozen=True)
class Header:
    """What the XML header says of the first encoding."""

    encoded: tuple[int, int, int]  # samples along the readout, lines, partitions
    image: tuple[int, int]  # of the reconstruction, along the readout and the lines
    center: int  # the line of zero frequency
    trajectory: str
    calibration: str  # "embedded", "separate" and so on; "" without parallel imaging

    def kept(self, shape: tuple[int, int]) -> tuple[int, int]:
        """Return what of an image of this shape the scanner keeps; more than there is would be interpolated."""
        return min(self.image[0], shape[0]), min(self.image[1], shape[1])


def read_header(path: Path, name: str) -> Header:
    """Read the XML header that is the text of a data set."""
    with open_hdf5(path) as file, damaged(path):
        value = hdf5_dataset(path, file, name)[...]
        text = value.reshape(-1)[0] if value.size else b""
    text = text if isinstance(text, bytes) else str(text).encode()
    plain = len(text) <= XML and b"<!" not in re.sub(rb"<!--.*?-->", b"", text[:XML], flags=re.DOTALL)
    require(plain, f"{path}: its XML header is too long, or declares entities", ArrayError)
    with damaged(path):
        root = ElementTree.fromstring(text)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]  # without the namespace

    def number(place: str, otherwise: int | None = None) -> int:
        found = (root.findtext(place) or "").strip()
        require(found.isdecimal() or otherwise is not None, f"{path}: its XML header has no {place}", ArrayError)
        return int(found[:9]) if found.isdecimal() else otherwise or 0

    encoded = [number(f"encoding/encodedSpace/matrixSize/{axis}", None if axis != "z" else 1) for axis in "xyz"]
    image = [number(f"encoding/reconSpace/matrixSize/{axis}", n) for axis, n in zip("xy", encoded, strict=False)]
    return Header(
        (encoded[0], encoded[1], encoded[2]), (image[0], image[1]),
        number("encoding/encodingLimits/kspace_encoding_step_1/center", encoded[1] // 2),
        (root.findtext("encoding/trajectory") or "cartesian").strip().lower(),
        (root.findtext("encoding/parallelImaging/calibrationMode") or "").strip().lower(),
    )  # fmt: skip


@dataclass
class Ismrmrd(KSpace):
    """An ISMRMRD file of Cartesian two-dimensional images."""

    data: str = ""
    center: int = 0
    images: list[NDArray[Any]] = field(default_factory=list)  # the acquisitions of every image
    noise_lines: NDArray[Any] = field(default_factory=lambda: np.empty(0, int))

    def read(self, i: int) -> Tensor:
        """Put the lines of image `i` in their places; of lines that were measured several times the mean."""
        total = np.zeros((self.coils, *self.shape), np.complex64)
        times = np.zeros(self.shape, np.int64)
        H, W = self.shape
        for head, line in self._lines(self.images[i]):
            column = int(head["idx"]["kspace_encode_step_1"]) - self.center + W // 2
            first, last = int(head["discard_pre"]), line.shape[1] - int(head["discard_post"])
            top = H // 2 - int(head["center_sample"])
            fits = 0 <= column < W and 0 <= top + first < top + last <= H
            place = f"line {int(head['idx']['kspace_encode_step_1'])} of {line.shape[1]} samples"
            require(fits, f"{self.path}: {place} lies outside its matrix of {H}x{W}", ArrayError)
            total[:, top + first : top + last, column] += line[:, first:last]
            times[top + first : top + last, column] += 1
        values = torch.from_numpy(total / np.maximum(times, 1).astype(np.float32))
        require(values.isfinite().all(), f"{self.path}: holds NaN or infinite samples", ArrayError)
        return values

    def noise(self) -> Tensor | None:
        """Read all lines that are marked as noise."""
        lines = [line for _, line in self._lines(self.noise_lines)]
        return torch.from_numpy(np.concatenate(lines, axis=1)) if lines else None

    def _lines(self, numbers: NDArray[Any]) -> list[tuple[Any, NDArray[Any]]]:
        found: list[tuple[Any, NDArray[Any]]] = []
        with open_hdf5(self.path) as file, damaged(self.path):
            data = hdf5_dataset(self.path, file, self.data)
            for n in numbers:
                one = data[int(n)]
                samples, wanted = int(one["head"]["number_of_samples"]), 2 * self.coils
                values = np.asarray(one["data"], np.float32)
                cut = f"{self.path}: line {int(n)} holds {values.size} numbers, not 2 x {self.coils} coils x {samples}"
                require(samples and values.size == wanted * samples, cut, ArrayError)
                found.append((one["head"], values.view(np.complex64).reshape(self.coils, samples)))
        return found


def open_ismrmrd(path: Path, data: str, xml: str) -> KSpace:
    """Open a file by its headers; `data` and `xml` are the names of its data sets."""
    header = read_header(path, xml)
    supported = header.trajectory == "cartesian"
    other = f"{path}: a {header.trajectory[:40]} trajectory: firm.operators.NonUniformFourier takes it in Python"
    require(supported, other, ArrayError)
    with open_hdf5(path) as file:
        found = hdf5_dataset(path, file, data)
        known = found.dtype.names and {"head", "data"} <= set(found.dtype.names) and len(found.shape) == 1
        require(known, f"{path}: {data} holds no acquisitions of ISMRMRD", ArrayError)
        many = f"{path}: {found.shape[0]:,} acquisitions, where 1 to {ACQUISITIONS:,} are read"
        require(1 <= found.shape[0] <= ACQUISITIONS, many, ArrayError)
        with damaged(path):
            heads = found.fields("head")[:]
            flags, counters = heads["flags"], heads["idx"]
            keys = np.stack([counters[name] for name in COUNTERS], axis=1)
    left_out = NOISE | OTHER | (CALIBRATION if header.calibration in ("separate", "external") else 0)
    imaging = np.flatnonzero((flags & np.uint64(left_out) == 0) & (heads["encoding_space_ref"] == 0))
    require(len(imaging), f"{path}: none of its {len(heads)} acquisitions is of an image", ArrayError)
    flat = header.encoded[2] <= 1 and not counters["kspace_encode_step_2"][imaging].any()
    require(flat, f"{path}: three-dimensional k-space: transform along the partitions first", ArrayError)
    turned = bool((flags[imaging] & np.uint64(REVERSED)).any())
    require(not turned, f"{path}: lines read backwards (echo-planar imaging) need corrections first", ArrayError)
    coils = np.unique(heads["active_channels"][imaging])
    mixed = f"{path}: acquisitions of {', '.join(map(str, coils[:5]))} coils in one measurement"
    require(len(coils) == 1, mixed, ArrayError)
    shape = header.encoded[:2]
    require_matrix(path, int(coils[0]), shape)
    _, image = np.unique(keys[imaging], axis=0, return_inverse=True)
    images = [imaging[image.reshape(-1) == i] for i in range(int(image.max()) + 1)]
    noise = np.flatnonzero((flags & np.uint64(NOISE)) != 0)
    noise = noise[heads["active_channels"][noise] == coils[0]]
    return Ismrmrd(path, "ISMRMRD", len(images), int(coils[0]), shape, header.kept(shape), None, [],
                   data, header.center, images, noise)  # fmt: skip
