"""What a visitor asks for, and whether it is within the limits."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from firm._util.seeds import require_seed
from firm.data.array_file import is_array_file
from firm.data.picture import MAX_MEGAPIXELS, PictureError
from firm.demo.wording import for_visitors
from firm.restoration import ProblemError

Trouble = Literal["noise", "blur", "small", "holes", "pixels"]  # what is wrong with a picture
Color = Literal["black", "white"]
SCALES = (2, 3, 4)


class RequestError(ValueError):
    """A request that cannot be met; the message is for the visitor."""


@dataclass(frozen=True)
class Limits:
    """How much one request may ask for."""

    megapixels: float = MAX_MEGAPIXELS  # of the picture, and of the result
    megabytes: int = 30  # of a file
    waiting: int = 64  # requests in the queue
    steps: int = 50
    samples: int = 16


@dataclass(frozen=True)
class Request:
    """One picture to restore. Noise is in gray levels, 0 to 255, as photographers count them."""

    picture: Path
    name: str  # what the visitor calls the file
    model: str
    clean: bool = False  # it is degraded first, so that the truth is known
    trouble: Trouble = "noise"
    noise: float | None = None  # gray levels; None estimates it (and, for a clean picture, takes the task's own)
    blur: float = 1.0  # standard deviation, pixels
    scale: int = 2
    mask: Path | None = None  # holes, white = missing
    color: Color = "black"  # of missing pixels
    missing: float = 0.5  # share of pixels to take from a clean picture
    strokes: int = 8  # scratches on a clean picture
    steps: int = 2
    samples: int = 1
    seed: int = 0

    @property
    def sigma(self) -> float | None:
        """The noise level for pixels in [-1, 1], with the digits that the command line is shown."""
        return None if self.noise is None else float(f"{2 * self.noise / 255:.5g}")


def check(request: Request, limits: Limits) -> None:
    """Refuse what is out of range, in words; the picture itself is checked as it is read."""
    if is_array_file(request.picture) or is_array_file(Path(request.name)):
        raise RequestError(f"{request.name}: the page takes pictures; arrays go through the command line")
    if request.picture.is_file() and request.picture.stat().st_size > limits.megabytes * 1e6:
        raise RequestError(f"{request.name}: the file has more than {limits.megabytes} MB")
    if request.trouble not in get_args(Trouble):
        raise RequestError(f"what is wrong must be {', '.join(get_args(Trouble))}, not {request.trouble!r}")
    if request.trouble == "holes" and not request.clean and request.mask is None:
        raise RequestError("paint over what is missing first: the brush is below the picture")
    if request.color not in get_args(Color):
        raise RequestError(f"missing pixels are {' or '.join(get_args(Color))}, not {request.color!r}")
    if request.scale not in SCALES:
        raise RequestError(f"the picture can become {', '.join(map(str, SCALES))} times larger, not {request.scale}")
    _within("the noise level", request.noise, 0, 255)
    _within("the width of the blur", request.blur, 0.1, 10)
    _within("the share of missing pixels", request.missing, 0, 0.99)
    for what, value, most in (("steps", request.steps, limits.steps), ("samples", request.samples, limits.samples)):
        if not isinstance(value, int) or not 1 <= value <= most:
            raise RequestError(f"{what} must be a whole number from 1 to {most}, got {value}")
    if not 1 <= request.strokes <= 100:
        raise RequestError(f"scratches must be from 1 to 100, got {request.strokes}")
    require_seed(request.seed, RequestError)


def _within(what: str, value: float | None, low: float, high: float) -> None:
    if value is not None and not low <= value <= high:
        raise RequestError(f"{what} must be from {low:g} to {high:g}, got {value:g}")


def in_words(error: Exception, request: Request) -> str:
    """What went wrong, for the visitor: the file by its own name, not by where the server keeps it, and no options."""
    if isinstance(error, PictureError | ProblemError | RequestError):
        text = str(error).replace(str(request.picture), request.name)
        if request.mask is not None:
            text = text.replace(str(request.mask), "mask")
        return for_visitors(text)
    logging.getLogger("firm").error("a request failed", exc_info=error)  # for who runs the page
    return f"the picture could not be restored ({type(error).__name__})"
