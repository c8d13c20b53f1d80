"""Restored pictures as files: PNG with 8 or 16 bits, floats, heat maps, and all of them side by side."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from firm._util.files import write_atomically
from firm._util.sheet import Panel, inferno, sheet
from firm.data.picture import resized

Format = Literal["png", "png16", "npy"]
SUFFIX: dict[str, str] = {"png": ".png", "png16": ".png", "npy": ".npy"}


def write_picture(path: Path, x: Tensor, kind: Format = "png", alpha: Tensor | None = None) -> None:
    """Write an image (C, H, W) in [-1, 1], C = 1 or 3: PNG with 8 or 16 bits, or float32 (H, W, C) in [0, 1], .npy.

    `alpha` (h, w), bytes with 255 = opaque, becomes a last channel; it is resized where the image has another size.
    """
    values = ((x.detach().cpu().float() + 1) / 2).permute(1, 2, 0)
    if alpha is not None:
        opaque = resized(alpha, *values.shape[:2]).float() / 255
        values = torch.cat([values, opaque[..., None]], dim=2)
    if kind == "npy":
        return _save(path, values)
    top = 65535 if kind == "png16" else 255
    pixels = np.round(values.numpy().clip(0, 1) * top)
    write_atomically(path, _png16(pixels.astype(">u2")) if kind == "png16" else _png8(pixels.astype(np.uint8)))


def write_array(
    path: Path, x: Tensor, complex_image: bool = False, value_range: tuple[float, float] | None = None
) -> None:
    """Write an image (C, H, W) as .npy with the values of the input: float32, or complex64 of half the channels.

    `value_range` is what -1 and 1 stand for (of complex images, what a magnitude of 0 and 1).
    """
    low, high = value_range or ((0.0, 1.0) if complex_image else (-1.0, 1.0))
    values = x.detach().cpu().float()
    if complex_image:
        values = high * torch.complex(*values.chunk(2))
    elif value_range is not None:
        values = low + (high - low) * (values + 1) / 2
    _save(path, values)


def write_deviation(
    path: Path, std: Tensor, complex_image: bool = False, value_range: tuple[float, float] | None = None
) -> None:
    """Write standard deviations (C, H, W) as .npy, in the units of `write_array` and with its channels.

    Of complex images: that of the real parts, plus i times that of the imaginary parts.
    """
    low, high = value_range or ((0.0, 1.0) if complex_image else (-1.0, 1.0))
    values = std.detach().cpu().float()
    _save(path, high * torch.complex(*values.chunk(2)) if complex_image else (high - low) / 2 * values)


def _save(path: Path, values: Tensor) -> None:
    buffer = io.BytesIO()
    np.save(buffer, values.numpy())
    write_atomically(path, buffer.getvalue())


def _png8(pixels: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(buffer, "PNG")
    return buffer.getvalue()


def _png16(pixels: NDArray[Any]) -> bytes:
    """A PNG of 16 bits a channel, which Pillow writes for gray only; `pixels` (H, W, C), big-endian."""
    H, W, C = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # each row: no filter, then its values
    header = struct.pack(">IIBBBBB", W, H, 16, {1: 0, 2: 4, 3: 2, 4: 6}[C], 0, 0, 0)  # gray, color; with alpha
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 6)), (b"IEND", b""))
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


def write_heat_map(path: Path, std: Tensor) -> float:
    """Write a standard deviation (C, H, W), averaged over channels, as colors from 0 to its maximum; return that."""
    values = std.detach().mean(0).cpu().numpy()
    top = max(float(values.max()), 1e-9)
    write_atomically(path, _png8(inferno(values / top)))
    return top


def write_side_by_side(path: Path, rows: Sequence[Sequence[Panel]]) -> None:
    """Write titled panels, one list a row, as `firm._util.sheet.sheet` draws them."""
    buffer = io.BytesIO()
    sheet(rows).save(buffer, "PNG")
    write_atomically(path, buffer.getvalue())
