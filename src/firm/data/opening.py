"""Opening a picture file: which formats, how large it may be, and what its header says before it is decoded."""

from __future__ import annotations

import io
import re
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import IO

from PIL import Image, UnidentifiedImageError
from PIL.TiffImagePlugin import TiffImageFile

from firm.data.encoding import kept_exif, png16
from firm.data.tiff import directories, fills_memory

MAX_MEGAPIXELS = 64.0  # a larger picture is refused from its header, before it is decoded
MAX_SIDE = 65_535  # the most that a JPEG can have
MAX_RAW = 256.0  # megapixels of a raw picture, which is developed before another limit is asked
MAX_PAGES = 1000  # of a TIFF are counted
# What Pillow reads from this file alone, in the size that the header says. Left out: EPS, which starts Ghostscript,
# and ICO, ICNS and the like, which hold whole pictures of other sizes.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "DIB", "TIFF", "GIF", "PPM", "AVIF", "JPEG2000", "QOI", "PCX", "TGA")
BITS_PER_SAMPLE = 258  # tag of a TIFF


class PictureError(ValueError):
    """A file that cannot be read as a picture; the message names it and says why."""


RAW = frozenset((".dng", ".nef", ".cr2", ".cr3", ".arw", ".raf", ".orf", ".rw2", ".pef", ".srw"))  # of cameras
HEIF = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1")  # kinds of files that telephones write


def open_picture(file: IO[bytes]) -> Image.Image:
    """Open a picture as ``Image.open`` does, which has a limit of its own that only a global variable can change."""
    Image.init()
    start = file.read(16)
    if start[4:8] == b"ftyp" and start[8:12] in HEIF and "HEIF" not in Image.OPEN:
        _register_heif()
    added = [name for name, (factory, _) in Image.OPEN.items() if not factory.__module__.startswith("PIL.")]
    if start[:2] in (b"II", b"MM") and fills_memory(file):
        raise OSError("its metadata are larger than the file")
    for name in (*FORMATS, *added):  # `added`: HEIF, or what the user has registered
        factory, accept = Image.OPEN.get(name, (None, None))
        if factory is None:
            continue
        with suppress(SyntaxError, IndexError, TypeError, struct.error):  # not this format, after all
            if accept is None or accept(start) is True:  # else False, or a text: why it cannot
                file.seek(0)
                return factory(file, "")
    raise UnidentifiedImageError


def _register_heif() -> None:
    """Let Pillow read and write HEIC pictures, with the package that does."""
    try:
        import pillow_heif
    except ImportError as error:
        raise ImportError('HEIC pictures need the package pillow-heif: pip install "firm[heic]"') from error
    pillow_heif.register_heif_opener(thumbnails=False)


@lru_cache(maxsize=1)
def _developed(path: Path, _about: tuple[int, int]) -> bytes:
    """Develop the raw picture of a camera, as its white balance says, to a PNG of 16 bits a color; kept for the next.

    `_about` are the size and the time of the file.
    """
    try:
        import rawpy
    except ImportError as error:
        raise ImportError('raw pictures of cameras need the package rawpy: pip install "firm[raw]"') from error
    with rawpy.imread(str(path)) as raw:
        check_size(path, raw.sizes.width, raw.sizes.height, MAX_RAW)
        pixels = raw.postprocess(use_camera_wb=True, output_bps=16, no_auto_bright=True)
    exif = b""
    with suppress(Exception), open(path, "rb") as file:  # most are TIFF files with the camera's EXIF data
        exif = kept_exif(TiffImageFile(file))
    return png16(pixels, exif=exif, level=1)


def check_size(path: Path, width: int, height: int, max_megapixels: float) -> None:
    """Refuse a picture that is too large by its header; the message says how to allow it."""
    why = ""
    if max(width, height) > MAX_SIDE:
        why = f"; a side may have at most {MAX_SIDE:,}"
    elif not width * height <= max_megapixels * 1e6:
        limit = f"{max_megapixels:g} (max_megapixels; --max-megapixels on the command line)"
        why = f" are {width * height / 1e6:,.1f} megapixels, more than the limit of {limit}"
    if why:
        raise PictureError(f"{path}: {width}x{height} pixels{why}")


def is_deep(picture: Image.Image) -> bool:
    """Tell whether a picture is gray with more than 8 bits."""
    return picture.mode.startswith("I") or picture.mode == "F"


def has_alpha(picture: Image.Image) -> bool:
    """Tell whether a picture says how opaque its pixels are: by a channel, or by a color that is transparent."""
    if picture.mode in ("LA", "La", "PA", "RGBA", "RGBa"):
        return True
    return picture.mode in ("L", "RGB", "P") and "transparency" in picture.info


def top(mode: str) -> float:
    """Return the value of white in gray pictures of more than 8 bits: 1 for floats, else 65535."""
    return 1.0 if mode == "F" else 65535.0


def white_of(path: Path) -> float:
    """Return the value of white in the picture of a file: 255, or of more than 8 bits a channel 65535, of floats 1."""
    with header(path) as picture:
        return top(picture.mode) if is_deep(picture) else 65535.0 if deep_mode(picture) else 255.0


def whole_numbers(picture: Image.Image) -> tuple[int, bool]:
    """Return the bits of the whole numbers of a gray picture, 0 for others, and whether 65535 must be white."""
    if not picture.mode.startswith("I"):
        return 0, True
    if picture.mode == "I" and isinstance(picture, TiffImageFile):
        return int(picture.tag_v2.get(BITS_PER_SAMPLE, (32,))[0]), False
    return 16, True


def frames(path: Path, picture: Image.Image) -> tuple[int, str]:
    """Count the pictures of a file, whose first one is `picture`, and say what they are called.

    The pages of a TIFF are counted to `MAX_PAGES` ("pages or more"). The pictures in the JPEG of a camera are previews
    of the first, so they are one.
    """
    if isinstance(picture, TiffImageFile):  # Pillow would read each page, and take longer for each
        with open(path, "rb") as file:
            count = sum(1 for _ in islice(directories(file), MAX_PAGES))
        return count, "pages" if count < MAX_PAGES else "pages or more"
    with suppress(Exception):  # broken beyond the first frame, which is all that is read
        return 1 if picture.format == "MPO" else int(getattr(picture, "n_frames", 1)), "frames"
    return 1, "frames"


def require_contents(path: Path, error: type[ValueError]) -> None:
    """Raise `error` where there is no file to read: nothing there, a folder, a pipe or device, or an empty file."""
    why = ""
    if not path.exists() or path.is_dir():
        why = f"no such file{'' if path.exists() else ' or folder'}"
    elif not path.is_file():
        why = "a pipe or a device, not a file: save its contents to a file"
    elif not path.stat().st_size:
        why = "the file is empty"
    if why:
        raise error(f"{path}: {why}")


@contextmanager
def opened(path: Path, data: bytes | None = None) -> Iterator[Image.Image]:
    """Open a file, of which the header is read, and turn whatever goes wrong within into an error that names it.

    `data` are the contents of a file that has no path of its own, as in an archive.
    """
    if data is None:
        require_contents(path, PictureError)
    try:
        if data is not None:
            yield open_picture(io.BytesIO(data))
        elif path.suffix.lower() in RAW:
            status = path.stat()
            yield open_picture(io.BytesIO(_developed(path, (status.st_size, status.st_mtime_ns))))
        else:
            with open(path, "rb") as file:
                yield open_picture(file)
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error, ... on broken data
        if isinstance(error, PictureError):
            raise
        reason = f"damaged or cut short ({type(error).__name__}: {error})"
        if isinstance(error, UnidentifiedImageError):
            reason = "no picture in a format that Pillow reads, or cut short at its start"
        elif isinstance(error, ImportError):
            reason = str(error)
        elif isinstance(error, MemoryError):
            reason = "not enough memory to read it"
        raise PictureError(f"{path}: {reason}") from error


@contextmanager
def header(path: Path) -> Iterator[Image.Image]:
    """Open a file without Pillow's warnings; not for threads, which share their filters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with opened(path) as picture:
            yield picture


def deep_mode(picture: Image.Image) -> str:
    """Return how a picture of 16 bits a color stores them, such as "RGB;16B"; "" for all others, before it is read."""
    tiles = getattr(picture, "tile", None) or [("", (), 0, "")]
    stored = tiles[0][3]
    mode = stored if isinstance(stored, str) else str(stored[0]) if stored else ""
    return mode if re.fullmatch(r"RGB[AX]?;16[BLN]", mode) else ""
