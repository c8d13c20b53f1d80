"""Whether a picture was compressed as a JPEG, and what that means for restoring it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from torch import Tensor

from firm.data.picture import open_picture

GOOD = 85  # quality: above, smoothing the blocks costs more detail than they do
BLOCKY = (
    0.3  # how much larger the steps between blocks are than others; at most 0.26 on 49 of 50 uncompressed photographs
)
# The luminance table of the standard's Annex K, which quality 50 of the usual programs means.
STANDARD = (16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22,
            29, 51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92, 49, 64, 78, 87, 103,
            121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99)  # fmt: skip


def jpeg_quality(path: str | Path) -> int | None:
    """Quality, 1 to 100, at which a JPEG file was saved, from its quantization table; None for other files."""
    try:
        with warnings.catch_warnings(), open(path, "rb") as file:
            warnings.simplefilter("ignore")
            tables: Any = getattr(open_picture(file), "quantization", None)
    except Exception:  # no picture, or one that Pillow cannot open: whoever reads it says why
        return None
    if not tables:
        return None
    known = [(value, usual) for value, usual in zip(next(iter(tables.values())), STANDARD, strict=True) if value < 255]
    if not known:  # 255 is the most that fits: those entries could be anything
        return 1
    scale = 100 * sum(value for value, _ in known) / sum(usual for _, usual in known)
    quality = (200 - scale) / 2 if scale <= 100 else 5000 / scale  # as libjpeg scales its tables
    return max(1, min(100, round(quality)))


def has_blocks(y: Tensor) -> bool:
    """Whether a picture y (1, C, H, W) has steps every 8 pixels, in rows and columns, as a JPEG leaves them.

    Finds pictures that were saved in another format later, and those of strong compression only: in a test with 50
    photographs, all of quality 20, nine of ten of quality 40 and half of those of quality 60.
    """
    gray = y.detach().cpu().float().mean(1)[0]
    return min(_blockiness(gray), _blockiness(gray.T)) > BLOCKY


def _blockiness(image: Tensor) -> float:
    """By which share the steps between columns (H, W) at the worst of 8 places exceed those at the others."""
    step = image.diff(dim=1)
    excess = (step[:, 1:-1] - (step[:, :-2] + step[:, 2:]) / 2).abs().clamp(max=0.2)  # edges of things are no blocks
    whole = excess.shape[1] // 8 * 8
    if whole < 16:
        return 0.0
    places = excess[:, :whole].mean(0).reshape(-1, 8).mean(0)
    worst = places.max()
    others = (places.sum() - worst) / 7
    return float((worst - others) / others) if float(others) > 0 else 0.0


def jpeg_note(quality: int | None, blocks: bool, task: str) -> str | None:
    """What to say to whoever restores such a picture; None where compression hardly matters."""
    if not blocks and (quality is None or quality > GOOD):
        return None
    found = "this is a JPEG" if quality is not None else "this picture was a JPEG once: it has blocks of 8x8 pixels"
    return f"{found}, and its compression is not undone: {_ADVICE[task].format(level=_level(quality, task))}"


def _level(quality: int | None, task: str) -> float:
    """The noise level that treats the blocks best (experiments/notes/jpeg); those that are seen are strong."""
    if quality is not None and quality >= 70:
        return 0.05
    return 0.2 if task == "deblurring" and (quality is None or quality < 50) else 0.1


_UNSEEN = "the noise estimate does not see it, "
_ADVICE = {
    "denoising": _UNSEEN + "but --sigma {level} smooths the blocks; lost detail stays lost",
    "deblurring": _UNSEEN + "and sharpening shows the blocks: --sigma {level} holds them back, but below "
    "quality 40 the picture may be better as it is",
    "motion-deblurring": _UNSEEN + "and sharpening shows the blocks: --sigma {level} holds them back",
    "super-resolution": _UNSEEN + "and the blocks grow with the picture: --sigma {level} holds them back",
    "inpainting": "the holes are filled, the blocks around them stay; an uncompressed original would be better",
    "demosaicing": "it mixes the values of neighboring pixels, which have different colors here; take them as the "
    "sensor gave them, from a file without loss (PNG, TIFF)",
}
