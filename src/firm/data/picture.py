"""One picture file to one tensor, whatever its format; what cannot be read is named."""

from __future__ import annotations

import math
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.TiffImagePlugin import TiffImageFile
from torch import Tensor

Background = Literal["white", "black"]
MAX_MEGAPIXELS = 64.0  # a larger picture is refused from its header, before it is decoded
MAX_SIDE = 65_535  # the most that a JPEG can have
STRIP = 2**17  # pixels that are converted at a time
# What Pillow reads from this file alone, in the size that the header says. Left out: EPS, which starts Ghostscript,
# and ICO, ICNS and the like, which hold whole pictures of other sizes.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "DIB", "TIFF", "GIF", "PPM", "AVIF", "JPEG2000", "QOI", "PCX", "TGA")


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
) -> Tensor:
    """Read a picture as a tensor (channels, H, W) in [-1, 1].

    Turned upright by its EXIF orientation, transparency over the `background`, the first frame of an animation. Gray
    pictures of 16 bits or floats keep their precision (Pillow reads color with 8 bits only). With `size` it is
    center-cropped to a square (of side `crop`, at most the shorter side) and resized to `size` x `size`, bilinear with
    antialiasing: the paper's preprocessing. A picture of more than `max_megapixels` is refused before it is decoded.

    Raises
    ------
    PictureError
        If the file is missing, empty, cut short, too large, or no picture.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _read(Path(path), size, crop, channels, max_megapixels, torch.float32, background)


def to_tensor(pixels: NDArray[np.uint8] | Tensor) -> Tensor:
    """Bytes 0..255 to floats in [-1, 1], any shape."""
    return torch.as_tensor(pixels).float() / 127.5 - 1


def read_array(
    path: str | Path,
    size: int | None = None,
    *,
    crop: int | None = None,
    channels: int = 3,
    max_megapixels: float = MAX_MEGAPIXELS,
) -> NDArray[np.uint8]:
    """Like `read_picture`, as bytes (channels, H, W)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of harmless metadata
        return decode_array(path, size, crop=crop, channels=channels, max_megapixels=max_megapixels)


def decode_array(
    path: str | Path,
    size: int | None = None,
    *,
    crop: int | None = None,
    channels: int = 3,
    max_megapixels: float = MAX_MEGAPIXELS,
) -> NDArray[np.uint8]:
    """The same without silencing Pillow's warnings, which is not safe in threads: their caller does it once."""
    read = _read(Path(path), size, crop, channels, max_megapixels, torch.uint8)
    pixels: NDArray[np.uint8] = read.numpy()
    return pixels


def _read(
    path: Path,
    size: int | None,
    crop: int | None,
    channels: int,
    max_megapixels: float,
    dtype: torch.dtype,
    background: Background = "white",
) -> Tensor:
    """Decode to bytes, or to floats in [-1, 1]; what is wrong with the file is a PictureError."""
    if channels not in (1, 3):
        raise ValueError(
            f"channels must be 1 (gray) or 3 (RGB) for pictures, got {channels}; images with other channels are read "
            "from arrays (.npy, .npz, .pt, .h5), see docs/data.md"
        )
    with picture_errors(path):
        picture = decode(path, max_megapixels)
        if size is None:
            return values_of(picture, channels, dtype, background)
        square = _plain(_square(picture, crop), dtype == torch.float32, background)
        square = square.resize((size, size), Image.Resampling.BILINEAR)
        return _values(square, channels, dtype == torch.float32).expand(channels, -1, -1).contiguous()


@contextmanager
def picture_errors(path: Path) -> Iterator[None]:
    """Say in words what is wrong with a file that is read within."""
    if not path.is_file():
        raise PictureError(f"{path}: no such file{'' if path.exists() else ' or folder'}")
    if path.stat().st_size == 0:
        raise PictureError(f"{path}: the file is empty")
    try:
        yield
    except PictureError:
        raise
    except UnidentifiedImageError as error:
        raise PictureError(f"{path}: no picture in a format that Pillow reads, or cut short at its start") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise PictureError(f"{path}: too many pixels ({error})") from error
    except MemoryError as error:
        raise PictureError(f"{path}: not enough memory to read it") from error
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error, ... on broken data
        raise PictureError(f"{path}: damaged or cut short ({type(error).__name__}: {error})") from error


def values_of(
    picture: Image.Image, channels: int, dtype: torch.dtype = torch.float32, background: Background = "white"
) -> Tensor:
    """A decoded picture, transparency over the background: bytes, or floats in [-1, 1], (channels, H, W)."""
    pixels, top = torch.empty(channels, picture.height, picture.width, dtype=dtype), 0
    deep = dtype == torch.float32
    for strip in strips(picture):
        pixels[:, top : top + strip.height] = _values(_plain(strip, deep, background), channels, deep)
        top += strip.height
    return pixels


def decode(path: Path, max_megapixels: float, value_range: tuple[float, float] | None = None) -> Image.Image:
    """Decode the first frame, upright, if its header does not say that it is too large.

    Gray of more than 8 bits must be in its range; with a `value_range` it becomes floats, black 0 and white 1.
    """
    upright, unsigned = _opened(path, max_megapixels)
    if not is_deep(upright):
        return upright
    _check_range(path, upright, unsigned, value_range)
    return upright if value_range is None else _scaled(upright, unsigned, value_range)


def stored_values(path: Path, max_megapixels: float) -> NDArray[Any] | None:
    """The values (H, W) of a gray picture of more than 8 bits as they are stored, whatever their range; else None."""
    with warnings.catch_warnings(), picture_errors(path):
        warnings.simplefilter("ignore")
        upright, unsigned = _opened(path, max_megapixels)
        return _stored(upright, unsigned).astype(np.float64) if is_deep(upright) else None


def _opened(path: Path, max_megapixels: float) -> tuple[Image.Image, bool]:
    """The first frame, upright; and whether its whole numbers of 32 bits have no sign."""
    with open(path, "rb") as file:
        picture = open_picture(file)
        check_size(path, picture.width, picture.height, max_megapixels)
        picture.load()
        return ImageOps.exif_transpose(picture), _is_unsigned(picture)


def is_deep(picture: Image.Image) -> bool:
    """Whether it is gray with more than 8 bits."""
    return picture.mode.startswith("I") or picture.mode == "F"


def _is_unsigned(picture: Image.Image) -> bool:
    """Whether it is a TIFF of whole numbers of 32 bits without a sign, which Pillow reads as if they had one."""
    signs = 339  # the tag SampleFormat, 1 for numbers without a sign
    return isinstance(picture, TiffImageFile) and picture.mode == "I" and picture.tag_v2.get(signs, (1,))[0] == 1


def has_more_bits(path: Path) -> bool:
    """Whether a file holds a gray picture of more than 8 bits."""
    with warnings.catch_warnings(), open(path, "rb") as file:
        warnings.simplefilter("ignore")
        return is_deep(open_picture(file))


def whole_numbers(path: Path) -> tuple[int, bool]:
    """How many bits the whole numbers of a gray picture have, 0 for other pictures, and whether 65535 must be white."""
    with warnings.catch_warnings(), open(path, "rb") as file:
        warnings.simplefilter("ignore")
        picture = open_picture(file)
        if not picture.mode.startswith("I"):
            return 0, True
        if picture.mode == "I" and isinstance(picture, TiffImageFile):
            return int(picture.tag_v2.get(258, (32,))[0]), False  # the tag BitsPerSample
        return 16, True


def frames(path: Path) -> tuple[int, str]:
    """How many pictures a file holds, and what they are called. Those in the JPEG of a camera are previews: 1."""
    with warnings.catch_warnings(), open(path, "rb") as file:
        warnings.simplefilter("ignore")
        picture = open_picture(file)
        what = "pages" if isinstance(picture, TiffImageFile) else "frames"
        try:
            return 1 if picture.format == "MPO" else int(getattr(picture, "n_frames", 1)), what
        except Exception:  # broken beyond the first, which is all that is read
            return 1, what


def _extremes(picture: Image.Image, unsigned: bool = False) -> tuple[float, float]:
    """The smallest and the largest value of a gray picture; NaN if there is one."""
    ends = [(values.min(), values.max()) for values in (_stored(strip, unsigned) for strip in strips(picture))]
    return float(np.min([low for low, _ in ends])), float(np.max([high for _, high in ends]))


def open_picture(file: IO[bytes]) -> Image.Image:
    """Like ``Image.open``, which has a limit of its own, warns or raises, and can only be told by a global."""
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


def check_size(path: Path, width: int, height: int, max_megapixels: float) -> None:
    """Refuse what is too large by its header; the message says how to allow it."""
    if max(width, height) > MAX_SIDE:
        raise PictureError(f"{path}: {width}x{height} pixels; a side may have at most {MAX_SIDE:,}")
    if not width * height <= max_megapixels * 1e6:
        raise PictureError(
            f"{path}: {width}x{height} pixels are {width * height / 1e6:,.1f} megapixels, more than the limit of "
            f"{max_megapixels:g} (max_megapixels; --max-megapixels on the command line)"
        )


def strips(picture: Image.Image) -> Iterator[Image.Image]:
    """The picture in strips of a few rows, so that conversions need no second copy of it."""
    rows = max(1, STRIP // picture.width)
    for top in range(0, picture.height, rows):
        yield picture.crop((0, top, picture.width, min(top + rows, picture.height)))


def top(mode: str) -> float:
    """The value of white, in gray pictures of more than 8 bits."""
    return 1.0 if mode == "F" else 65535.0


def _stored(picture: Image.Image, unsigned: bool) -> NDArray[Any]:
    values = np.asarray(picture)
    return values.view(np.uint32) if unsigned else values


def _check_range(path: Path, picture: Image.Image, unsigned: bool, value_range: tuple[float, float] | None) -> None:
    low, high = _extremes(picture, unsigned)
    least, most = value_range or (0.0, top(picture.mode))
    if not (low >= least and high <= most):
        hint = ": say what is black and white, --value-range low,high (firm restore), or save it as an array (.npy)"
        raise PictureError(
            f"{path}: {picture.mode} pixels from {low:.10g} to {high:.10g}; expected {least:.10g} to {most:.10g}"
            + (hint if math.isfinite(low + high) else "")
        )


def _scaled(picture: Image.Image, unsigned: bool, value_range: tuple[float, float]) -> Image.Image:
    """Floats, black and white of `value_range` as 0 and 1."""
    low, high = value_range
    scaled = np.empty((picture.height, picture.width), np.float32)
    first = 0
    for strip in strips(picture):
        scaled[first : first + strip.height] = (_stored(strip, unsigned).astype(np.float64) - low) / (high - low)
        first += strip.height
    return Image.fromarray(scaled)


def _plain(picture: Image.Image, deep: bool, background: Background) -> Image.Image:
    """Bring any mode to L or RGB, 8 bits, as a person expects it to look.

    If `deep`, gray of more bits becomes F, 0 to 255.
    """
    mode = picture.mode
    if mode in ("L", "RGB"):
        return _over(background, picture.convert("RGBA")) if "transparency" in picture.info else picture
    if mode == "1":
        return picture.convert("L")
    if is_deep(picture):
        values = np.asarray(picture).astype(np.float64) * (255 / top(mode))
        return Image.fromarray(values.astype(np.float32) if deep else np.round(values).astype(np.uint8))
    if mode in ("LA", "La", "PA", "RGBA", "RGBa") or (mode == "P" and "transparency" in picture.info):
        return _over(background, picture.convert("RGBA"))
    return picture.convert("RGB")  # P, CMYK, YCbCr, LAB, HSV


def _over(background: Background, picture: Image.Image) -> Image.Image:
    below = Image.new("RGBA", picture.size, background)
    return Image.alpha_composite(below, picture).convert("RGB")


def _values(picture: Image.Image, channels: int, deep: bool) -> Tensor:
    """A plain picture as values (channels, H, W), or (1, H, W) that all channels share."""
    if picture.mode == "F":
        return (torch.from_numpy(np.array(picture, dtype=np.float32)) / 127.5 - 1).clamp(-1, 1)[None]
    pixels = torch.from_numpy(np.array(picture.convert("L" if channels == 1 else "RGB"), dtype=np.uint8))
    pixels = pixels[None] if channels == 1 else pixels.permute(2, 0, 1)
    return to_tensor(pixels) if deep else pixels


def side_of(path: Path, crop: int | None = None) -> int:
    """The side of the square that is cut out of a picture before it is resized; only its header is read."""
    with warnings.catch_warnings(), picture_errors(path), open(path, "rb") as file:
        warnings.simplefilter("ignore")
        return _side(open_picture(file), crop)


def _side(picture: Image.Image, crop: int | None) -> int:
    return min(picture.size) if crop is None else min(crop, *picture.size)


def _square(picture: Image.Image, crop: int | None) -> Image.Image:
    side = _side(picture, crop)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    return picture.crop((left, top, left + side, top + side))
