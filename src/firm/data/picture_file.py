"""Picture files as Pillow opens them: which formats, how large, how many bits; what cannot be read is named."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from PIL import Image, UnidentifiedImageError
from PIL.TiffImagePlugin import TiffImageFile

from firm._util.checks import require

MAX_MEGAPIXELS = 64.0  # a larger picture is refused from its header, before it is decoded
MAX_SIDE = 65_535  # the most that a JPEG can have
MAX_PAGES = 1000  # of a TIFF are counted: each one takes longer than the one before
# What Pillow reads from this file alone, in the size that the header says. Left out: EPS, which starts Ghostscript,
# and ICO, ICNS and the like, which hold whole pictures of other sizes.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "DIB", "TIFF", "GIF", "PPM", "AVIF", "JPEG2000", "QOI", "PCX", "TGA")
BITS_PER_SAMPLE, SAMPLE_FORMAT = 258, 339  # tags of a TIFF; the second is 1 for numbers without a sign


class PictureError(ValueError):
    """A file that cannot be read as a picture; the message names it and says why."""


def open_picture(file: IO[bytes]) -> Image.Image:
    """Open a picture as ``Image.open`` does, which has a limit of its own that only a global variable can change."""
    Image.init()
    added = [name for name, (factory, _) in Image.OPEN.items() if not factory.__module__.startswith("PIL.")]
    start = file.read(16)
    for name in (*FORMATS, *added):  # `added` by the user, such as HEIF
        factory, accept = Image.OPEN.get(name, (None, None))
        if factory is None:
            continue
        try:
            if accept is not None and accept(start) is not True:  # text: why it cannot
                continue
            file.seek(0)
            return factory(file, "")
        except (SyntaxError, IndexError, TypeError, struct.error):
            continue  # not this format, after all
    raise UnidentifiedImageError


@contextmanager
def picture_errors(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong with a file that is read within into a `PictureError` that names it."""
    require(path.is_file(), f"{path}: no such file{'' if path.exists() else ' or folder'}", PictureError)
    require(path.stat().st_size, f"{path}: the file is empty", PictureError)
    try:
        yield
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error, ... on broken data
        if isinstance(error, PictureError):
            raise
        reasons: dict[type[Exception] | tuple[type[Exception], ...], str] = {
            UnidentifiedImageError: "no picture in a format that Pillow reads, or cut short at its start",
            (Image.DecompressionBombError, Image.DecompressionBombWarning): f"too many pixels ({error})",
            MemoryError: "not enough memory to read it",
            Exception: f"damaged or cut short ({type(error).__name__}: {error})",
        }
        reason = next(reason for kind, reason in reasons.items() if isinstance(error, kind))
        raise PictureError(f"{path}: {reason}") from error


def check_size(path: Path, width: int, height: int, max_megapixels: float) -> None:
    """Refuse a picture that is too large by its header; the message says how to allow it."""
    longest = f"{path}: {width}x{height} pixels; a side may have at most {MAX_SIDE:,}"
    require(max(width, height) <= MAX_SIDE, longest, PictureError)
    if not width * height <= max_megapixels * 1e6:
        raise PictureError(
            f"{path}: {width}x{height} pixels are {width * height / 1e6:,.1f} megapixels, more than the limit of "
            f"{max_megapixels:g} (max_megapixels; --max-megapixels on the command line)"
        )


def is_deep(picture: Image.Image) -> bool:
    """Tell whether a picture is gray with more than 8 bits."""
    return picture.mode.startswith("I") or picture.mode == "F"


def is_unsigned(picture: Image.Image) -> bool:
    """Tell whether it is a TIFF of 32-bit whole numbers without a sign, which Pillow reads as if they had one."""
    return (
        isinstance(picture, TiffImageFile) and picture.mode == "I" and picture.tag_v2.get(SAMPLE_FORMAT, (1,))[0] == 1
    )


def has_alpha(picture: Image.Image) -> bool:
    """Tell whether a picture says how opaque its pixels are: by a channel, or by a color that is transparent."""
    if picture.mode in ("LA", "La", "PA", "RGBA", "RGBa"):
        return True
    return picture.mode in ("L", "RGB", "P") and "transparency" in picture.info


def top(mode: str) -> float:
    """Return the value of white in gray pictures of more than 8 bits: 1 for floats, else 65535."""
    return 1.0 if mode == "F" else 65535.0


def has_more_bits(path: Path) -> bool:
    """Tell whether a file holds a gray picture of more than 8 bits."""
    with _header(path) as picture:
        return is_deep(picture)


def whole_numbers(path: Path) -> tuple[int, bool]:
    """Return the bits of the whole numbers of a gray picture, 0 for others, and whether 65535 must be white."""
    with _header(path) as picture:
        if not picture.mode.startswith("I"):
            return 0, True
        if picture.mode == "I" and isinstance(picture, TiffImageFile):
            return int(picture.tag_v2.get(BITS_PER_SAMPLE, (32,))[0]), False
        return 16, True


def frames(path: Path) -> tuple[int, str]:
    """Count the pictures of a file, and say what they are called.

    The pages of a TIFF are counted to `MAX_PAGES` ("pages or more"). The pictures in the JPEG of a camera are previews
    of the first, so they are one.
    """
    with _header(path) as picture:
        if not isinstance(picture, TiffImageFile):
            return 1 if picture.format == "MPO" else int(getattr(picture, "n_frames", 1)), "frames"
        for page in range(1, MAX_PAGES):
            try:
                picture.seek(page)
            except Exception:  # the end, or broken beyond the first page, which is all that is read
                return page, "pages"
        return MAX_PAGES, "pages or more"


def side_of(path: Path, crop: int | None = None) -> int:
    """Return the side of the square that is cut out of a picture before it is resized; only its header is read."""
    with _header(path) as picture:
        return square_side(picture, crop)


def square_side(picture: Image.Image, crop: int | None) -> int:
    """Return the side of the center crop: `crop`, or the shorter side of the picture where that is less."""
    return min(picture.size) if crop is None else min(crop, *picture.size)


@contextmanager
def _header(path: Path) -> Iterator[Image.Image]:
    with warnings.catch_warnings(), picture_errors(path), open(path, "rb") as file:
        warnings.simplefilter("ignore")  # Pillow warns of harmless metadata
        yield open_picture(file)
