"""Pictures of 16 and 32 bits a channel as PNG and TIFF files, which Pillow writes for gray only; and EXIF data."""

from __future__ import annotations

import io
import struct
import zlib
from contextlib import suppress
from typing import Any

from numpy.typing import NDArray
from PIL import Image
from PIL.TiffImagePlugin import ImageFileDirectory_v2

ORIENTATION, WIDTH, HEIGHT = 0x0112, 0xA002, 0xA003  # tags of EXIF
GEOMETRY = frozenset((256, 257, 258, 259, 262, 266, 273, 277, 278, 279, 284, 317, 320, 322, 323, 324, 325, 338, 339))
EXIF_IFD, GPS_IFD = 0x8769, 0x8825  # tags of EXIF that hold tables of their own


def png16(
    pixels: NDArray[Any],
    profile: bytes = b"",
    exif: bytes = b"",
    dpi: tuple[float, float] | None = None,
    level: int = 6,
) -> bytes:
    """Encode pixels (H, W, C) as a PNG of 16 bits a channel, which Pillow writes for gray only."""
    H, W, C = pixels.shape
    pixels = pixels.astype(">u2")
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # each row: no filter, then its values
    head = struct.pack(">IIBBBBB", W, H, 16, {1: 0, 2: 4, 3: 2, 4: 6}[C], 0, 0, 0)  # gray, color; with alpha
    chunks = [(b"IHDR", head)]
    if profile:
        chunks.append((b"iCCP", b"ICC profile\0\0" + zlib.compress(profile)))
    if dpi:
        chunks.append((b"pHYs", struct.pack(">IIB", *(round(v / 0.0254) for v in dpi), 1)))  # a meter
    if exif:
        chunks.append((b"eXIf", exif.removeprefix(b"Exif\0\0")))
    chunks += [(b"IDAT", zlib.compress(rows, level)), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


def tiff(
    pixels: NDArray[Any], profile: bytes = b"", exif: bytes = b"", dpi: tuple[float, float] | None = None
) -> bytes:
    """Encode pixels (H, W, C) as a TIFF of one compressed strip. Pillow writes 16 bits and more for gray only."""
    H, W, C = pixels.shape
    data = zlib.compress(pixels.astype(pixels.dtype.newbyteorder("<")).tobytes(), 6)
    directory = ImageFileDirectory_v2(prefix=b"II")
    if exif:
        tags = Image.Exif()
        tags.load(exif)
        for tag, value in tags.items():
            directory[tag] = tags.get_ifd(tag) if tag in (EXIF_IFD, GPS_IFD) else value
    kind = {"u": 1, "i": 2, "f": 3}[pixels.dtype.kind]
    directory.update({256: W, 257: H, 258: (8 * pixels.itemsize,) * C, 259: 8, 262: 2 if C > 2 else 1, 277: C, 278: H})
    directory.update({273: 0, 279: len(data), 284: 1, 339: (kind,) * C})  # one strip, whose place is filled in
    if C in (2, 4):
        directory[338] = 2  # alpha that is not multiplied in
    if profile:
        directory[34675] = profile
    if dpi:
        directory.update({282: dpi[0], 283: dpi[1], 296: 2})
    buffer = io.BytesIO()
    directory.save(buffer)
    buffer.write(data)
    return buffer.getvalue()


def kept_exif(picture: Image.Image) -> bytes:
    """Return the EXIF data without what turning and resizing make wrong; broken ones are left out."""
    with suppress(Exception):
        exif = picture.getexif()
        inner = exif.get_ifd(EXIF_IFD)
        for tag in (WIDTH, HEIGHT):
            inner.pop(tag, None)
        for tag in [tag for tag in exif if tag == ORIENTATION or tag in GEOMETRY]:
            del exif[tag]
        return exif.tobytes() if len(exif) or inner else b""
    return b""
