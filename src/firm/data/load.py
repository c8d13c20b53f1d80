"""The one entry to images: a data set by its name, or a single image, from pictures or arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from torch import Tensor

from firm._util.checks import require
from firm.data.array_file import ARRAY_EXTENSIONS, is_array_file
from firm.data.arrays import ArrayOptions, check_range, load_arrays, read_array_image
from firm.data.images import Images, resident, to_float
from firm.data.picture import Range, read_picture
from firm.data.picture_file import MAX_MEGAPIXELS
from firm.data.sets import EXTENSIONS, Split, files_below, named_files

ImageSet = Literal["celeba", "afhq", "folder", "arrays"]


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
        of array files (not both); "arrays", one array file that holds a stack, or a folder of array files.
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
        and of gray pictures of more than 8 bits. `key`: the name of the array in files with several.
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
    require(dataset in known, f"no data set {dataset!r}; there are {', '.join(known)}")
    require(broken in ("refuse", "skip"), f'broken must be "refuse" or "skip", got {broken!r}')
    counts = f"limit must not be negative and size at least 1, got {limit} and {size}"
    require(limit >= 0 and (size is None or size >= 1), counts)
    folder = None if cache is None else Path(cache)
    if dataset == "arrays" or (dataset == "folder" and _holds_arrays(root)):
        options = ArrayOptions(
            size, channels, limit, key, value_range, folder, mapped, broken, progress, max_megapixels
        )
        return load_arrays(root, options)
    require(key is None, f"{root}: key is for arrays; these are pictures")
    if size is None:
        raise ValueError(f"{root}: pictures are resized to one size: give it")
    decoded = f"{root}: pictures must be decoded before they can be mapped: give a folder, cache=DIR"
    require(not mapped or cache is not None, decoded)
    check_range(value_range)
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
    if not is_array_file(path):
        require(value_range is None and key is None, f"{path}: value_range and key are for arrays; this is a picture")
        return read_picture(path, channels=3 if channels is None else channels, max_megapixels=max_megapixels), False
    options = ArrayOptions(channels=channels, key=key, value_range=value_range, max_megapixels=max_megapixels)
    image = read_array_image(path, options)
    return to_float(image.data)[0], image.complex


def _holds_arrays(root: Path) -> bool:
    """Tell whether a folder holds arrays, not pictures; both, or neither, are refused."""
    single = f'{root}: a file; the data set of a single array file is called "arrays"'
    require(not (root.is_file() and is_array_file(root)), single, NotADirectoryError)
    files = files_below(root, EXTENSIONS | ARRAY_EXTENSIONS, "pictures and no arrays")
    arrays = [path for path in files if is_array_file(path)]
    pictures = [path for path in files if not is_array_file(path)]
    if pictures and arrays:
        raise ValueError(
            f"{root}: pictures ({pictures[0].name}) and arrays ({arrays[0].name}) in one folder: "
            'separate them, or take the arrays with the data set "arrays"'
        )
    return bool(arrays)
