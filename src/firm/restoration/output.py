"""Restored pictures as files: PNG with 8 or 16 bits, floats, heat maps, and all of them side by side."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from firm._util.files import write_atomically

Format = Literal["png", "png16", "npy"]
SUFFIX: dict[str, str] = {"png": ".png", "png16": ".png", "npy": ".npy"}


def write_picture(path: Path, x: Tensor, kind: Format = "png") -> None:
    """Write an image (C, H, W) in [-1, 1], C = 1 or 3: PNG with 8 or 16 bits, or float32 (H, W, C) in [0, 1], .npy."""
    values = ((x.detach().cpu().float() + 1) / 2).permute(1, 2, 0).numpy()
    if kind == "npy":
        buffer = io.BytesIO()
        np.save(buffer, values.astype(np.float32))
        write_atomically(path, buffer.getvalue())
        return
    top = 65535 if kind == "png16" else 255
    pixels = np.round(values.clip(0, 1) * top)
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
    buffer = io.BytesIO()
    np.save(buffer, values.numpy())
    write_atomically(path, buffer.getvalue())


def _png8(pixels: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(buffer, "PNG")
    return buffer.getvalue()


def _png16(pixels: NDArray[Any]) -> bytes:
    """A PNG of 16 bits a channel, which Pillow writes for grey only; `pixels` (H, W, C), big-endian."""
    H, W, C = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # each row: no filter, then its values
    header = struct.pack(">IIBBBBB", W, H, 16, 2 if C == 3 else 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 6)), (b"IEND", b""))
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


def write_heat_map(path: Path, std: Tensor) -> float:
    """Write a standard deviation (C, H, W), averaged over channels, as colours from 0 to its maximum; return that."""
    import matplotlib

    values = std.detach().mean(0).cpu().numpy()
    top = max(float(values.max()), 1e-9)
    colours = matplotlib.colormaps["inferno"](values / top)[:, :, :3]
    write_atomically(path, _png8(np.round(colours * 255).astype(np.uint8)))
    return top


def write_side_by_side(path: Path, rows: list[list[tuple[str, Tensor]]]) -> None:
    """Write titled panels, one list a row: images (C, H, W) in [-1, 1], or standard deviations (H, W), with a scale."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = max(len(row) for row in rows)
    figure = Figure(figsize=(2.6 * columns, 2.75 * len(rows) + 0.15), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for i, row in enumerate(rows):
        for j in range(columns):
            axis = axes[i][j]
            axis.axis("off")
            if j >= len(row):
                continue
            title, panel = row[j]
            axis.set_title(title, fontsize=9)
            if panel.ndim == 2:
                shown = axis.imshow(panel.cpu().numpy(), cmap="inferno", vmin=0)
                figure.colorbar(shown, ax=axis, fraction=0.046, pad=0.02)
            else:
                panel = panel if len(panel) in (1, 3) else panel[:1]  # of many channels, the first
                values = ((panel.detach().cpu().float() + 1) / 2).clamp(0, 1).permute(1, 2, 0).numpy()
                axis.imshow(values[:, :, 0] if values.shape[2] == 1 else values, cmap="gray", vmin=0, vmax=1)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=110, format="png")
    write_atomically(path, buffer.getvalue())
