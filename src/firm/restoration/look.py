"""What is wrong with a photograph: a look at its noise, its compression and its sharpness, and what to do about it."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from firm.blind import looks_moved
from firm.restoration.estimates import GOOD, estimate_blur, has_blocks, jpeg_quality
from firm.restoration.grain import Grain, estimate_grain

CLEAN = 2 / 127.5  # two gray levels: of 80 photographs without noise 6 had surely more, of those with five levels 77
SOFT = 1.0  # pixels: the width of a blur from which on a photograph gains by sharpening
MIDDLE = 512  # pixels: of a larger picture the middle tells whether the camera moved
SURE = 0.3  # of an estimated blur: below, it does more harm than good (experiments/blind_deblurring)
GRAINY = 0.12  # a level of 15 of 255, above which the blur of what lies below cannot be seen


class NothingToDoError(Exception):
    """A photograph that needs nothing; the message says what was looked for."""


@dataclass(frozen=True)
class Look:
    """What was found in a photograph, and what to do."""

    task: str  # of `Problem.from_file`; "" where the photograph needs nothing
    finding: str  # in words, such as "grain of about 12 of 255 levels"
    sigma: float  # the noise level to tell the model
    moved: bool = False  # a motion blurred it, and `firm.blind.estimate_kernel` is to find out which

    def __str__(self) -> str:
        return f"{self.finding}: {_DOES[self.task]}"


_DOES = {
    "denoising": "its noise is removed",
    "deblurring": "it is sharpened",
    "": "it needs nothing, and was left as it is (--task denoising restores it all the same)",
}


def look(path: Path, image: Tensor) -> Look:
    """Look at a photograph, (1, C, H, W) in [-1, 1], that was read from a file; its header tells of a JPEG.

    Noise and the marks of compression are removed together, at the level that both have (`estimate_grain`). A
    photograph without them that is blurred by a pixel or more, or by a motion, is sharpened. What was found in the last
    file is known the next time: the page says it when a picture is chosen, and needs it when it is restored.
    """
    status, values = path.stat(), float(image[..., ::16, ::16].sum())
    file = (os.path.abspath(path), status.st_size, status.st_mtime_ns, tuple(image.shape), values)
    known = _last.get("look")
    if known is None or known[0] != file:
        known = _last["look"] = (file, _look(path, image))
    return known[1]


_last: dict[str, tuple[object, Look]] = {}  # the file that was looked at, and what was found


def _look(path: Path, image: Tensor) -> Look:
    grain, quality = estimate_grain(image), jpeg_quality(path)
    compressed = (quality is not None and quality <= GOOD) or (quality is None and has_blocks(image))
    width = 0.0
    if grain.level < GRAINY:
        with suppress(ValueError):  # sharp, or it does not tell
            width = estimate_blur(image).width
    if grain.least > (CLEAN / 2 if compressed else CLEAN):
        return Look("denoising", _words(grain, quality, compressed), grain.sigma)
    top, left = (max(0, n - MIDDLE) // 2 for n in image.shape[-2:])
    if looks_moved(image[..., top : top + MIDDLE, left : left + MIDDLE]):
        return Look("deblurring", "the camera or something moved", grain.sigma, moved=True)
    if width >= SOFT:
        return Look("deblurring", f"a blur of about {width:.1f} pixels", grain.sigma)
    return Look("", "neither noise nor blur that would show", grain.sigma)


def _words(grain: Grain, quality: int | None, compressed: bool) -> str:
    """Name the noise, and the compression that it comes with."""
    marks = " and the marks of a JPEG" + (f" of quality {quality}" if quality else "") if compressed else ""
    kind = "coarse grain" if grain.coarse else "noise"
    return f"{kind} of about {127.5 * grain.level:.0f} of 255 levels{marks}"
