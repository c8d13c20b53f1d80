"""Sets that are read as they are trained on: pictures or arrays in tar files, as webdataset has them, or a zarr array.

A tar file is not unpacked. Its headers say once where each image lies; what a batch needs is read there, file by file
in the order of their places.
"""

from __future__ import annotations

import os
import tarfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from firm._util.checks import require
from firm._util.terminal import progress_bar
from firm.data.array_file import ArrayError, array_in
from firm.data.arrays import ArrayOptions, Layout, look, read_one, to_values
from firm.data.images import Images
from firm.data.opening import RAW
from firm.data.picture import decode
from firm.data.sets import EXTENSIONS, files_below
from firm.data.store import zarr_array
from firm.data.stored import Stored

PICTURES = EXTENSIONS - RAW
ARRAYS = {".npy"}


def load_shards(root: Path, options: ArrayOptions) -> Images:
    """Find the images in a tar file, a folder of them, or a zarr array; they are read when they are asked for.

    Parameters
    ----------
    root
        A ``.tar``, a folder with some in it or below, or a ``.zarr`` array (n, C, H, W) or (n, H, W).
    options
        How to read them, and how many. `key` is the ending of the files in the tar that are the images, such as "npy",
        where it has pictures and arrays; of a zarr group, the name of the array.
    """
    if root.suffix.lower() == ".zarr":
        return _load_zarr(root, options)
    tars = [root] if root.is_file() else files_below(root, {".tar"}, "tar files")
    found: list[_Member] = []
    for tar in progress_bar(tars, desc="finding images", unit="shard", shown=options.progress):
        found += _members(tar, options.key)
        if 0 < options.limit <= len(found):
            break
    found = found[: options.limit or None]
    require(found, f"{root}: no pictures and no .npy arrays in its tar files", ArrayError)
    endings = {member.ending for member in found}
    mixed = f"{root}: pictures and arrays in its tar files: choose by their ending, such as key=npy"
    require(not endings & ARRAYS or endings <= ARRAYS, mixed, ArrayError)
    reader = _Tars(tars, found, options)
    sample = reader([0])
    top, number = root.parent if root.is_file() else root, {tar: i for i, tar in enumerate(tars)}
    names = [f"{member.tar.relative_to(top).as_posix()}/{member.name}" for member in found]
    shards = torch.tensor([number[member.tar] for member in found])
    sizes = [member.size for member in found]
    C, H, W = sample.shape[1:]
    return Images(Stored((C, H, W), sample.dtype, reader, shards, sizes), names, reader.complex)


@dataclass(frozen=True, slots=True)
class _Member:
    """A file in a tar: where it lies."""

    tar: Path
    name: str
    start: int
    size: int

    @property
    def ending(self) -> str:
        return os.path.splitext(self.name)[1].lower()


def _members(tar: Path, key: str | None) -> list[_Member]:
    """List the pictures and arrays of a tar in their order; all else, such as labels, is left out."""
    wanted = PICTURES | ARRAYS if key is None else {"." + key.lower().lstrip(".")}
    known = f"{tar}: the key of tar files is the ending of the images in it, of pictures or npy, not {key!r}"
    require(wanted <= PICTURES | ARRAYS, known, ArrayError)
    found, held = [], tar.stat().st_size
    try:
        with tarfile.open(tar, "r:") as archive:
            for info in archive:
                member = _Member(tar, info.name, info.offset_data, info.size)
                hidden = os.path.basename(info.name).startswith(".")
                if info.isreg() and not info.issparse() and not hidden and member.ending in wanted:
                    require(member.start + member.size <= held, f"{tar}: cut short", ArrayError)
                    found.append(member)
    except (tarfile.TarError, OSError) as error:
        raise ArrayError(f"{tar}: no tar file that can be read as it is ({error}); compressed ones cannot") from error
    return found


class _Tars:
    """Reads members of tar files: their bytes file by file and in order, decoded by a few threads."""

    def __init__(self, tars: list[Path], members: list[_Member], options: ArrayOptions) -> None:
        self.members, self.options = members, options
        self.arrays = members[0].ending in ARRAYS
        require(self.arrays or options.size, f"{tars[0]}: pictures are resized to one size: give it")
        ranged = f"{tars[0]}: value_range is for arrays, and these are pictures"
        require(self.arrays or options.value_range is None, ranged)
        self.expected: Layout | None = None
        if self.arrays:
            first = members[0]
            self.expected = read_one(self._name(first), array_in(self._name(first), _contents([first])[0]), options)[0]
            self.expected.require_channels(tars[0], options.channels)
        self.complex = self.expected is not None and self.expected.complex
        self.pool = ThreadPoolExecutor(min(8, os.cpu_count() or 1), "firm-shards")

    def __call__(self, numbers: list[int]) -> Tensor:
        """Read the images of these numbers, (B, C, H, W), bytes or floats."""
        members = [self.members[i] for i in numbers]
        return torch.stack(list(self.pool.map(self._decoded, members, _contents(members))))

    def _decoded(self, member: _Member, data: bytes) -> Tensor:
        o, name = self.options, self._name(member)
        if self.arrays:
            return torch.from_numpy(read_one(name, array_in(name, data), o, self.expected)[1])[0]
        return decode(name, o.size, None, o.channels or 3, o.max_megapixels, torch.uint8, rounded=False, data=data)

    def _name(self, member: _Member) -> Path:
        return member.tar / member.name


def _contents(members: list[_Member]) -> list[bytes]:
    """Read the bytes of members: every tar is opened once, and read from its start to its end."""
    found = [b""] * len(members)
    places = sorted(range(len(members)), key=lambda i: (members[i].tar, members[i].start))
    for tar, group in groupby(places, key=lambda i: members[i].tar):
        with open(tar, "rb") as file:
            for i in group:
                file.seek(members[i].start)
                found[i] = file.read(members[i].size)
    return found


def _load_zarr(root: Path, o: ArrayOptions) -> Images:
    """Find the images of a zarr array; its shards, or else its chunks, are what it has of each along the first axis."""
    array = zarr_array(str(root), o.key)
    layout = look(root, array, o, stack=True)
    layout.require_channels(root, o.channels)
    require(array.ndim > 2, f"{root}: an array {array.shape}; expected (n, C, H, W) or (n, H, W)", ArrayError)
    n, together = min(o.limit or layout.n, layout.n), (array.shards or array.chunks)[0]

    def read(numbers: list[int]) -> Tensor:
        inner = [slice(None)] * (array.ndim - 3)
        order = np.unique(numbers, return_inverse=True)
        values = array.oindex[(order[0], *inner, *layout.window)][order[1]]
        return torch.from_numpy(to_values(root, values.reshape(len(numbers), -1, *layout.shape[1:]), o.value_range)[0])

    about = [list(array.shape), str(array.dtype), array.attrs.asdict()]
    stored = Stored(layout.shape, getattr(torch, layout.dtype), read, torch.arange(n) // together, about)
    return Images(stored, [f"{root.name}[{i}]" for i in range(n)], layout.complex)
