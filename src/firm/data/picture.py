"""One picture file to one tensor: upright, in color or gray, 8 bits or more, and what its values mean."""

from __future__ import annotations

import io
import math
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageCms, ImageOps
from PIL.TiffImagePlugin import TiffImageFile
from torch import Tensor

from firm._util.checks import require
from firm.data.opening import (
    MAX_MEGAPIXELS,
    PictureError,
    check_size,
    deep_mode,
    has_alpha,
    header,
    is_deep,
    opened,
    top,
)
from firm.data.tiff import fills_memory

Background = Literal["white", "black"]
Range = tuple[float, float]

STRIP = 2**17  # pixels that are converted at a time
SAMPLE_FORMAT = 339  # tag of a TIFF, 1 for numbers without a sign
TILE_WIDTH, TILE_LENGTH = 322, 323  # Pillow decodes a whole tile, however small the picture is


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
        deep = deep_mode(picture)
        picture = _upright(path, picture, max_megapixels, value_range)
        if not (has_alpha(picture) or deep):
            return _converted(picture, 3, torch.float32, "white"), None
        low = _low_bytes(path, deep) if deep else None
        colors = torch.empty(3, picture.height, picture.width)
        alpha = torch.full((picture.height, picture.width), 255, dtype=torch.uint8)
        for rows, strip in _strips(picture):
            pixels = torch.from_numpy(np.array(strip.convert("RGBA")))
            colors[:, rows], alpha[rows] = to_float(pixels[..., :3].permute(2, 0, 1)), pixels[..., 3]
            if low is not None:
                colors[:, rows] = _whole(strip, low, rows) / 32767.5 - 1
        return colors, alpha if has_alpha(picture) else None


def _whole(high: Image.Image, low: Image.Image, rows: slice) -> Tensor:
    """Put the high bytes of some rows of a picture and the low bytes of all of it together: (3, h, W), 0..65535."""
    below = low.crop((0, rows.start, low.width, rows.stop))
    first, second = (torch.from_numpy(np.array(strip.convert("RGBA")))[..., :3] for strip in (high, below))
    return (256.0 * first + second).permute(2, 0, 1)


def _low_bytes(path: Path, mode: str) -> Image.Image:
    """Read the low bytes of a picture of 16 bits a color as a picture, upright.

    Pillow takes the high bytes alone. Told that the two come in the other order, it takes the low ones.
    """
    stored = sys.byteorder[0].upper() if mode.endswith("N") else mode[-1]
    other = mode[:-1] + ("L" if stored == "B" else "B")
    with opened(path) as picture:
        stored_as: Any = picture
        stored_as.tile = [
            (kind, box, offset, other if isinstance(args, str) else (other, *args[1:]))
            for kind, box, offset, args in stored_as.tile
        ]
        picture.load()
        return ImageOps.exif_transpose(picture)


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
    data: bytes | None = None,
) -> Tensor:
    """Decode a picture, of a file or of `data` from an archive, to bytes, or to floats in [-1, 1], (channels, H, W).

    More than 8 bits a channel are rounded to bytes, or refused unless `rounded`. Pillow's warnings are not silenced,
    which is not safe in threads: their caller does it once.
    """
    if channels not in (1, 3):
        raise ValueError(
            f"channels must be 1 (gray) or 3 (RGB) for pictures, got {channels}; images with other channels are read "
            "from arrays (.npy, .npz, .pt, .h5), see docs/data.md"
        )
    deep = dtype == torch.float32
    with opened(path, data) as picture:
        stored = "" if rounded and not deep else deep_mode(picture)
        picture = _upright(path, picture, max_megapixels, value_range)
        if not (rounded or deep) and (stored or is_deep(picture)):
            raise PictureError(
                f"{path}: {stored or picture.mode} pixels have more than 8 bits, those of the first picture of the set "
                "have 8: separate them, or save all of them as arrays (.npy)"
            )
        if size is None:
            if stored:
                return _in_channels(_deep_color(path, picture, stored, background, value_range), channels)
            return _converted(picture, channels, dtype, background)
        side = _side(picture, crop)
        left, first = (picture.width - side) // 2, (picture.height - side) // 2
        box = left, first, left + side, first + side
        if stored:
            planes = [Image.fromarray(plane.numpy()).crop(box).resize((size, size), Image.Resampling.BILINEAR)
                      for plane in _deep_color(path, picture, stored, background, value_range)]  # fmt: skip
            return _in_channels(torch.stack([torch.from_numpy(np.array(plane)) for plane in planes]), channels)
        square = _plain(picture.crop(box), deep, background)
        square = square.resize((size, size), Image.Resampling.BILINEAR)
        return _values(square, channels, deep).expand(channels, -1, -1).contiguous()


def _deep_color(path: Path, high: Image.Image, mode: str, background: Background, value_range: Range | None) -> Tensor:
    """Read colors of 16 bits, (3, H, W) in [-1, 1], over the background; `high` has the high bytes of the picture."""
    low, colors = _low_bytes(path, mode), torch.empty(3, high.height, high.width)
    black, white = value_range or (0.0, 65535.0)
    for rows, strip in _strips(high):
        colors[:, rows] = (_whole(strip, low, rows) - black) * (2 / (white - black)) - 1
    least, most = float(colors.min()), float(colors.max())
    beyond = f"{path}: colors beyond {black:.10g} to {white:.10g}, the range of values that was given for them"
    require(least >= -1 - 1e-5 and most <= 1 + 1e-5, beyond, PictureError)
    if has_alpha(high):
        opaque = torch.from_numpy(np.array(high.getchannel("A"))).float() / 255
        below = 1.0 if background == "white" else -1.0
        colors = below + opaque * (colors - below)
    return colors.clamp(-1, 1)


def _in_channels(colors: Tensor, channels: int) -> Tensor:
    """Turn colors (3, H, W) to gray, with the weights of Pillow, where one channel is asked for."""
    return colors if channels == 3 else torch.einsum("c,chw->hw", torch.tensor([0.299, 0.587, 0.114]), colors)[None]


def _loaded(path: Path, picture: Image.Image, max_megapixels: float) -> tuple[Image.Image, bool]:
    """Return the first frame, upright; and whether it holds 32-bit whole numbers without a sign.

    Pillow reads these from a TIFF as if they had one.
    """
    check_size(path, picture.width, picture.height, max_megapixels)
    if isinstance(picture, TiffImageFile):
        width, height = (int(picture.tag_v2.get(tag, 1)) for tag in (TILE_WIDTH, TILE_LENGTH))
        check_size(path, width, height, max_megapixels)
    picture.load()
    text = picture.info.get("Raw profile type exif", "")  # in some PNGs
    exif = (picture.info.get("exif") or b"").removeprefix(b"Exif\0\0")  # of a HEIC that has none it is None
    if len(text) > 2**18 or (exif and fills_memory(io.BytesIO(exif))):
        raise PictureError(f"{path}: its EXIF data would fill the memory: save the picture without them")
    tags = picture.tag_v2 if isinstance(picture, TiffImageFile) and picture.mode == "I" else {SAMPLE_FORMAT: (0,)}
    return _in_rgb(ImageOps.exif_transpose(picture)), tags.get(SAMPLE_FORMAT, (1,))[0] == 1


def _in_rgb(picture: Image.Image) -> Image.Image:
    """Convert the inks of a printer (CMYK), and Lab, to sRGB by their profile, as LittleCMS does; others stay."""
    profile = picture.info.get("icc_profile")
    if picture.mode not in ("CMYK", "LAB") or (picture.mode == "CMYK" and not profile):
        return picture
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile)) if profile else ImageCms.createProfile("LAB")
        made = ImageCms.profileToProfile(
            picture, source, ImageCms.createProfile("sRGB"), ImageCms.Intent.RELATIVE_COLORIMETRIC, "RGB"
        )
    except ImageCms.PyCMSError:  # a profile that is damaged, or for something else
        return picture
    return made or picture


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


def side_of(path: Path, crop: int | None = None) -> int:
    """Return the side of the square that is cut out of a picture before it is resized; only its header is read."""
    with header(path) as picture:
        return _side(picture, crop)


def _side(picture: Image.Image, crop: int | None) -> int:
    """Return the side of the center crop: `crop`, or the shorter side of the picture where that is less."""
    return min(picture.size) if crop is None else min(crop, *picture.size)
