"""Pictures go out as they came: format, bits, color profile, EXIF and resolution of a file, and pictures written so."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from firm.data.encoding import kept_exif, png16, tiff
from firm.data.opening import deep_mode, frames, has_alpha, header, is_deep

ENDINGS = {"PNG": ".png", "JPEG": ".jpg", "TIFF": ".tif", "WEBP": ".webp", "AVIF": ".avif", "BMP": ".bmp",
           "HEIF": ".heic"}  # fmt: skip
WITHOUT_ALPHA = ("JPEG", "BMP")
QUALITY = 95  # of formats with loss: what was restored is not compressed as hard as some pictures that come in


@dataclass(frozen=True)
class Origin:
    """What of a picture's file is not in its pixels. The default is that of a picture that came from nowhere."""

    format: str = "PNG"  # one of `ENDINGS`
    bits: int = 8  # of a channel: 8, 16, or 32
    floats: bool = False
    gray: bool = False
    profile: bytes = b""  # ICC
    exif: bytes = b""
    dpi: tuple[float, float] | None = None

    @property
    def ending(self) -> str:
        """The ending of such a file's name."""
        return ENDINGS[self.format]


def origin_of(path: Path) -> Origin:
    """Read what a picture's file says beside its pixels.

    The orientation is left out, since pictures are read upright. A profile is left out where the colors were converted
    in reading: that of CMYK and Lab.
    """
    with header(path) as picture:
        deep, gray = is_deep(picture), picture.mode in ("1", "L", "LA", "La") or is_deep(picture)
        bits = 8
        if deep:
            bits = 16 if picture.mode.startswith("I;16") else 32
        elif deep_mode(picture):
            bits = 16
        profile = picture.info.get("icc_profile") or b""
        kind = (b"GRAY",) if gray else (b"RGB ",)
        kept = profile if profile[16:20] in kind else b""
        name = {"MPO": "JPEG", "DIB": "BMP"}.get(str(picture.format), str(picture.format))
        name = name if name in ENDINGS and frames(path, picture)[0] == 1 else "PNG"
        if bits == 32 and name == "PNG":
            bits = 16
        if name in WITHOUT_ALPHA and has_alpha(picture):
            name = "PNG"
        dpi = picture.info.get("dpi")
        sizes = tuple(float(v) for v in dpi) if dpi and len(dpi) == 2 and all(0 < v < 1e6 for v in dpi) else None
        return Origin(name, bits, picture.mode == "F", gray, kept, kept_exif(picture), sizes)  # type: ignore[arg-type]


def encode(pixels: NDArray[Any], origin: Origin) -> bytes:
    """Encode pixels (H, W, C) as a file like the one they came from.

    Parameters
    ----------
    pixels
        uint8, uint16, int32 or float32, of 1 to 4 channels: gray or color, perhaps with alpha. More than 8 bits are for
        PNG (16) and TIFF.
    origin
        Format, profile, EXIF and resolution. A profile is written where it is for such channels.
    """
    color = pixels.shape[2] > 2
    profile = origin.profile if origin.profile[16:20] == (b"RGB " if color else b"GRAY") else b""
    about: dict[str, Any] = {"icc_profile": profile or None, "exif": origin.exif or None, "dpi": origin.dpi}
    about = {key: value for key, value in about.items() if value}
    if pixels.dtype == np.uint16 and origin.format != "TIFF":
        return png16(pixels, profile, origin.exif, origin.dpi)
    if origin.format == "TIFF":
        return tiff(pixels, profile, origin.exif, origin.dpi)
    buffer = io.BytesIO()
    lossy: dict[str, Any] = {
        "JPEG": {"quality": QUALITY, "subsampling": 0}, "WEBP": {"quality": QUALITY, "method": 4},
        "AVIF": {"quality": QUALITY, "subsampling": "4:4:4"}, "HEIF": {"quality": QUALITY},
    }  # fmt: skip
    squeezed = pixels[:, :, 0] if pixels.shape[2] == 1 else pixels
    Image.fromarray(squeezed).save(buffer, origin.format, **lossy.get(origin.format, {}), **about)
    return buffer.getvalue()
