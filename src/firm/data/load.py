"""The one entry to images: a data set by its name, or a single image, from pictures or arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from torch import Tensor

from firm.data._resident import resident
from firm.data.array_file import ARRAY_EXTENSIONS, array_files, is_array_file
from firm.data.array_values import Range
from firm.data.arrays import ArrayOptions, load_arrays, read_array_image
from firm.data.celeba import Split
from firm.data.folder import EXTENSIONS, folder_files, require_folder
from firm.data.images import Images, to_float
from firm.data.named import named_files
from firm.data.picture import MAX_MEGAPIXELS, read_picture

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
    """Load a data set.

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
        Arrays: (low, high) that stand for -1 and 1 (complex: 0 and the magnitude that stands for 1), and the name of
        the array in files with several.
    broken
        What to do with files that cannot be read: "refuse" them all, or "skip" and name them.
    max_megapixels
        Larger images cannot be read: their header says so before they are decoded.
    """
    root = Path(root)
    if dataset not in get_args(ImageSet):
        raise ValueError(f"no data set {dataset!r}; there are {', '.join(get_args(ImageSet))}")
    if broken not in ("refuse", "skip"):
        raise ValueError(f'broken must be "refuse" or "skip", got {broken!r}')
    if limit < 0 or (size is not None and size < 1):
        raise ValueError(f"limit must not be negative and size at least 1, got {limit} and {size}")
    folder = None if cache is None else Path(cache)
    if dataset == "arrays" or (dataset == "folder" and _holds_arrays(root)):
        options = ArrayOptions(
            size, channels, limit, key, value_range, folder, mapped, broken, progress, max_megapixels
        )
        return load_arrays(root, options)
    if value_range is not None or key is not None:
        raise ValueError(f"{root}: value_range and key are for arrays; these are pictures")
    if size is None:
        raise ValueError(f"{root}: pictures are resized to one size: give it")
    if mapped and cache is None:
        raise ValueError(f"{root}: pictures must be decoded before they can be mapped: give a folder, cache=DIR")
    files, crop = named_files(dataset, root, split)
    pixels, kept = resident(
        files[: limit or None], size, crop=crop, channels=3 if channels is None else channels, cache=folder,
        broken=broken, progress=progress, max_megapixels=max_megapixels,
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
    """Read one picture, or one array file that is an image: (C, H, W) float32 in [-1, 1], and whether it is complex.

    `channels` are those that a model takes: a picture is converted to 3 (the default) or 1, an array must have them.
    Images of more than `max_megapixels` are refused from their header (of arrays, also if they hold more values than
    three channels of that).
    """
    path = Path(path)
    if not is_array_file(path):
        if value_range is not None or key is not None:
            raise ValueError(f"{path}: value_range and key are for arrays; this is a picture")
        return read_picture(path, channels=3 if channels is None else channels, max_megapixels=max_megapixels), False
    image = read_array_image(path, channels=channels, key=key, value_range=value_range, max_megapixels=max_megapixels)
    return to_float(image.data)[0], image.complex


def _holds_arrays(root: Path) -> bool:
    """Whether a folder holds arrays, not pictures; both, or neither, are refused."""
    if root.is_file() and is_array_file(root):
        raise NotADirectoryError(f'{root}: a file; the data set of a single array file is called "arrays"')
    require_folder(root)
    found = []
    for list_files in (folder_files, array_files):
        try:
            found.append(list_files(root))
        except FileNotFoundError:
            found.append([])
    pictures, arrays = found
    if pictures and arrays:
        raise ValueError(
            f"{root}: pictures ({pictures[0].name}) and arrays ({arrays[0].name}) in one folder: "
            'separate them, or take the arrays with the data set "arrays"'
        )
    if not pictures and not arrays:
        known = ", ".join(sorted(EXTENSIONS | ARRAY_EXTENSIONS))
        raise FileNotFoundError(f"{root}: no pictures and no arrays ({known}) in it or below")
    return bool(arrays)
