"""Images for the page: of a size that a browser copes with, and figures of the uncertainty and of the trade-off."""

import io
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from firm._util.checks import require
from firm.data.opening import open_picture
from firm.data.origin import Origin
from firm.restoration.output import write_picture

MAX_LAYERS, MAX_LAYER = 4, 8e6  # how many layers are painted on, and pixels of each; the page sends one of 0.6e6
LARGEST = 1600  # pixels of the longer side of figures and galleries
FULL, MOST = 2e6, 24e6  # pixels from which on what is compared is a JPEG, and that it has at most
CANVAS = 1600  # pixels of the longer side of what is painted on, so that a brush is as thick on all pictures
GRAY_LEVELS = 127.5  # gray levels of 255 in a unit of images in [-1, 1]


def _shrunk(x: Tensor, largest: int = LARGEST) -> Tensor:
    """Shrink an image (1, C, H, W) until its longer side has at most `largest` pixels."""
    factor = largest / max(x.shape[-2:])
    if factor >= 1:
        return x
    return F.interpolate(x.float(), size=[max(1, round(side * factor)) for side in x.shape[-2:]], mode="area")


def save_preview(path: Path, x: Tensor, largest: int = LARGEST) -> str:
    """Write an image (1, C, H, W) as a PNG of at most `largest` pixels a side, and return the file's name."""
    write_picture(path, _shrunk(x, largest)[0], "png")
    return str(path)


def save_view(path: Path, x: Tensor, profile: bytes = b"") -> str:
    """Write an image (1, C, H, W) to look at with all its pixels, with the ending that it gets; return the name."""
    x = _shrunk(x, round(max(x.shape[-2:]) * min(1.0, (MOST / x[0, 0].numel()) ** 0.5)))
    origin = Origin("JPEG" if x[0, 0].numel() > FULL else "PNG", profile=profile)
    path = path.with_suffix(origin.ending)
    write_picture(path, x[0], "same", origin=origin)
    return str(path)


def save_canvas(path: Path, x: Tensor) -> str:
    """Write an image (1, C, H, W) to paint on: shrunk or enlarged until its longer side has `CANVAS` pixels."""
    factor = CANVAS / max(x.shape[-2:])
    if factor > 1:
        x = F.interpolate(x, size=[round(side * factor) for side in x.shape[-2:]], mode="bicubic").clamp(-1, 1)
    return save_preview(path, x, CANVAS)


def save_heat_map(path: Path, std: Tensor) -> float:
    """Draw a standard deviation of images in [-1, 1], (1, C, H, W), as colors with a scale in gray levels.

    Parameters
    ----------
    path
        The picture to write; the ending of its name says in which format.
    std
        The standard deviation (1, C, H, W), in the units of images in [-1, 1]. The colors show its average over the
        channels.

    Returns
    -------
    The mean of the standard deviation over all pixels and channels, in gray levels of 255.
    """
    from matplotlib.figure import Figure  # without pyplot, which keeps figures and is made for one thread

    values = (_shrunk(std.mean(1, keepdim=True), 1000)[0, 0] * GRAY_LEVELS).cpu().numpy()
    H, W = values.shape
    figure = Figure(figsize=(6.4, max(2.4, min(9.0, 5.2 * H / W + 0.4))), layout="constrained")
    axes = figure.subplots()
    axes.axis("off")
    drawn = axes.imshow(values, cmap="inferno", vmin=0, vmax=max(float(np.percentile(values, 99.9)), 1e-3))
    bar = figure.colorbar(drawn, ax=axes, fraction=0.05, pad=0.02)
    bar.set_label("gray levels of 255", fontsize=13)
    bar.ax.tick_params(labelsize=12)
    figure.savefig(path, dpi=110)
    return float(std.mean()) * GRAY_LEVELS


def save_trade_off(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    """Draw PSNR (distortion) against LPIPS (perception), one point for each number of steps; return the file's name.

    Each of `rows` has "N", "psnr" and "lpips".
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    points = [(row["lpips"], row["psnr"]) for row in rows]
    axes.plot(*zip(*points, strict=True), "o-", color="#1d4ed8")
    away = cycle(((4, -18), (-4, 10)))  # below and above in turn: neighbors may be close
    for row, point in zip(rows, points, strict=True):
        axes.annotate(f"N = {row['N']}", point, xytext=next(away), textcoords="offset points", fontsize=12)
    axes.set_xlabel("LPIPS: to the left looks more real", fontsize=12)
    axes.set_ylabel("PSNR in dB: up has less error", fontsize=12)
    axes.margins(0.15)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    return str(path)


def painted(layers: Sequence[bytes]) -> NDArray[np.bool_] | None:
    """Find where a brush has painted: True or False for each pixel, (H, W); None if nothing is painted.

    The layers of the page's editor, image files with transparency, are opened as all pictures are, and refused from
    their headers if they are larger than the page makes them.
    """
    found: NDArray[np.bool_] | None = None
    for data in layers[:MAX_LAYERS]:
        with open_picture(io.BytesIO(data)) as layer:
            require(layer.width * layer.height <= MAX_LAYER, "the painted layer is larger than the page makes them")
            alpha = np.asarray(layer.convert("RGBA"))[:, :, 3] > 0
        found = alpha if found is None or found.shape != alpha.shape else found | alpha
    return found if found is not None and found.any() else None
