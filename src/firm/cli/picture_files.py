"""The pictures that a command line names: files, folders, several of both; and what ``firm info`` says of one."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Facts = dict[str, Any]


@dataclass(frozen=True)
class Found:
    """The pictures to restore."""

    files: list[Path]  # each once
    root: Path  # the folder that all of them lie below
    skipped: int = 0  # sub-folders with results of other runs

    def notes(self) -> list[str]:
        """What the user should know of what was left out."""
        if not self.skipped:
            return []
        what = "1 sub-folder" if self.skipped == 1 else f"{self.skipped} sub-folders"
        return [f"skipped {what} with earlier results (restore.json); to restore those, name the folder"]


def find_pictures(named: Sequence[Path], out: Path, aside: Sequence[Path] = ()) -> Found:
    """All pictures (or arrays, of folders without pictures) that are named, or lie below folders that are.

    Results of another time are left out: those below `out`, and sub-folders that hold a restore.json. So are the files
    and sub-folders `aside`, masks and kernels, which are given for the pictures and are none themselves.
    """
    files: dict[str, Path] = {}
    skipped: set[Path] = set()
    for place in named:
        found, results = _below(place, out) if place.is_dir() else ([place], set[Path]())
        skipped |= results
        for file in found:
            if not any(_belongs(file, other, place) for other in aside):
                files.setdefault(os.path.abspath(file), file)
    if not files:
        others = [*map(str, aside), "results of earlier runs"]
        raise FileNotFoundError(f"{named[0]}: no pictures in it but {' and '.join(others)}")
    above = [os.path.abspath(place if place.is_dir() else place.parent) for place in named]
    asked = {place.resolve() for place in named}
    return Found(list(files.values()), Path(os.path.commonpath(above)), len(skipped - asked))


def _belongs(file: Path, other: Path, place: Path) -> bool:
    """Whether a file, found in the `place` that was named, is the mask or kernel `other`, or lies in its sub-folder."""
    file, other, place = file.resolve(), other.resolve(), place.resolve()
    return file == other or (other in file.parents and place in other.parents)


def _below(folder: Path, out: Path) -> tuple[list[Path], set[Path]]:
    """The pictures of a folder, or its arrays, if it has no pictures; and its sub-folders with results."""
    from firm.data import array_files, folder_files

    if out.resolve() == folder.resolve():
        raise ValueError("--out is the folder of the pictures: choose another, so that nothing is overwritten")
    errors, skipped = [], set[Path]()
    for list_files in (folder_files, array_files):
        try:
            files, results = _without_results(list_files(folder), folder, out)
        except FileNotFoundError as error:
            errors.append(error)
            continue
        skipped |= results
        if files:
            return files, skipped
    if len(errors) == 2:
        raise errors[0]
    return [], skipped  # nothing but results


def _without_results(files: Sequence[Path], folder: Path, out: Path) -> tuple[list[Path], set[Path]]:
    """The files below a folder without those of earlier results, and the sub-folders that hold these."""
    top, results = folder.resolve(), out.resolve()
    holds: dict[Path, bool] = {}  # a restore.json; folders are looked at once
    kept, skipped = list[Path](), set[Path]()
    for file in files:
        above = file.resolve().parents
        if results in above:
            continue  # its own: nothing to say
        below = [place for place in above if top in place.parents]
        for place in below:
            holds.setdefault(place, (place / "restore.json").is_file())
        with_results = [place for place in below if holds[place]]
        if with_results:
            skipped.add(with_results[-1])  # the outermost
        else:
            kept.append(file)
    return kept, skipped


def picture_facts(path: Path, max_megapixels: float, key: str | None = None) -> Facts:
    """Format, size and depth of a picture, how noisy, blurred and compressed it looks; of an array, what it holds.

    `key` names the array in a file that holds several.
    """
    from firm.data.array_file import is_array_file
    from firm.data.picture import frames, has_alpha, is_deep, open_picture, top
    from firm.restoration.estimates import has_blocks, jpeg_quality
    from firm.restoration.reading import is_saved_picture, read

    if is_array_file(path) and (key is not None or not is_saved_picture(path)):
        return _array_facts(path, max_megapixels, key)
    image = read(path, max_megapixels=max_megapixels).image
    facts: Facts = {"picture": str(path), "width": image.shape[-1], "height": image.shape[-2]}
    if is_array_file(path):
        return {**facts, "format": "floats in [0, 1], as --format npy writes them", **_seen(image)}
    with warnings.catch_warnings(), open(path, "rb") as file:
        warnings.simplefilter("ignore")  # Pillow warns of harmless metadata
        picture = open_picture(file)
        facts |= {"format": picture.format, "mode": picture.mode, "frames": frames(path)[0]}
        if is_deep(picture):
            white = top(picture.mode)
            low, high = (white * (float(end) + 1) / 2 for end in (image.min(), image.max()))
            facts["values"] = f"{low:.6g} to {high:.6g}; black is 0, white {white:g}, or as --value-range says"
        if has_alpha(picture):
            facts["transparency"] = "kept by firm restore"
    quality = jpeg_quality(path)
    if quality is not None:
        facts["compression"] = f"JPEG of quality {quality}"
    elif has_blocks(image):
        facts["compression"] = "was a JPEG once: blocks of 8x8 pixels show"
    return {**facts, **_seen(image)}


def _seen(image: Tensor) -> Facts:
    """Noise and blur of a picture (1, 3, H, W), as they look."""
    from firm.restoration import estimate_blur, estimate_noise

    facts: Facts = {}
    try:
        sigma = estimate_noise(image)
        facts["noise"] = f"about {sigma:.3f} for pixels in [-1, 1], {127.5 * sigma:.1f} of 255"
    except ValueError as error:
        facts["noise"] = f"not known: {error}"
    try:
        facts["blur"] = f"{estimate_blur(image)} pixels (standard deviation), what the lens blurred included"
    except ValueError as error:
        facts["blur"] = f"not known: {error}"
    return facts


def _array_facts(path: Path, max_megapixels: float, key: str | None = None) -> Facts:
    """Shape, type and values of an array; of a stack, those of the whole of it."""
    import numpy as np

    from firm.data.array_file import open_array
    from firm.data.arrays import check_size

    with open_array(path, key) as array:
        H, W = (1, 1, *array.shape)[-2:]
        check_size(path, 1, H, W, max_megapixels)
        values = np.abs(array[...]) if array.dtype.kind == "c" else np.asarray(array[...])
        what = "magnitudes" if array.dtype.kind == "c" else "values"
        return {
            "array": str(path), "shape": " x ".join(map(str, array.shape)), "type": str(array.dtype),
            what: f"{float(values.min()):.4g} to {float(values.max()):.4g}, mean {float(values.mean()):.4g}",
        }  # fmt: skip
