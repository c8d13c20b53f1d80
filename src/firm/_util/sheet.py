"""Pictures side by side under their titles, pixel by pixel: what was restored is not resampled to be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

Panel = tuple[str, Tensor]  # a title, and an image (C, H, W) in [-1, 1] or a standard deviation (H, W)

LEAST = 200  # pixels: narrower panels are enlarged, each pixel to a square, so that titles fit
MOST = 100e6  # pixels of a sheet: a larger one is shrunk by a whole factor
GAP, TEXT = 8, 14  # pixels between panels, and of the letters
BAR = 12  # width of a color scale
# matplotlib's "inferno" at 25 places (CC0); in between, straight lines stay within 4 of 255.
_INFERNO = (
    "000004 050417 110a30 210c4a 320a5e 450a69 57106e 67166e 781c6d 8a226a 9a2865 ab2f5e bc3754 "
    "ca404a d84c3e e45a31 ed6925 f57b17 f98e09 fca108 fbb61a f9cb35 f4df53 f2f27d fcffa4"
)


def sheet(rows: Sequence[Sequence[Panel]]) -> Image.Image:
    """Lay panels side by side in one picture, a list of them for each row.

    A pixel of a panel is a pixel of the sheet, or a square of them: small pictures are enlarged, and those of fewer
    pixels than their neighbors (a measurement for super-resolution) to the size of these. Of images with other than
    one or three channels the first is shown; a standard deviation is drawn in colors, with a scale.
    """
    shapes = [panel.shape[-2:] for row in rows for _, panel in row]
    H, W = max(h for h, _ in shapes), max(w for _, w in shapes)
    enlarged = max(1, -(-LEAST // W))
    shrunk = max(1, int(np.ceil(np.sqrt(len(shapes) * H * W * enlarged**2 / MOST))))
    pictures = [[_picture(panel, (H, W), enlarged, shrunk) for _, panel in row] for row in rows]
    widths = [0] * max(len(row) for row in rows)
    for row, drawn in zip(rows, pictures, strict=True):
        for j, ((title, _), picture) in enumerate(zip(row, drawn, strict=True)):
            widths[j] = max(widths[j], picture.width, int(np.ceil(_font().getlength(title))))
    height = max(picture.height for row in pictures for picture in row) + TEXT + 2 * GAP
    out = Image.new("RGB", (sum(widths) + GAP * (len(widths) + 1), height * len(rows) + GAP), "white")
    draw = ImageDraw.Draw(out)
    for i, row in enumerate(rows):
        left = GAP
        for j, (title, _) in enumerate(row):
            draw.text((left, i * height + GAP), title, fill="black", font=_font())
            out.paste(pictures[i][j], (left, i * height + TEXT + 2 * GAP))
            left += widths[j] + GAP
    return out


def _picture(panel: Tensor, size: tuple[int, int], enlarged: int, shrunk: int) -> Image.Image:
    """Draw one panel, in color; smaller ones than `size`, (H, W), are enlarged further, by a whole factor."""
    panel = panel.detach().cpu().float()
    spread = panel.ndim == 2
    top = max(float(panel.max()), 1e-9) if spread else 1.0
    if spread:
        pixels = inferno((panel / top).clamp(0, 1).numpy())
    else:
        shown = panel if len(panel) in (1, 3) else panel[:1]
        bytes_ = ((shown.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
        pixels = bytes_.expand(3, -1, -1).permute(1, 2, 0).numpy()
    h, w = panel.shape[-2:]
    up = enlarged * max(1, min(size[0] // h, size[1] // w))
    picture: Image.Image = Image.fromarray(np.ascontiguousarray(pixels))
    picture = picture.resize((w * up, h * up), Image.Resampling.NEAREST) if up > 1 else picture
    picture = picture.reduce(shrunk) if shrunk > 1 else picture
    return _with_scale(picture, top) if spread else picture


def _with_scale(picture: Image.Image, top: float) -> Image.Image:
    """Return the picture with a bar of its colors on the right, from 0 at the foot to `top`."""
    high, low = f"{top:.3g}", "0"
    width = max(int(_font().getlength(text)) for text in (high, low))
    out = Image.new("RGB", (picture.width + GAP // 2 + BAR + GAP // 2 + width, picture.height), "white")
    out.paste(picture, (0, 0))
    column = inferno(np.linspace(1, 0, picture.height))
    bar = Image.fromarray(np.ascontiguousarray(np.repeat(column[:, None], BAR, axis=1)))
    out.paste(bar, (picture.width + GAP // 2, 0))
    draw = ImageDraw.Draw(out)
    left = picture.width + GAP // 2 + BAR + GAP // 2
    draw.text((left, 0), high, fill="black", font=_font())
    draw.text((left, picture.height - TEXT), low, fill="black", font=_font())
    return out


@cache
def _font() -> Any:
    return ImageFont.load_default(TEXT)


def inferno(values: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Return colors (..., 3), bytes, of numbers from 0 (black) over red to 1 (pale yellow).

    Matplotlib, whose colors these are, takes longer to load than a picture takes to be restored.
    """
    known = np.array([list(bytes.fromhex(color)) for color in _INFERNO.split()], dtype=np.float64)
    places = np.linspace(0, 1, len(known))
    channels = [np.interp(values, places, known[:, k]) for k in range(3)]
    colors: NDArray[np.uint8] = np.stack(channels, axis=-1).round().astype(np.uint8)
    return colors
