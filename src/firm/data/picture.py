"""One picture file to one tensor, whatever its format; what cannot be read is named."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

MAX_PIXELS = 300_000_000  # a larger picture is refused from its header, before it is decoded


class PictureError(ValueError):
    """A file that is no readable picture; the message names it and says why."""


def read_picture(path: str | Path, size: int | None = None, *, crop: int | None = None, channels: int = 3) -> Tensor:
    """Read a picture as a tensor (channels, H, W) in [-1, 1].

    Turned upright by its EXIF orientation, transparency over white, the first frame of an animation. Grey pictures of
    16 bits or floats keep their precision (Pillow reads colour with 8 bits only). With `size` it is centre-cropped to
    a square (of side `crop`, at most the shorter side) and resized to `size` x `size`, bilinear with antialiasing: the
    paper's preprocessing.

    Raises
    ------
    PictureError
        If the file is missing, empty, cut short, too large, or no picture.
    """
    _require_channels(channels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        picture = _sized(_decode(Path(path), deep=True), size, crop)
    if picture.mode != "F":
        return to_tensor(_to_array(picture, channels))
    values = torch.from_numpy(np.array(picture, dtype=np.float32))
    return (values / 127.5 - 1).clamp(-1, 1).expand(channels, -1, -1).clone()


def to_tensor(pixels: NDArray[np.uint8] | Tensor) -> Tensor:
    """Bytes 0..255 to floats in [-1, 1], any shape."""
    return torch.as_tensor(pixels).float() / 127.5 - 1


def read_array(
    path: str | Path, size: int | None = None, *, crop: int | None = None, channels: int = 3
) -> NDArray[np.uint8]:
    """Like `read_picture`, as bytes (channels, H, W)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of what is refused below, and of harmless metadata
        return decode_array(path, size, crop=crop, channels=channels)


def decode_array(
    path: str | Path, size: int | None = None, *, crop: int | None = None, channels: int = 3
) -> NDArray[np.uint8]:
    """The same without silencing Pillow's warnings, which is not safe in threads: their caller does it once."""
    _require_channels(channels)
    return _to_array(_sized(_decode(Path(path)), size, crop), channels)


def _sized(picture: Image.Image, size: int | None, crop: int | None) -> Image.Image:
    return picture if size is None else _square(picture, crop).resize((size, size), Image.Resampling.BILINEAR)


def _require_channels(channels: int) -> None:
    if channels not in (1, 3):
        raise ValueError(
            f"channels must be 1 (grey) or 3 (RGB) for pictures, got {channels}; images with other channels are read "
            "from arrays (.npy, .npz, .pt, .h5), see docs/data.md"
        )


def _to_array(picture: Image.Image, channels: int) -> NDArray[np.uint8]:
    picture = picture.convert("L" if channels == 1 else "RGB")
    pixels = np.array(picture, dtype=np.uint8)
    return np.ascontiguousarray(pixels[None] if channels == 1 else pixels.transpose(2, 0, 1))


def _decode(path: Path, deep: bool = False) -> Image.Image:
    """Decode to mode L or RGB, 8 bits, upright; if `deep`, grey pictures of more bits to mode F, 0 to 255."""
    if not path.is_file():
        raise PictureError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise PictureError(f"{path}: the file is empty")
    try:
        with Image.open(path) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise PictureError(f"{path}: {picture.width}x{picture.height} pixels are more than {MAX_PIXELS:,}")
            picture.load()
            return _plain(path, ImageOps.exif_transpose(picture), deep)
    except PictureError:
        raise
    except UnidentifiedImageError as error:
        raise PictureError(f"{path}: no picture in a format that Pillow reads, or cut short at its start") from error
    except Image.DecompressionBombError as error:
        raise PictureError(f"{path}: too many pixels ({error})") from error
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error, ... on broken data
        raise PictureError(f"{path}: damaged or cut short ({type(error).__name__}: {error})") from error


def _plain(path: Path, picture: Image.Image, deep: bool) -> Image.Image:
    """Bring any mode to L or RGB (or F, if `deep`) as a person expects it to look."""
    mode = picture.mode
    if mode in ("L", "RGB"):
        return _over_white(picture.convert("RGBA")) if "transparency" in picture.info else picture.copy()
    if mode == "1":
        return picture.convert("L")
    if mode.startswith("I") or mode == "F":
        values = np.asarray(picture).astype(np.float64)
        top = 1.0 if mode == "F" else 65535.0
        if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= top):
            raise PictureError(
                f"{path}: {mode} pixels from {values.min():.4g} to {values.max():.4g}; expected 0 to {top:g}"
            )
        values *= 255 / top
        return Image.fromarray(values.astype(np.float32) if deep else np.round(values).astype(np.uint8))
    if mode in ("LA", "La", "PA", "RGBA", "RGBa") or (mode == "P" and "transparency" in picture.info):
        return _over_white(picture.convert("RGBA"))
    return picture.convert("RGB")  # P, CMYK, YCbCr, LAB, HSV


def _over_white(picture: Image.Image) -> Image.Image:
    white = Image.new("RGBA", picture.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, picture).convert("RGB")


def _square(picture: Image.Image, crop: int | None) -> Image.Image:
    side = min(picture.size) if crop is None else min(crop, *picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    return picture.crop((left, top, left + side, top + side))
