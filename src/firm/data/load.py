"""The one entry to images: a data set by its name, or a single image, from pictures or arrays."""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from numpy.typing import NDArray
from torch import Tensor

from firm._util.checks import require
from firm._util.terminal import printable, progress_bar
from firm.data.array_file import ARRAY_EXTENSIONS, is_array_file
from firm.data.arrays import ArrayOptions, check_range, load_arrays, read_array_image
from firm.data.cache import Blocks, collect, fingerprint
from firm.data.images import Images
from firm.data.opening import MAX_MEGAPIXELS, PictureError, white_of
from firm.data.picture import Range, decode, read_picture
from firm.data.sets import EXTENSIONS, Split, files_below, named_files
from firm.data.shards import load_shards
from firm.data.volume_sets import load_volumes

ImageSet = Literal["celeba", "afhq", "folder", "arrays", "volumes", "shards"]


def load_images(
    dataset: ImageSet,
    root: str | Path,
    split: Split = "train",
    *,
    size: int | None,
    channels: int | None = None,
    limit: int = 0,
    cache: str | Path | None = None,
    mapped: bool = False,
    value_range: Range | None = None,
    key: str | None = None,
    broken: Literal["refuse", "skip"] = "refuse",
    progress: bool = True,
    max_megapixels: float = MAX_MEGAPIXELS,
) -> Images:
    """Load a data set: images of one shape, as bytes or float32, from pictures or arrays.

    Parameters
    ----------
    dataset, root, split
        "celeba" or "afhq", a folder in that layout, of which the split is taken; "folder", any folder of pictures or
        of array files (not both); "arrays", one array file that holds a stack, or a folder of array files; "volumes",
        slices of DICOM series, NIfTI, TIFF stacks and OME-Zarr images, see `load_volumes`; "shards", tar files of
        pictures or .npy arrays, or a zarr array, which are read when images are asked for.
    size
        Side of the images. Pictures are center-cropped and resized; arrays are center-cropped, or, with None, whole.
    channels
        Pictures: 3 (the default) or 1. Arrays: what they must have, counting complex channels twice; None takes any.
    limit
        Only the first images; 0 takes all.
    cache, mapped
        `cache` is a folder where decoded images are kept for the next time. If `mapped`, the set is not held in
        memory but mapped from a file there.
    value_range, key
        `value_range`: (low, high) that stand for -1 and 1, of arrays (complex: 0 and the magnitude that stands for 1)
        and of pictures of more than 8 bits. `key`: the name of the array in files with several.
    broken
        What to do with files that cannot be read: "refuse" them all, or "skip" and name them.
    max_megapixels
        Larger images cannot be read: their header says so before they are decoded.

    Returns
    -------
    Images
        All of one shape, each with its path below `root`, or its place in the stack, as its name.
    """
    root, known = Path(root), get_args(ImageSet)
    shards = dataset == "shards"
    arrays = dataset in ("arrays", "volumes", "shards") or (dataset == "folder" and _holds_arrays(root))
    for wrong, why in (
        (dataset not in known, f"no data set {dataset!r}; there are {', '.join(known)}"),
        (broken not in ("refuse", "skip"), f'broken must be "refuse" or "skip", got {broken!r}'),
        (limit < 0, f"limit must not be negative, got {limit}"),
        (size is not None and size < 1, f"size must be at least 1, got {size}"),
        (shards and (mapped or broken == "skip"), f"{root}: shards are never mapped, and no image in them is skipped"),
        (not arrays and size is None, f"{root}: pictures are resized to one size: give it"),
        (not arrays and key is not None, f"{root}: key is for arrays; these are pictures"),
        (not arrays and mapped and cache is None, f"{root}: pictures are mapped from decoded ones: give cache=DIR"),
    ):
        if wrong:
            raise ValueError(why)
    check_range(value_range)
    folder = None if cache is None else Path(cache)
    if dataset == "arrays" or dataset == "volumes" or dataset == "shards" or arrays:
        options = ArrayOptions(
            size, channels, limit, key, value_range, folder, mapped, broken, progress, max_megapixels
        )
        readers = {"volumes": load_volumes, "shards": load_shards}
        return readers.get(dataset, load_arrays)(root, options)
    assert size is not None
    files, crop = named_files(dataset, root, split)
    pixels, kept = resident(
        files[: limit or None], size, crop=crop, channels=3 if channels is None else channels, cache=folder,
        broken=broken, progress=progress, max_megapixels=max_megapixels, value_range=value_range,
    )  # fmt: skip
    return Images(pixels, [path.relative_to(root).as_posix() for path in kept])


def read_image(
    path: str | Path,
    channels: int | None = None,
    *,
    value_range: Range | None = None,
    key: str | None = None,
    max_megapixels: float = MAX_MEGAPIXELS,
) -> tuple[Tensor, bool]:
    """Read one picture, or one array file that is an image.

    Parameters
    ----------
    path
        A picture in a format that Pillow reads, or a .npy, .npz, .pt, .h5 file that holds (C, H, W) or (H, W).
    channels
        Those that a model takes: a picture is converted to 3 (the default) or 1, an array must have them.
    value_range, key
        As for `load_images`; for arrays only.
    max_megapixels
        Larger images are refused from their header (arrays also if they hold more values than three channels of that).

    Returns
    -------
    tuple[Tensor, bool]
        The image (C, H, W), float32 in [-1, 1], and whether its channels are complex.
    """
    path = Path(path)
    check_range(value_range)
    if not is_array_file(path):
        plain = value_range is None and key is None
        require(plain, f"{path}: value_range and key are for arrays; this is a picture")
        return read_picture(path, channels=3 if channels is None else channels, max_megapixels=max_megapixels), False
    options = ArrayOptions(channels=channels, key=key, value_range=value_range, max_megapixels=max_megapixels)
    return read_array_image(path, options)


def resident(
    files: Sequence[Path],
    size: int,
    *,
    crop: int | None = None,
    channels: int = 3,
    cache: str | Path | None = None,
    broken: Literal["refuse", "skip"] = "refuse",
    progress: bool = True,
    max_megapixels: float = MAX_MEGAPIXELS,
    value_range: Range | None = None,
) -> tuple[Tensor, list[Path]]:
    """Decode pictures to one tensor (n, channels, size, size) of bytes, in memory or mapped from a cache.

    Pictures of more than 8 bits, if the first file is one, are kept as float32 in [-1, 1].

    Parameters
    ----------
    files, size, crop, channels, max_megapixels
        As for `read_picture`. `firm.data.to_float` turns the tensor into images in [-1, 1].
    cache
        A folder. The array is written there, picture by picture (so the set may be larger than the memory), and from
        then on only mapped, until paths, sizes or times of change of the files, or the settings, differ.
    broken
        "refuse": an unreadable file is an error. "skip": it is left out, and named in a warning on the bar.
    value_range
        Black and white of pictures of more than 8 bits: 0 and 65535 if not given, of floats 0 and 1; a warning says so.

    Returns
    -------
    tuple[Tensor, list[Path]]
        The images, and the files that they are from: without those that were skipped.
    """
    about: dict[str, Any] = {
        "files": [[str(Path(f).resolve()), *fingerprint(Path(f))] for f in files],
        "size": size, "crop": crop, "channels": channels, "broken": broken,
    }  # fmt: skip
    white = _first_white(files)
    deep = white != 255
    dtype = torch.float32 if deep else torch.uint8
    if deep:
        about["value_range"] = None if value_range is None else list(value_range)
    eight = "value_range is for arrays, and for pictures of more than 8 bits; these pictures have 8"
    require(deep or value_range is None, eight)

    def read(path: Path) -> Tensor:
        return decode(path, size, crop, channels, max_megapixels, dtype, value_range=value_range, rounded=False)

    def blocks() -> Blocks:
        brightest = -1.0
        for numbers, block in _decode_ahead(files, read, broken == "skip", progress):
            brightest = max(brightest, float(block.max())) if deep else brightest
            yield numbers, block
        if value_range is None and white == 65535:  # an assumption, however good
            dark = "the brightest pixel of the set has less than 1/16 of white: "
            warnings.warn(
                f"{dark if brightest < 2 / 16 - 1 else ''}0 was taken for black and 65535 for white, by the type of "
                "the pictures; value_range=(low, high) says which values stand for black and white",
                stacklevel=2,
            )

    kind, folder = "float32" if deep else "uint8", None if cache is None else Path(cache)
    pixels, kept = collect(blocks, len(files), (channels, size, size), kind, cache=folder, about=about)
    return torch.from_numpy(pixels), [Path(files[i]) for i in kept]


def _holds_arrays(root: Path) -> bool:
    """Tell whether a folder holds arrays, not pictures; both, or neither, are refused."""
    if root.is_file() and is_array_file(root):
        raise NotADirectoryError(f'{root}: a file; the data set of a single array file is called "arrays"')
    files = files_below(root, EXTENSIONS | ARRAY_EXTENSIONS, "pictures and no arrays")
    arrays = [path for path in files if is_array_file(path)]
    pictures = [path for path in files if not is_array_file(path)]
    if pictures and arrays:
        raise ValueError(
            f"{root}: pictures ({pictures[0].name}) and arrays ({arrays[0].name}) in one folder: "
            'separate them, or take the arrays with the data set "arrays"'
        )
    return bool(arrays)


def _first_white(files: Sequence[Path]) -> float:
    """Return the value of white in the first file that can be opened: other than 255 where it has more than 8 bits."""
    for path in files:
        with suppress(PictureError):  # met again, and reported, when all are read
            return white_of(path)
    return 255.0


def _decode_ahead(
    files: Sequence[Path], read: Callable[[Path], Tensor], skip: bool, progress: bool
) -> Iterator[tuple[list[int], NDArray[Any]]]:
    """Decode with a few threads (Pillow releases the interpreter lock), a few pictures ahead of what is taken."""
    workers, readable = min(8, os.cpu_count() or 1), 0
    waiting: deque[Future[Tensor]] = deque()
    with warnings.catch_warnings(), ThreadPoolExecutor(workers) as pool:
        warnings.simplefilter("ignore")  # of Pillow, in the threads
        bar = progress_bar(range(len(files)), desc="decoding", unit="img", shown=progress)
        try:
            for i in bar:
                while len(waiting) < 2 * workers and i + len(waiting) < len(files):
                    waiting.append(pool.submit(read, files[i + len(waiting)]))
                decoding = waiting.popleft()
                error = decoding.exception()
                if error is None:
                    readable += 1
                    yield [i], decoding.result()[None].numpy()
                elif skip and isinstance(error, PictureError):
                    bar.write(printable(f"skipped {error}"))
                else:
                    raise error
        finally:
            pool.shutdown(cancel_futures=True)
    require(readable, f"none of the {len(files)} files could be read", PictureError)
