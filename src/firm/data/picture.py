"""One picture file to one tensor, whatever its format: what is opened, how large it may be, what its values mean."""

from __future__ import annotations

import io
import math
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.TiffImagePlugin import TiffImageFile
from torch import Tensor

from firm.data.tiff import directories, fills_memory

Background = Literal["white", "black"]
Range = tuple[float, float]

MAX_MEGAPIXELS = 64.0  # a larger picture is refused from its header, before it is decoded
MAX_SIDE = 65_535  # the most that a JPEG can have
MAX_PAGES = 1000  # of a TIFF are counted
STRIP = 2**17  # pixels that are converted at a time
# What Pillow reads from this file alone, in the size that the header says. Left out: EPS, which starts Ghostscript,
# and ICO, ICNS and the like, which hold whole pictures of other sizes.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "DIB", "TIFF", "GIF", "PPM", "AVIF", "JPEG2000", "QOI", "PCX", "TGA")
BITS_PER_SAMPLE, SAMPLE_FORMAT = 258, 339  # tags of a TIFF; the second is 1 for numbers without a sign
TILE_WIDTH, TILE_LENGTH = 322, 323  # Pillow decodes a whole tile, however small the picture is


class PictureError(ValueError):
    """A file that cannot be read as a picture; the message names it and says why."""


def read_picture(
    path: str | Path,
    size: int | None = None,
    *,
    crop: int | None = None,
    channels: int = 3,
    max_megapixels: float = MAX_MEGAPIXELS,
    background: Background = "white",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Read a picture as a tensor (channels, H, W) in [-1, 1].

    It is turned upright by its EXIF orientation; of an animation the first frame is read. Gray pictures of 16 bits or
    floats keep their precision (Pillow reads color with 8 bits only).

    Parameters
    ----------
    path
        A file in a format that Pillow reads, such as PNG, JPEG, TIFF or WEBP.
    size, crop
        The picture is center-cropped to a square (of side `crop`, at most the shorter side) and resized to `size` x
        `size`, bilinear with antialiasing: the paper's preprocessing. Without `size` it is read whole.
    channels
        3, or 1 for gray.
    max_megapixels
        A larger picture is refused before it is decoded.
    background
        What transparent pixels are laid over.
    dtype
        ``torch.uint8`` gives bytes 0..255 instead of floats.

    Raises
    ------
    PictureError
        If the file is missing, empty, cut short, too large, or no picture.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of harmless metadata
        return decode(Path(path), size, crop, channels, max_megapixels, dtype, background)


def read_with_alpha(
    path: str | Path, *, max_megapixels: float = MAX_MEGAPIXELS, value_range: Range | None = None
) -> tuple[Tensor, Tensor | None]:
    """Read the colors of a picture, and how opaque its pixels are.

    Unlike `read_picture`, which lays transparent pictures over white: here the colors are those of the file, also
    where they cannot be seen, so that they can be changed and put under the same alpha again.

    Parameters
    ----------
    path, max_megapixels
        As for `read_picture`.
    value_range
        Black and white of a gray picture of more than 8 bits: 0 and 65535 if not given, of floats 0 and 1.

    Returns
    -------
    Colors (3, H, W) in [-1, 1], and alpha (H, W), bytes with 255 = opaque, or None if the picture has none.
    """
    path = Path(path)
    with header(path) as picture:
        picture = _upright(path, picture, max_megapixels, value_range)
        if not has_alpha(picture):
            return _converted(picture, 3, torch.float32, "white"), None
        colors = torch.empty(3, picture.height, picture.width)
        alpha = torch.empty(picture.height, picture.width, dtype=torch.uint8)
        for rows, strip in _strips(picture):
            pixels = torch.from_numpy(np.array(strip.convert("RGBA")))
            colors[:, rows], alpha[rows] = to_float(pixels[..., :3].permute(2, 0, 1)), pixels[..., 3]
        return colors, alpha


def stored_values(path: Path, max_megapixels: float) -> NDArray[Any] | None:
    """Read the values (H, W) of a gray picture of more than 8 bits as they are stored, in any range; else None."""
    with header(path) as picture:
        picture, unsigned = _loaded(path, picture, max_megapixels)
        return _stored(picture, unsigned).astype(np.float64) if is_deep(picture) else None


def resized(alpha: Tensor, height: int, width: int) -> Tensor:
    """Resize alpha (h, w), bytes, to a picture of another size; it is unchanged where it has that size."""
    if alpha.shape == (height, width):
        return alpha
    picture = Image.fromarray(alpha.numpy()).resize((width, height), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(picture))


def to_float(data: Tensor) -> Tensor:
    """Turn stored values into images: bytes 0..255 to float32 in [-1, 1], float32 unchanged; any shape, any device."""
    if data.dtype == torch.uint8:
        return data.float() / 127.5 - 1
    if data.dtype == torch.float32:
        return data
    raise TypeError(f"images are uint8 or float32, not {data.dtype}")


def decode(
    path: Path,
    size: int | None,
    crop: int | None,
    channels: int,
    max_megapixels: float,
    dtype: torch.dtype = torch.float32,
    background: Background = "white",
    value_range: Range | None = None,
    rounded: bool = True,
) -> Tensor:
    """Decode a picture to bytes, or to floats in [-1, 1], (channels, H, W).

    Gray of more than 8 bits is rounded to bytes, or refused unless `rounded`. Pillow's warnings are not silenced, which
    is not safe in threads: their caller does it once.
    """
    if channels not in (1, 3):
        raise ValueError(
            f"channels must be 1 (gray) or 3 (RGB) for pictures, got {channels}; images with other channels are read "
            "from arrays (.npy, .npz, .pt, .h5), see docs/data.md"
        )
    deep = dtype == torch.float32
    with _opened(path) as picture:
        picture = _upright(path, picture, max_megapixels, value_range)
        if not (rounded or deep) and is_deep(picture):
            raise PictureError(
                f"{path}: {picture.mode} pixels have more than 8 bits, those of the first picture of the set have 8: "
                "separate them, or save all of them as arrays (.npy)"
            )
        if size is None:
            return _converted(picture, channels, dtype, background)
        side = _side(picture, crop)
        left, first = (picture.width - side) // 2, (picture.height - side) // 2
        square = _plain(picture.crop((left, first, left + side, first + side)), deep, background)
        square = square.resize((size, size), Image.Resampling.BILINEAR)
        return _values(square, channels, deep).expand(channels, -1, -1).contiguous()


# What the header of a file says


def open_picture(file: IO[bytes]) -> Image.Image:
    """Open a picture as ``Image.open`` does, which has a limit of its own that only a global variable can change."""
    Image.init()
    added = [name for name, (factory, _) in Image.OPEN.items() if not factory.__module__.startswith("PIL.")]
    start = file.read(16)
    if start[:2] in (b"II", b"MM") and fills_memory(file):
        raise OSError("its metadata are larger than the file")
    for name in (*FORMATS, *added):  # `added` by the user, such as HEIF
        factory, accept = Image.OPEN.get(name, (None, None))
        if factory is None:
            continue
        with suppress(SyntaxError, IndexError, TypeError, struct.error):  # not this format, after all
            if accept is None or accept(start) is True:  # else False, or a text: why it cannot
                file.seek(0)
                return factory(file, "")
    raise UnidentifiedImageError


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


def has_more_bits(path: Path) -> bool:
    """Tell whether a file holds a gray picture of more than 8 bits."""
    with header(path) as picture:
        return is_deep(picture)


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


def side_of(path: Path, crop: int | None = None) -> int:
    """Return the side of the square that is cut out of a picture before it is resized; only its header is read."""
    with header(path) as picture:
        return _side(picture, crop)


def _side(picture: Image.Image, crop: int | None) -> int:
    """Return the side of the center crop: `crop`, or the shorter side of the picture where that is less."""
    return min(picture.size) if crop is None else min(crop, *picture.size)


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
def _opened(path: Path) -> Iterator[Image.Image]:
    """Open a file, of which the header is read, and turn whatever goes wrong within into an error that names it."""
    require_contents(path, PictureError)
    try:
        with open(path, "rb") as file:
            yield open_picture(file)
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error, ... on broken data
        if isinstance(error, PictureError):
            raise
        reason = f"damaged or cut short ({type(error).__name__}: {error})"
        if isinstance(error, UnidentifiedImageError):
            reason = "no picture in a format that Pillow reads, or cut short at its start"
        elif isinstance(error, MemoryError):
            reason = "not enough memory to read it"
        raise PictureError(f"{path}: {reason}") from error


@contextmanager
def header(path: Path) -> Iterator[Image.Image]:
    """Open a file without Pillow's warnings; not for threads, which share their filters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with _opened(path) as picture:
            yield picture


# Pixels


def _loaded(path: Path, picture: Image.Image, max_megapixels: float) -> tuple[Image.Image, bool]:
    """Return the first frame, upright; and whether it holds 32-bit whole numbers without a sign.

    Pillow reads these from a TIFF as if they had one.
    """
    check_size(path, picture.width, picture.height, max_megapixels)
    if isinstance(picture, TiffImageFile):
        width, height = (int(picture.tag_v2.get(tag, 1)) for tag in (TILE_WIDTH, TILE_LENGTH))
        check_size(path, width, height, max_megapixels)
    picture.load()
    exif, text = picture.info.get("exif", b""), picture.info.get("Raw profile type exif", "")  # text in some PNGs
    exif = exif.removeprefix(b"Exif\0\0")
    if len(text) > 2**18 or (exif and fills_memory(io.BytesIO(exif))):
        raise PictureError(f"{path}: its EXIF data would fill the memory: save the picture without them")
    tags = picture.tag_v2 if isinstance(picture, TiffImageFile) and picture.mode == "I" else {SAMPLE_FORMAT: (0,)}
    return ImageOps.exif_transpose(picture), tags.get(SAMPLE_FORMAT, (1,))[0] == 1


def _upright(path: Path, picture: Image.Image, max_megapixels: float, value_range: Range | None) -> Image.Image:
    """Decode the first frame, upright, if its header does not say that it is too large.

    Gray of more than 8 bits must be in its range, and NaN is refused; with a `value_range` it becomes floats, black 0
    and white 1.
    """
    picture, unsigned = _loaded(path, picture, max_megapixels)
    if not is_deep(picture):
        return picture
    ends = [(values.min(), values.max()) for values in (_stored(strip, unsigned) for _, strip in _strips(picture))]
    low, high = float(np.min([low for low, _ in ends])), float(np.max([high for _, high in ends]))
    black, white = value_range or (0.0, top(picture.mode))
    if not (low >= black and high <= white):
        hint = ": say what is black and white, --value-range low,high (firm restore), or save it as an array (.npy)"
        found = f"{path}: {picture.mode} pixels from {low:.10g} to {high:.10g}; expected {black:.10g} to {white:.10g}"
        raise PictureError(found + (hint if math.isfinite(low + high) else ""))
    if value_range is None:
        return picture
    scaled = np.empty((picture.height, picture.width), np.float32)
    for rows, strip in _strips(picture):
        scaled[rows] = (_stored(strip, unsigned).astype(np.float64) - black) / (white - black)
    return Image.fromarray(scaled)


def _stored(picture: Image.Image, unsigned: bool) -> NDArray[Any]:
    values = np.asarray(picture)
    return values.view(np.uint32) if unsigned else values


def _strips(picture: Image.Image) -> Iterator[tuple[slice, Image.Image]]:
    """Cut a picture into strips of a few rows, so that conversions need no second copy of it."""
    step = max(1, STRIP // picture.width)
    for first in range(0, picture.height, step):
        last = min(first + step, picture.height)
        yield slice(first, last), picture.crop((0, first, picture.width, last))


def _converted(picture: Image.Image, channels: int, dtype: torch.dtype, background: Background) -> Tensor:
    """Convert a decoded picture, transparency over the background: bytes, or floats in [-1, 1], (channels, H, W)."""
    pixels = torch.empty(channels, picture.height, picture.width, dtype=dtype)
    deep = dtype == torch.float32
    for rows, strip in _strips(picture):
        pixels[:, rows] = _values(_plain(strip, deep, background), channels, deep)
    return pixels


def _plain(picture: Image.Image, deep: bool, background: Background) -> Image.Image:
    """Bring any mode to L or RGB, 8 bits, as a person expects it to look; if `deep`, gray of more bits to F, 0..255."""
    mode = picture.mode
    if is_deep(picture):
        values = np.asarray(picture).astype(np.float64) * (255 / top(mode))
        return Image.fromarray(values.astype(np.float32) if deep else np.round(values).astype(np.uint8))
    if has_alpha(picture):
        below = Image.new("RGBA", picture.size, background)
        return Image.alpha_composite(below, picture.convert("RGBA")).convert("RGB")
    if mode in ("L", "RGB"):
        return picture
    return picture.convert("L" if mode == "1" else "RGB")  # RGB of P, CMYK, YCbCr, LAB, HSV


def _values(picture: Image.Image, channels: int, deep: bool) -> Tensor:
    """Return a plain picture as values (channels, H, W), or (1, H, W) that all channels share."""
    if picture.mode == "F":
        return (torch.from_numpy(np.array(picture, dtype=np.float32)) / 127.5 - 1).clamp(-1, 1)[None]
    pixels = torch.from_numpy(np.array(picture.convert("L" if channels == 1 else "RGB"), dtype=np.uint8))
    pixels = pixels[None] if channels == 1 else pixels.permute(2, 0, 1)
    return to_float(pixels) if deep else pixels
