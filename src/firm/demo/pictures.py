"""Pictures for the page: of a size that a browser takes, and the heat map with its scale."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from firm.restoration.output import write_picture

SHOWN = 1600  # pixels of the longer side that the page shows; downloads have them all
GRAY_LEVELS = 127.5  # in a unit of pictures in [-1, 1]


def shown(x: Tensor, most: int = SHOWN) -> Tensor:
    """An image (1, C, H, W), made smaller where its longer side has more than `most` pixels."""
    H, W = x.shape[-2:]
    factor = most / max(H, W)
    if factor >= 1:
        return x
    size = (max(1, round(H * factor)), max(1, round(W * factor)))
    return F.interpolate(x.float(), size=size, mode="area")


def fitted(x: Tensor, side: int) -> Tensor:
    """An image (1, C, H, W) in the size that its longer side has `side` pixels."""
    if max(x.shape[-2:]) >= side:
        return shown(x, side)
    factor = side / max(x.shape[-2:])
    size = (round(x.shape[-2] * factor), round(x.shape[-1] * factor))
    return F.interpolate(x, size=size, mode="bicubic").clamp(-1, 1)


def enlarged(x: Tensor, size: Sequence[int]) -> Tensor:
    """A measurement (1, C, h, w) in the size of the result, its pixels as squares: nothing is made up."""
    if tuple(x.shape[-2:]) == tuple(size):
        return x
    return F.interpolate(x.float(), size=(size[0], size[1]), mode="nearest-exact")


def save_shown(path: Path, x: Tensor, most: int = SHOWN) -> str:
    """Write what the page shows of an image (1, C, H, W) as PNG; the file's name."""
    write_picture(path, shown(x, most)[0])
    return str(path)


def save_heat_map(path: Path, std: Tensor) -> float:
    """Write a standard deviation (1, C, H, W), in [-1, 1] units, as colors with a scale in gray levels; its mean."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    values = (shown(std.mean(1, keepdim=True), 1000)[0, 0] * GRAY_LEVELS).cpu().numpy()
    H, W = values.shape
    figure = Figure(figsize=(6.4, max(2.4, min(9.0, 5.2 * H / W + 0.4))), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    axis.axis("off")
    drawn = axis.imshow(values, cmap="inferno", vmin=0, vmax=max(float(np.percentile(values, 99.9)), 1e-3))
    bar = figure.colorbar(drawn, ax=axis, fraction=0.05, pad=0.02)
    bar.set_label("gray levels of 255", fontsize=13)
    bar.ax.tick_params(labelsize=12)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=110, format="png")
    path.write_bytes(buffer.getvalue())
    return float(std.mean()) * GRAY_LEVELS


def save_trade_off(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    """Draw PSNR (distortion) against LPIPS (perception), a point for every number of steps; the file's name."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    points = [(row["lpips"], row["psnr"]) for row in rows]
    axis.plot(*zip(*points, strict=True), "o-", color="#1d4ed8")
    for i, (row, point) in enumerate(zip(rows, points, strict=True)):
        away = (-4, 10) if i % 2 else (4, -18)  # above and below in turn: neighbors may be close
        axis.annotate(f"N = {row['N']}", point, xytext=away, textcoords="offset points", fontsize=12)
    axis.set_xlabel("LPIPS: to the left looks more real", fontsize=12)
    axis.set_ylabel("PSNR in dB: up has less error", fontsize=12)
    axis.margins(0.15)
    axis.grid(alpha=0.3)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=110, format="png")
    path.write_bytes(buffer.getvalue())
    return str(path)


def painted(layers: Sequence[bytes]) -> NDArray[np.bool_] | None:
    """Where a brush has painted, (H, W), from the layers of the editor (RGBA); None if nowhere."""
    found: NDArray[np.bool_] | None = None
    for data in layers:
        with Image.open(io.BytesIO(data)) as layer:
            if layer.width * layer.height > 16e6:  # the page shows at most SHOWN pixels a side
                raise ValueError("the painted layer is larger than the page makes them")
            alpha = np.asarray(layer.convert("RGBA"))[:, :, 3] > 0
        found = alpha if found is None or found.shape != alpha.shape else found | alpha
    return found if found is not None and bool(found.any()) else None


def to_picture(x: Tensor) -> Image.Image:
    """An image (1, C, H, W) in [-1, 1] as a picture of 8 bits."""
    values = ((x[0].clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8).permute(1, 2, 0).numpy()
    return Image.fromarray(values[:, :, 0] if values.shape[2] == 1 else values)
