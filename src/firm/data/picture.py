"""One picture file to one tensor, whatever its format."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from firm._util.checks import require
from firm.data.picture_file import (
    MAX_MEGAPIXELS,
    PictureError,
    check_size,
    has_alpha,
    is_deep,
    is_unsigned,
    open_picture,
    picture_errors,
    square_side,
    top,
)

Background = Literal["white", "black"]
Range = tuple[float, float]
STRIP = 2**17  # pixels that are converted at a time


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

    Raises
    ------
    PictureError
        If the file is missing, empty, cut short, too large, or no picture.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return decode(Path(path), size, crop, channels, max_megapixels, background=background)


def read_array(
    path: str | Path,
    size: int | None = None,
    *,
    crop: int | None = None,
    channels: int = 3,
    max_megapixels: float = MAX_MEGAPIXELS,
) -> NDArray[np.uint8]:
    """Read a picture like `read_picture`, as bytes (channels, H, W)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of harmless metadata
        pixels: NDArray[np.uint8] = decode(Path(path), size, crop, channels, max_megapixels, torch.uint8).numpy()
        return pixels


def read_with_alpha(
    path: str | Path, *, max_megapixels: float = MAX_MEGAPIXELS, value_range: Range | None = None
) -> tuple[Tensor, Tensor | None]:
    """Read colors (3, H, W) in [-1, 1] and alpha (H, W), bytes with 255 = opaque; None for pictures without.

    Unlike `read_picture`, which lays transparent pictures over white: here the colors are those of the file, also
    where they cannot be seen, so that they can be changed and put under the same alpha again.

    `value_range` is black and white of a gray picture of more than 8 bits: 0 and 65535 if not given, of floats 0 and 1.
    """
    path = Path(path)
    with warnings.catch_warnings(), picture_errors(path):
        warnings.simplefilter("ignore")
        picture = _upright(path, max_megapixels, value_range)
        if not has_alpha(picture):
            return _converted(picture, 3), None
        colors = torch.empty(3, picture.height, picture.width)
        alpha = torch.empty(picture.height, picture.width, dtype=torch.uint8)
        for rows, strip in _strips(picture):
            pixels = torch.from_numpy(np.array(strip.convert("RGBA")))
            colors[:, rows], alpha[rows] = to_tensor(pixels[..., :3].permute(2, 0, 1)), pixels[..., 3]
        return colors, alpha


def stored_values(path: Path, max_megapixels: float) -> NDArray[Any] | None:
    """Read the values (H, W) of a gray picture of more than 8 bits as they are stored, in any range; else None."""
    with warnings.catch_warnings(), picture_errors(path):
        warnings.simplefilter("ignore")
        picture, unsigned = _opened(path, max_megapixels)
        return _stored(picture, unsigned).astype(np.float64) if is_deep(picture) else None


def resized(alpha: Tensor, height: int, width: int) -> Tensor:
    """Resize alpha (h, w), bytes, to a picture of another size; it is unchanged where it has that size."""
    if alpha.shape == (height, width):
        return alpha
    picture = Image.fromarray(alpha.numpy()).resize((width, height), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(picture))


def to_tensor(pixels: NDArray[np.uint8] | Tensor) -> Tensor:
    """Convert bytes 0..255 to floats in [-1, 1], any shape."""
    return torch.as_tensor(pixels).float() / 127.5 - 1


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
    with picture_errors(path):
        picture = _upright(path, max_megapixels, value_range)
        mixed = f"{path}: {picture.mode} pixels have more than 8 bits, those of the first picture of the set have 8"
        fits = rounded or dtype == torch.float32 or not is_deep(picture)
        require(fits, mixed + ": separate them, or save all of them as arrays (.npy)", PictureError)
        if size is None:
            return _converted(picture, channels, dtype, background)
        square = _plain(_square(picture, crop), dtype == torch.float32, background)
        square = square.resize((size, size), Image.Resampling.BILINEAR)
        return _values(square, channels, dtype == torch.float32).expand(channels, -1, -1).contiguous()


def _upright(path: Path, max_megapixels: float, value_range: Range | None = None) -> Image.Image:
    """Decode the first frame, upright, if its header does not say that it is too large.

    Gray of more than 8 bits must be in its range; with a `value_range` it becomes floats, black 0 and white 1.
    """
    picture, unsigned = _opened(path, max_megapixels)
    if not is_deep(picture):
        return picture
    _check_range(path, picture, unsigned, value_range)
    return picture if value_range is None else _scaled(picture, unsigned, value_range)


def _opened(path: Path, max_megapixels: float) -> tuple[Image.Image, bool]:
    """Return the first frame, upright; and whether its whole numbers of 32 bits have no sign."""
    with open(path, "rb") as file:
        picture = open_picture(file)
        check_size(path, picture.width, picture.height, max_megapixels)
        picture.load()
        return ImageOps.exif_transpose(picture), is_unsigned(picture)


def _converted(
    picture: Image.Image, channels: int, dtype: torch.dtype = torch.float32, background: Background = "white"
) -> Tensor:
    """Convert a decoded picture, transparency over the background: bytes, or floats in [-1, 1], (channels, H, W)."""
    pixels = torch.empty(channels, picture.height, picture.width, dtype=dtype)
    deep = dtype == torch.float32
    for rows, strip in _strips(picture):
        pixels[:, rows] = _values(_plain(strip, deep, background), channels, deep)
    return pixels


def _strips(picture: Image.Image) -> Iterator[tuple[slice, Image.Image]]:
    """Cut a picture into strips of a few rows, so that conversions need no second copy of it."""
    step = max(1, STRIP // picture.width)
    for first in range(0, picture.height, step):
        last = min(first + step, picture.height)
        yield slice(first, last), picture.crop((0, first, picture.width, last))


def _stored(picture: Image.Image, unsigned: bool) -> NDArray[Any]:
    values = np.asarray(picture)
    return values.view(np.uint32) if unsigned else values


def _check_range(path: Path, picture: Image.Image, unsigned: bool, value_range: Range | None) -> None:
    """Refuse values outside of black and white; NaN is refused too."""
    ends = [(values.min(), values.max()) for values in (_stored(strip, unsigned) for _, strip in _strips(picture))]
    low, high = float(np.min([low for low, _ in ends])), float(np.max([high for _, high in ends]))
    least, most = value_range or (0.0, top(picture.mode))
    hint = ": say what is black and white, --value-range low,high (firm restore), or save it as an array (.npy)"
    require(
        low >= least and high <= most,
        f"{path}: {picture.mode} pixels from {low:.10g} to {high:.10g}; expected {least:.10g} to {most:.10g}"
        + (hint if math.isfinite(low + high) else ""),
        PictureError,
    )


def _scaled(picture: Image.Image, unsigned: bool, value_range: Range) -> Image.Image:
    """Return floats, with black and white of `value_range` as 0 and 1."""
    low, high = value_range
    scaled = np.empty((picture.height, picture.width), np.float32)
    for rows, strip in _strips(picture):
        scaled[rows] = (_stored(strip, unsigned).astype(np.float64) - low) / (high - low)
    return Image.fromarray(scaled)


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
    return to_tensor(pixels) if deep else pixels


def _square(picture: Image.Image, crop: int | None) -> Image.Image:
    side = square_side(picture, crop)
    left, first = (picture.width - side) // 2, (picture.height - side) // 2
    return picture.crop((left, first, left + side, first + side))
