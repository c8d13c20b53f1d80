"""What the studies' figures share: a grid of pictures pixel by pixel, with zooms and colored maps, and their files."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from firm._util.files import write_atomically

SIDE, GAP, TEXT = 256, 8, 20  # pixels: a panel, between panels, letters
SQUARE = (0.40, 0.27, 0.25)  # what is zoomed: its top, left and side as shares of the picture; an eye of aligned faces
RED = (230, 40, 40)
TOP = 0.1  # where the colors of an error map end in the paper


@dataclass(frozen=True)
class Panel:
    """An image (C, H, W) in [-1, 1], or a map (H, W) in colors; None leaves the place empty."""

    image: Tensor | None
    label: str = ""  # below it, or in the empty place
    zoomed: bool = True  # where the grid has zooms


Rows = Sequence[tuple[str, Sequence[Panel]]]  # their names and panels


def save(figure: Any, path: Path) -> None:
    """Write a matplotlib figure as PNG and close it."""
    import matplotlib.pyplot as plt

    picture = io.BytesIO()
    figure.savefig(picture, dpi=130, format="png")
    plt.close(figure)
    write_atomically(path, picture.getvalue())


BESIDE = ((5, 2), (-5, 2), (5, -9), (-5, -9), (0, 6), (0, -13), (12, 8), (-12, 8), (12, -15), (-12, -15))  # in points


def label_points(axis: Any, points: Sequence[tuple[str, float, float, str]]) -> None:
    """Write (text, x, y, color) beside the points, each where it covers fewest points and earlier texts.

    Once everything is drawn: limits and scales decide what covers what.
    """
    from matplotlib.transforms import Bbox

    axis.figure.draw_without_rendering()
    places = axis.transData.transform([(x, y) for _, x, y, _ in points])
    taken = [Bbox.from_bounds(x - 3, y - 3, 6, 6) for x, y in places]
    for text, x, y, color in points:
        note = axis.annotate(text, (x, y), BESIDE[0], textcoords="offset points", fontsize=7.5, color=color)

        def covered(place: tuple[int, int], note: Any = note) -> int:
            note.xyann = place
            note.set_horizontalalignment("left" if place[0] > 0 else "right" if place[0] < 0 else "center")
            return sum(note.get_window_extent().overlaps(other) for other in taken)

        covered(min(BESIDE, key=covered))  # the first of the best: and there it stays
        taken.append(note.get_window_extent())


def save_grid(path: Path, heads: Sequence[str], rows: Rows, zoom: bool = False, top: float = TOP) -> None:
    """Write a `grid` as PNG."""
    picture = io.BytesIO()
    grid(heads, rows, zoom, top).save(picture, "PNG")
    write_atomically(path, picture.getvalue())


def grid(heads: Sequence[str], rows: Rows, zoom: bool = False, top: float = TOP) -> Image.Image:
    """A grid of panels: `heads` over the columns, the name of every row on its left.

    With `zoom` a square of every panel stands enlarged below it, framed in both. Maps have the colors of one scale from
    0 to `top`, which is shown on the right.
    """
    left = TEXT + 2 * GAP if any(name for name, _ in rows) else GAP
    right, y = left + len(heads) * (SIDE + GAP), TEXT + 2 * GAP
    maps = any(panel.image is not None and panel.image.ndim == 2 for _, row in rows for panel in row)
    labeled = [any(panel.label for panel in row if panel.image is not None) for _, row in rows]
    heights = [(2 * SIDE + GAP if zoom else SIDE) + GAP + (TEXT + GAP if some else 0) for some in labeled]
    out = Image.new("RGB", (right + (4 * TEXT if maps else 0), y + sum(heights)), "white")
    if maps:
        out.paste(_enlarged(_magma(np.linspace(1, 0, SIDE))[:, None], TEXT), (right, y))
        for place, text in ((0, f"{top:.2g}"), (SIDE - TEXT, "0")):
            ImageDraw.Draw(out).text((right + TEXT + GAP // 2, y + place), text, fill="black", font=_font(TEXT))
    for j, head in enumerate(heads):
        _write(out, head, left + j * (SIDE + GAP), GAP)
    for (name, row), height in zip(rows, heights, strict=True):
        if name:  # upwards, beside its panels
            line = Image.new("RGB", (SIDE, TEXT + GAP // 2), "white")
            _write(line, name, 0, 0)
            out.paste(line.rotate(90, expand=True), (GAP // 2, y))
        for j, panel in enumerate(row):
            _draw(out, panel, left + j * (SIDE + GAP), y, zoom, top)
        y += height
    return out


def _draw(out: Image.Image, panel: Panel, x: int, y: int, zoom: bool, top: float) -> None:
    """One panel with its zoom and its label, the upper left corner at (x, y)."""
    if panel.image is None:
        _write(out, panel.label, x, y + SIDE // 2)
        return
    whole = pixels(panel.image, top)
    out.paste(_enlarged(whole), (x, y))
    below = y + SIDE
    if zoom and panel.zoomed:
        below += GAP
        row, column, side = (round(share * len(whole)) for share in SQUARE)
        out.paste(_enlarged(whole[row : row + side, column : column + side]), (x, below))
        draw, up = ImageDraw.Draw(out), SIDE / len(whole)
        for left, upper, width in ((x + column * up, y + row * up, side * up), (x, below, SIDE)):
            draw.rectangle((left, upper, left + width - 1, upper + width - 1), outline=RED, width=2)
        below += SIDE
    _write(out, panel.label, x, below + GAP // 2)


def pixels(image: Tensor, top: float = TOP) -> Any:
    """Colors (H, W, 3) of an image (C, H, W) in [-1, 1], C = 1 or 3, or of a map (H, W), magma from 0 to `top`."""
    image = image.detach().cpu().float()
    if image.ndim == 2:
        return _magma((image / top).clamp(0, 1).numpy())
    shown = ((image.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    return np.ascontiguousarray(shown.expand(3, -1, -1).permute(1, 2, 0).numpy())


def _magma(values: Any) -> Any:
    """Colors (..., 3) of numbers from 0 (black) over violet to 1 (pale yellow)."""
    from matplotlib import colormaps

    return np.ascontiguousarray(colormaps["magma"](values, bytes=True)[..., :3])


def _enlarged(found: Any, width: int = SIDE) -> Image.Image:
    """To a panel's size, each pixel to a square."""
    return Image.fromarray(np.ascontiguousarray(found)).resize((width, SIDE), Image.Resampling.NEAREST)


def _write(out: Image.Image, text: str, x: int, y: int) -> None:
    """A line in the middle of a panel's width, in smaller letters where it would not fit."""
    size = TEXT
    while size > 8 and _font(size).getlength(text) > SIDE:
        size -= 1
    ImageDraw.Draw(out).text((x + SIDE // 2, y), text, fill="black", font=_font(size), anchor="ma")


@cache
def _font(size: int) -> Any:
    return ImageFont.load_default(size)
