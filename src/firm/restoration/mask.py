"""The mask of a picture with holes: a picture that is white where pixels are missing."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from firm.data.picture import read_picture
from firm.data.sets import EXTENSIONS
from firm.restoration.reading import ProblemError

RULE = "white means missing (brightness 128 to 255 of 255)"


def read_mask(path: Path, picture: Tensor, max_megapixels: float) -> Tensor:
    """1 = seen, (H, W), for a picture (..., H, W). What is transparent in the mask was not painted: it is seen."""
    values = read_picture(path, channels=1, max_megapixels=max_megapixels, background="black")[0]
    missing = values > 0  # of [-1, 1]: above 127.5 of 255
    if missing.shape != picture.shape[-2:]:
        (h, w), (H, W) = missing.shape, picture.shape[-2:]
        raise ProblemError(f"the mask {path} has {w}x{h} pixels, the picture {W}x{H}: they must have the same size")
    if bool(missing.all()):
        raise ProblemError(f"the mask {path} is white everywhere: nothing is left of the picture")
    if not bool(missing.any()):
        raise ProblemError(
            f"nothing is missing by the mask {path}: {RULE}; black, dark colors such as pure red, and transparent "
            "pixels are kept. Paint what is missing white"
        )
    return 1 - missing.float()


def mask_in(folder: Path, picture: Path, place: Path) -> Path:
    """The mask of a picture that lies at `place` below the folder of all pictures, in a folder of masks.

    It has the same place below that folder, or differs in its ending only: masks of photographs are seldom JPEGs.
    """
    same = folder / place
    if same.is_file():
        return same
    beside = sorted(same.parent.iterdir()) if same.parent.is_dir() else []
    found = [
        file
        for file in beside
        if file.stem == same.stem
        and file.suffix.lower() in EXTENSIONS
        and not picture.with_name(file.name).exists()  # that picture's mask, not this one's
    ]
    if not found:
        raise ProblemError(f"no mask for {picture} in {same.parent} ({same.name}, or {same.stem} with another ending)")
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise ProblemError(f"several masks for {picture} in {same.parent}: {names}; leave one of them there")
    return found[0]


def mask_note(seen: Tensor) -> str | None:
    """A warning where a mask leaves less than half of the picture: most often it is the wrong way round."""
    missing = 1 - float(seen.mean())
    if missing <= 0.5:
        return None
    percent = int(100 * missing)  # rounded down: 100 would say that nothing is left
    return f"{percent} % of the picture is missing by its mask: {RULE}; if it should be the other way round, invert it"
