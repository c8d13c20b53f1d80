"""Slices of volumes as a training set: DICOM series, NIfTI, TIFF stacks and OME-Zarr images, as scanners leave them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from firm._util.checks import require
from firm._util.terminal import progress_bar
from firm.data.array_file import ArrayError
from firm.data.arrays import ArrayOptions, ChannelsError
from firm.data.cache import Blocks, collect, fingerprint
from firm.data.images import Images
from firm.data.picture import Range
from firm.data.volumes import Volume, VolumeError, is_volume, open_volume

LOOKED_AT, ENDS = 12, (0.001, 0.999)  # slices of a volume, and quantiles, that give its range of values


def load_volumes(root: Path, o: ArrayOptions) -> Images:
    """Load all slices of a volume, or of the volumes below a folder, as images of one channel.

    Their middle is cut out. The values that stand for -1 and 1 are ``o.value_range``, the same for all volumes, or
    robust ends of each volume by itself. With two channels the images are complex, as MRI has them: magnitudes from 0
    to 1, and imaginary parts of 0.
    """
    channels = 1 if o.channels is None else o.channels
    if channels > 2:
        raise ChannelsError(f"{root}: slices of volumes have one channel, or two as complex images", 1)
    require(o.key is None, f"{root}: key is for files that hold several arrays; these are volumes")
    files = list(volumes_below(root))
    require(files, f"{root}: no volumes (.nii, .nii.gz, .ome.tif, .ome.zarr, DICOM series)", ArrayError)
    volumes: list[Volume] = []
    for path in files:
        try:
            volumes.append(open_volume(path))
        except VolumeError as error:
            require(o.broken == "skip", str(error), ArrayError)
    slices = [(v, i) for v in volumes for i in range(v.count)][: o.limit or None]
    sizes = {v.size for v, _ in slices}
    H, W = (o.size, o.size) if o.size is not None else next(iter(sizes), (0, 0))
    one = f"{root}: slices of {' and '.join(f'{w}x{h}' for h, w in sorted(sizes))}: give one size that all have"
    require(slices and (o.size is not None or len(sizes) == 1), one, ArrayError)
    require(all(h >= H and w >= W for h, w in sizes), f"{one}; {W}x{H} is larger", ArrayError)

    def blocks() -> Blocks:
        ends: Range = (0.0, 1.0)
        of: Volume | None = None
        for n, (volume, i) in enumerate(
            progress_bar(slices, desc=f"reading {root.name}", unit="img", shown=o.progress)
        ):
            if volume is not of:
                of, ends = volume, o.value_range or _ends(volume, [j for v, j in slices if v is volume])
            yield [n], _image(volume.read(i), (H, W), ends, channels)

    about = {
        "volumes": [[str(f.resolve()), *fingerprint(f)] for path in files for f in _files(path)],
        "shape": [channels, H, W], "n": len(slices), "broken": o.broken,
        "range": None if o.value_range is None else list(o.value_range),
    }  # fmt: skip
    require(not o.mapped or o.cache is not None, f"{root}: volumes are mapped from converted ones: give cache=DIR")
    cache = o.cache if o.mapped else None
    pixels, _ = collect(blocks, len(slices), (channels, H, W), "float32", cache=cache, about=about)
    names = [
        f"{volume.path.name if volume.path == root else volume.path.relative_to(root)}[{i}]" for volume, i in slices
    ]
    return Images(torch.from_numpy(pixels), names, channels == 2)


def volumes_below(root: Path) -> Iterator[Path]:
    """Yield the volumes at and below a path, in the order of their names; a folder with a DICOM series is one."""
    if is_volume(root):
        yield root
    elif root.is_dir():
        for path in sorted(root.iterdir()):
            if path.is_dir() or is_volume(path):
                yield from volumes_below(path)


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())


def _ends(volume: Volume, numbers: list[int]) -> Range:
    """Find the values of a volume that become -1 and 1: single hot pixels do not decide."""
    picked = np.unique(np.linspace(0, len(numbers) - 1, min(LOOKED_AT, len(numbers))).round().astype(int))
    values = np.concatenate([volume.read(numbers[j])[::2, ::2].ravel() for j in picked])
    low, high = (float(end) for end in np.quantile(values.astype(np.float64), ENDS))
    require(low < high, f"{volume.path}: all values are {low:g}: nothing was recorded", ArrayError)
    return low, high


def _image(values: NDArray[Any], size: tuple[int, int], ends: Range, channels: int) -> NDArray[Any]:
    """Cut the middle out of a slice and bring it to [-1, 1], or to complex magnitudes up to 1: (1, C, H, W)."""
    top, left = ((n - m) // 2 for n, m in zip(values.shape, size, strict=True))
    cut = values[top : top + size[0], left : left + size[1]].astype(np.float64)
    low, high = ends
    if channels == 2:
        magnitude = ((cut - low) / (high - low)).clip(0)
        return np.stack([magnitude, np.zeros_like(magnitude)])[None].astype(np.float32)
    return (2 * (cut - low) / (high - low) - 1).astype(np.float32)[None, None]
