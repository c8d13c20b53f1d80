"""Arrays as images: any number of channels, real or complex, from one file or a folder of files.

A single file is a stack of images: (n, C, H, W), or (n, H, W) of gray ones; (H, W) is a stack of one. In a folder each
file is one image: (C, H, W), or (H, W) if gray.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from firm._util.files import write_atomically
from firm._util.progress import progress_bar
from firm.data.array_file import ArrayError, array_files, open_array
from firm.data.array_values import Layout, Range, check_range, look, to_values, warn_if_large
from firm.data.cache import Blocks, cache_key, collect, fingerprint, map_npy
from firm.data.images import Images
from firm.data.picture import MAX_MEGAPIXELS


@dataclass(frozen=True)
class ArrayOptions:
    """How arrays are read; see `firm.data.load_images`."""

    size: int | None = None
    channels: int | None = None
    limit: int = 0
    key: str | None = None
    value_range: Range | None = None
    cache: Path | None = None
    mapped: bool = False
    broken: Literal["refuse", "skip"] = "refuse"
    progress: bool = True
    max_megapixels: float = MAX_MEGAPIXELS  # of one image

    @property
    def max_bytes(self) -> float:
        """Of a file with one image: three channels of complex128."""
        return 48e6 * self.max_megapixels


def load_arrays(root: str | Path, options: ArrayOptions | None = None) -> Images:
    """Read a stack from a file, or the images from the files of a folder.

    If mapped, nothing is kept in memory: a .npy stack of uint8 or float32 is mapped as it is, all else is converted
    once to such a file in the cache. Otherwise the cache is not used.
    """
    root, options = Path(root), options or ArrayOptions()
    check_range(options.value_range)
    if root.is_dir():
        return _load_folder(root, array_files(root)[: options.limit or None], options)
    return _load_stack(root, options)


def read_array_image(
    path: str | Path,
    *,
    channels: int | None = None,
    key: str | None = None,
    value_range: Range | None = None,
    max_megapixels: float = MAX_MEGAPIXELS,
) -> Images:
    """One image from a file, (C, H, W) or (H, W), whole: a set of one, (1, C, H, W)."""
    path = Path(path)
    check_range(value_range)
    values, largest, layout = _read_one(
        path, ArrayOptions(key=key, value_range=value_range, max_megapixels=max_megapixels)
    )
    layout.require(path, channels)
    warn_if_large(path, largest)
    return Images(torch.from_numpy(values), [path.name], layout.complex)


def _load_stack(path: Path, o: ArrayOptions) -> Images:
    with open_array(path, o.key, mapped=o.mapped) as array:
        layout = _look(path, array, o, stack=True)
        layout.require(path, o.channels)
        n = min(o.limit or layout.n, layout.n)
        names = [f"{path.name}[{i}]" for i in range(n)]

        def blocks() -> Iterator[tuple[range, NDArray[Any]]]:
            largest = 0.0
            with progress_bar(total=n, desc=f"reading {path.name}", unit="img", shown=o.progress) as bar:
                for start in range(0, n, layout.per_block):
                    stop = min(start + layout.per_block, n)
                    values, peak = to_values(path, layout.read(array, start, stop), o.value_range, start)
                    largest = max(largest, peak)
                    bar.update(stop - start)
                    yield range(start, stop), values
            warn_if_large(path, largest)

        about = _about([path], layout, o) | {"n": n}
        plain = path.suffix.lower() == ".npy" and array.dtype in (np.uint8, np.float32) and array.dtype.isnative
        if o.mapped and plain and o.value_range is None:
            if layout.dtype == "float32":
                _check_once(blocks(), about, o.cache)
            whole = torch.from_numpy(map_npy(path))[(..., *layout.window)]
            data = whole[None, None] if whole.ndim == 2 else whole[:, None] if whole.ndim == 3 else whole
            return Images(data[:n], names)
        pixels, _ = collect(blocks, n, layout.shape, layout.dtype, cache=_cache(path, o), about=about)
    return Images(torch.from_numpy(pixels), names, layout.complex)


def _load_folder(root: Path, files: list[Path], o: ArrayOptions) -> Images:
    expected = _first_layout(root, files, o)
    expected.require(root, o.channels)

    def blocks() -> Iterator[tuple[list[int], NDArray[Any]]]:
        largest, readable = 0.0, 0
        bar = progress_bar(files, desc=f"reading {root.name}", unit="img", shown=o.progress)
        for i, path in enumerate(bar):
            try:
                values, peak, _ = _read_one(path, o, expected)
            except ArrayError as error:
                if o.broken == "refuse":
                    raise
                bar.write(f"skipped {error}")
                continue
            largest, readable = max(largest, peak), readable + 1
            yield [i], values
        if not readable:
            raise ArrayError(f"{root}: none of the {len(files)} files could be read")
        warn_if_large(root, largest)

    about = _about(files, expected, o) | {"broken": o.broken}
    pixels, kept = collect(blocks, len(files), expected.shape, expected.dtype, cache=_cache(root, o), about=about)
    names = [files[i].relative_to(root).as_posix() for i in kept]
    return Images(torch.from_numpy(pixels), names, expected.complex)


def _read_one(path: Path, o: ArrayOptions, expected: Layout | None = None) -> tuple[NDArray[Any], float, Layout]:
    """A file that is one image: its values (1, C, H, W), their largest magnitude, and what was found."""
    with open_array(path, o.key, max_bytes=o.max_bytes) as array:
        layout = _look(path, array, o)
        if expected is not None and str(layout) != str(expected):
            raise ArrayError(f"{path}: {layout}, but the folder's first file has {expected}")
        return *to_values(path, layout.read(array, 0, 1), o.value_range), layout


def _look(path: Path, array: Any, o: ArrayOptions, stack: bool = False) -> Layout:
    return look(path, array, stack=stack, size=o.size, value_range=o.value_range, max_megapixels=o.max_megapixels)


def _first_layout(root: Path, files: list[Path], o: ArrayOptions) -> Layout:
    """Of the first file that can be read: all others must be like it."""
    for path in files:
        try:
            with open_array(path, o.key, max_bytes=o.max_bytes) as array:
                return _look(path, array, o)
        except ArrayError:
            if o.broken == "refuse":
                raise
    raise ArrayError(f"{root}: none of the {len(files)} files could be read")


def _about(files: list[Path], layout: Layout, o: ArrayOptions) -> dict[str, Any]:
    """All that decides what a converted file holds."""
    return {
        "arrays": [[str(path.resolve()), *fingerprint(path)] for path in files], "key": o.key,
        "value_range": None if o.value_range is None else list(o.value_range),
        "shape": list(layout.shape), "dtype": layout.dtype, "complex": layout.complex,
    }  # fmt: skip


def _cache(root: Path, o: ArrayOptions) -> Path | None:
    if o.mapped and o.cache is None:
        raise ValueError(f"{root}: must be converted before it can be mapped into memory: give a folder, cache=DIR")
    return o.cache if o.mapped else None


def _check_once(blocks: Blocks, about: dict[str, Any], cache: Path | None) -> None:
    """Read a stack that is mapped as it is once for its NaNs; the cache, if there is one, remembers that it was."""
    mark = None if cache is None else cache / f"{cache_key(about)}.checked.json"
    if mark is not None and mark.is_file():
        return
    for _ in blocks:
        pass
    if mark is not None:
        write_atomically(mark, json.dumps(about))
