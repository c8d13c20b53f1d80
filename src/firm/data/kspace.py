"""Raw k-space of a scanner, image by image: ISMRMRD and fastMRI-style .h5 files, BART's .cfl with .hdr.

Nothing but headers is read before an image is asked for. A file that is damaged, cut short or inconsistent raises
`ArrayError`, one sentence.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firm._util.checks import require
from firm.data.array_file import ArrayError, hdf5_names, open_array, open_hdf5
from firm.data.opening import require_contents

KSPACE_EXTENSIONS = (".h5", ".hdf5", ".cfl", ".hdr")
MOST_COILS, MOST_SAMPLES = 256, 2**24  # of one image: 2 GB at 16 coils
BART_DIMENSIONS = 16
HEADER = 10_000  # bytes of a .hdr that are read


@dataclass
class KSpace(ABC):
    """K-space of a number of images, each (C, H, W): H along the readout, zero frequency in the middle."""

    path: Path
    kind: str  # of file, in words
    count: int
    coils: int
    shape: tuple[int, int]
    image_shape: tuple[int, int]  # what the scanner keeps of (H, W): it measures more along the readout
    sampled: NDArray[Any] | None = None  # (W,), the lines that a mask in the file says were measured
    notes: list[str] = field(default_factory=list)

    @abstractmethod
    def read(self, i: int) -> Tensor:
        """Read the samples of image `i`, complex64 (C, H, W); 0 where nothing was measured."""

    def maps(self, i: int) -> Tensor | None:
        """Read the coils' maps of image `i` (C, H, W), where the file holds them."""
        return None

    def noise(self) -> Tensor | None:
        """Read a scan of noise alone, (C, N), where the file holds one."""
        return None


def open_kspace(path: str | Path) -> KSpace:
    """Open a file of raw k-space by its ending and contents.

    Parameters
    ----------
    path
        An .h5 file with the data set ``kspace``, (images, coils, H, W) or of a single coil (images, H, W); an ISMRMRD
        file; or BART's .cfl or .hdr, with the other one beside it.
    """
    path = Path(path)
    known = path.suffix.lower() in KSPACE_EXTENSIONS
    require(known, f"{path}: not a file of raw k-space ({', '.join(KSPACE_EXTENSIONS)})", ArrayError)
    require_contents(path, ArrayError)
    if path.suffix.lower() in (".cfl", ".hdr"):
        return _open_bart(path)
    with open_hdf5(path) as file:
        names = hdf5_names(path, file)
    if "kspace" in names:
        return _open_fastmri(path, names)
    group = next((name.removesuffix("data") for name in sorted(names) if re.fullmatch(r"([^/]+/)?data", name)), None)
    known = group is not None and f"{group}xml" in names
    held = f"{path}: holds neither a data set kspace, (images, coils, H, W), nor an ISMRMRD group of data and xml"
    require(known, held, ArrayError)
    from firm.data.ismrmrd import open_ismrmrd

    return open_ismrmrd(path, f"{group}data", f"{group}xml")


def require_matrix(path: Path, coils: int, shape: tuple[int, ...]) -> None:
    """Refuse coils and matrices that no scanner has: nothing is made from what a damaged header says."""
    fits = 1 <= coils <= MOST_COILS and min(shape) >= 2 and math.prod(shape) <= MOST_SAMPLES
    what = f"{path}: {coils:,} coils and a matrix of {'x'.join(f'{n:,}' for n in shape)}"
    require(fits, f"{what}: at least 2x2, and at most {MOST_COILS} coils and 4096x4096 are read", ArrayError)


def cut_middle(values: NDArray[Any], shape: tuple[int, int]) -> NDArray[Any]:
    """Cut the middle (h, w) out of images (..., H, W), whose middle pixels are H // 2 and W // 2."""
    top, left = (n // 2 - m // 2 for n, m in zip(values.shape[-2:], shape, strict=True))
    return values[..., top : top + shape[0], left : left + shape[1]]


# fastMRI-style HDF5


@dataclass
class _FastMRI(KSpace):
    single: bool = False
    has_maps: bool = False

    def read(self, i: int) -> Tensor:
        with open_array(self.path, "kspace") as array:
            values = np.asarray(array[i], dtype=np.complex64)
        return _finite(self, torch.from_numpy(values[None] if self.single else values))

    def maps(self, i: int) -> Tensor | None:
        if not self.has_maps:
            return None
        with open_array(self.path, "maps") as array:
            values = np.asarray(array[i] if len(array.shape) == 4 else array[:], dtype=np.complex64)
        return _finite(self, torch.from_numpy(values))


def _open_fastmri(path: Path, names: Collection[str]) -> KSpace:
    with open_array(path, "kspace") as array:
        size, kind = tuple(array.shape), array.dtype.kind
    fits = len(size) in (3, 4) and kind == "c"
    layout = "complex, (images, coils, H, W), or of a single coil, (images, H, W)"
    require(fits, f"{path}: kspace must be {layout}; it is {size} of kind {kind!r}", ArrayError)
    coils, shape = size[1] if len(size) == 4 else 1, (size[-2], size[-1])
    require_matrix(path, coils, shape)
    sampled = None
    if "mask" in names:
        with open_array(path, "mask") as array:
            require(math.prod(array.shape) == shape[1], f"{path}: the mask has {array.shape}, not {shape[1]} lines",
                    ArrayError)  # fmt: skip
            sampled = np.asarray(array[...]).reshape(-1) != 0
        require(sampled.any(), f"{path}: its mask says that nothing was measured", ArrayError)
    image = shape
    if "ismrmrd_header" in names:
        from firm.data.ismrmrd import read_header

        image = read_header(path, "ismrmrd_header").kept(shape)
    if "maps" in names:
        with open_array(path, "maps") as array:
            found = tuple(array.shape)
        same = found in ((coils, *shape), (size[0], coils, *shape))
        require(same, f"{path}: maps of {found} do not fit k-space of {size}", ArrayError)
    return _FastMRI(path, "fastMRI-style HDF5", size[0], coils, shape, image, sampled, [], len(size) == 3,
                    "maps" in names)  # fmt: skip


# BART


@dataclass
class _Bart(KSpace):
    dimensions: tuple[int, ...] = ()

    def read(self, i: int) -> Tensor:
        values = np.memmap(self.path, np.complex64, "r", shape=self.dimensions, order="F")
        one = values.reshape(*self.shape, self.coils, self.count, order="F")[..., i]
        return _finite(self, torch.from_numpy(np.ascontiguousarray(np.moveaxis(one, 2, 0))))


def _open_bart(path: Path) -> KSpace:
    header, values = path.with_suffix(".hdr"), path.with_suffix(".cfl")
    for part in (header, values):
        require_contents(part, ArrayError)
    with open(header, "rb") as file:
        text = file.read(HEADER).decode("ascii", errors="replace")
    found = re.search(r"^# Dimensions[^\n]*\n([0-9 ]{1,400})$", text, re.MULTILINE)
    require(found, f"{header}: no line of dimensions: not a header of BART, or damaged", ArrayError)
    assert found is not None
    numbers = [int(word[:12]) for word in found[1].split()]
    dimensions = tuple((numbers + [1] * BART_DIMENSIONS)[: max(BART_DIMENSIONS, len(numbers))])
    shown = " x ".join(map(str, numbers[:BART_DIMENSIONS]))
    held, wanted = values.stat().st_size, 8 * math.prod(dimensions)
    require(
        wanted == held and wanted > 0,
        f"{values}: holds {held:,} bytes, where its header's {shown} complex numbers have {wanted:,}: damaged or cut "
        "short",
        ArrayError,
    )
    sides = [n for n in dimensions[:3] if n > 1]
    require(len(sides) == 2, f"{values}: {shown} is not two-dimensional k-space: transform along one axis first",
            ArrayError)  # fmt: skip
    require(dimensions[4] == 1, f"{values}: {dimensions[4]} sets of maps, not k-space", ArrayError)
    require_matrix(values, dimensions[3], tuple(sides))
    count, shape = math.prod(dimensions[5:]), (sides[0], sides[1])
    return _Bart(values, "BART", count, dimensions[3], shape, shape, None, [], dimensions)


def _finite(source: KSpace, values: Tensor) -> Tensor:
    """Return the samples, or what the file holds is no measurement."""
    require(values.isfinite().all(), f"{source.path}: holds NaN or infinite samples", ArrayError)
    return values


def bart_header(dimensions: tuple[int, ...]) -> str:
    """Return the text of a .hdr file."""
    sizes = " ".join(str(n) for n in (*dimensions, *[1] * (BART_DIMENSIONS - len(dimensions))))
    return f"# Dimensions\n{sizes}\n"
