"""What a visitor asks for, whether it can be done, and the library's problem and command line that it stands for."""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from PIL import Image

from firm._sampling import Quality
from firm._util.checks import require, require_seed
from firm.data.array_file import is_array_file
from firm.data.opening import PictureError
from firm.data.picture import read_picture
from firm.demo.previews import GRAY_LEVELS
from firm.restoration import Problem, ProblemError
from firm.restoration.look import NothingToDoError, look
from firm.tasks.demosaicing import BAYER

# What is wrong with a picture; "fix" is what a look at it finds.
Trouble = Literal["fix", "noise", "blur", "motion", "small", "holes", "pixels", "mosaic"]
Color = Literal["black", "white"]
SCALES = (2, 3, 4)
FILTER = "bicubic"  # as most programs shrink; a clean picture is subsampled instead, which works for any size
# For each trouble: what the page calls it, the task that undoes it, the task that does it to a clean picture, and the
# noise that is added then, in gray levels (near the paper's).
TROUBLES: dict[Trouble, tuple[str, str | None, str, float]] = {
    "fix": ("Just fix it", None, "denoising", 25.0),
    "noise": ("Noise, JPEG", "denoising", "denoising", 25.0),
    "blur": ("Out of focus", "deblurring", "deblurring", 6.0),
    "motion": ("Shaken", "motion-deblurring", "motion-deblurring", 2.0),
    "small": ("Too small", "super-resolution", "super-resolution", 6.0),
    "holes": ("Scratches", "inpainting", "stroke-inpainting", 1.5),
    "pixels": ("Lost pixels", "inpainting", "random-inpainting", 1.5),
    "mosaic": ("Raw mosaic", "demosaicing", "demosaicing", 1.5),
}
NO_WIDTH = "needs the *Width of the blur*, in pixels"


class RequestError(ValueError):
    """A request that cannot be met; the message is for the visitor."""


class Upload(NamedTuple):
    """A file in the page's folder, and what the visitor calls it."""

    path: Path
    name: str

    def describe(self, limits: Limits) -> str:
        """Say in a line of Markdown how large a picture is and what a look finds, or what is wrong with the file."""
        try:
            image = read_picture(self.path, max_megapixels=limits.megapixels)
        except PictureError as error:
            return f"**{for_visitors(str(error).replace(str(self.path), self.name))}**"
        size = f"{image.shape[-1]} x {image.shape[-2]} pixels"
        with suppress(ValueError):  # too few pixels to tell
            return f"{size}; {for_visitors(str(look(self.path, image[None])))}."
        return f"{size}."


@dataclass(frozen=True)
class Limits:
    """How much one request may ask for, and how many requests may wait."""

    megapixels: float = 2.1  # of the picture, and of the result, 1920 x 1080: each takes up to 0.23 GB of memory
    megabytes: int = 30  # of a file
    uploads: int = 1000  # megabytes of all files that visitors bring and get; the uploads of one, a fifth of that
    calls: float = 5000  # of the network, each for one tile of the picture
    minutes: float = 15.0  # of computing
    pictures: int = 24  # of one request
    waiting: int = 64  # requests in the queue
    steps: int = 50
    iterations: int = 8
    samples: int = 16


@dataclass(frozen=True)
class Request:
    """One picture to restore. Noise is in gray levels, 0 to 255, as photographers count them."""

    picture: Path
    name: str  # what the visitor calls the file
    model: str
    clean: bool = False  # it is degraded first, so that the truth is known
    trouble: Trouble = "noise"
    noise: float | None = None  # gray levels; None estimates it (and, for a clean picture, takes the task's default)
    strength: float = 1.0  # what a noise level that is estimated is multiplied by
    blur: float = 1.0  # standard deviation, pixels; 0 estimates it
    length: float = 10.0  # of a motion, pixels
    angle: float = 0.0  # degrees from horizontal
    pattern: str = "rggb"  # colors of a sensor's first four pixels
    scale: int = 2
    mask: Path | None = None  # holes, white = missing
    color: Color = "black"  # of missing pixels
    missing: float = 0.5  # share of pixels to take from a clean picture
    strokes: int = 8  # scratches on a clean picture
    quality: Quality = "faithful"
    steps: int | None = None  # None: those of the quality
    iterations: int | None = None
    samples: int = 1
    seed: int = 0

    @classmethod
    def from_controls(cls, picture: Upload, values: Mapping[str, Any]) -> Request:
        """Make a request of the values that a browser or a program has sent; None stands for the default.

        Numbers stay what they are: `check` refuses those that should be whole and are not.
        """
        given = {key: value for key, value in values.items() if value is not None}
        for key, value in given.items():
            if key in ("noise", "strength", "blur", "length", "angle", "missing"):
                given[key] = float(value)
            elif isinstance(value, float) and value.is_integer():
                given[key] = int(value)
        return cls(picture.path, picture.name, **given)

    @property
    def sigma(self) -> float | None:
        """The noise level for pixels in [-1, 1], with the digits that the command line is shown."""
        return None if self.noise is None else float(f"{2 * self.noise / 255:.5g}")

    @property
    def task(self) -> str | None:
        """The library's name of what is wrong; None for what a look finds."""
        _, task, simulated, _ = TROUBLES[self.trouble]
        return simulated if self.clean else task

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the task that the visitor chooses, by the names of the command line's options."""
        every: dict[str, dict[str, Any]] = {
            "blur": {"blur": self.blur} if self.blur else {}, "mosaic": {"pattern": self.pattern},
            "motion": {"length": self.length, "angle": self.angle},
            "small": {"scale": self.scale} | ({} if self.clean else {"filter": FILTER}),
            "pixels": {"missing": self.missing} if self.clean else {},
            "holes": {"strokes": self.strokes} if self.clean else {},
        }  # fmt: skip
        return every.get(self.trouble, {})

    def check(self, limits: Limits) -> None:
        """Raise `RequestError` for what is out of range; the picture itself is checked when it is read."""
        need = partial(require, error=RequestError)
        arrays = is_array_file(self.picture) or is_array_file(Path(self.name))
        need(not arrays, f"{self.name}: the page takes pictures; arrays go through the command line")
        need(self.picture.is_file(), f"{self.name} has been removed, to make room or after an hour: choose it again")
        size = self.picture.stat().st_size
        need(size <= limits.megabytes * 1e6, f"{self.name}: the file has more than {limits.megabytes} MB")
        need(self.trouble in TROUBLES, f"what is wrong must be {', '.join(TROUBLES)}, not {self.trouble!r}")
        painted = self.trouble != "holes" or self.clean or self.mask is not None
        need(painted, "paint over what is missing first: the brush is below the picture")
        need(self.pattern in BAYER, f"the first four pixels are {', '.join(BAYER)}, not {self.pattern!r}")
        need(self.color in get_args(Color), f"missing pixels are black or white, not {self.color!r}")
        need(self.quality in get_args(Quality), f"the quality is {', '.join(get_args(Quality))}, not {self.quality!r}")
        need(self.scale in SCALES, f"the picture can become 2, 3, 4 times larger, not {self.scale}")
        for what, value, low, high in (  # limits without a point are those of whole numbers
            ("the noise level", self.noise or 0, 0.0, 255.0), ("the width of the blur", self.blur or 1.0, 0.1, 10.0),
            ("the share of missing pixels", self.missing, 0.0, 0.99), ("steps", self.steps or 1, 1, limits.steps),
            ("iterations", self.iterations or 1, 1, limits.iterations), ("samples", self.samples, 1, limits.samples),
            ("scratches", self.strokes, 1, 100), ("the length of the motion", self.length, 1.0, 101.0),
            ("its direction", self.angle, 0.0, 180.0), ("the strength", self.strength, 0.1, 10.0),
        ):  # fmt: skip
            kind = "a whole number " if isinstance(low, int) else ""
            fits = low <= value <= high and (isinstance(value, int) or not kind)
            need(fits, f"{what} must be {kind}from {low:g} to {high:g}, got {value:g}")
        require_seed(self.seed, RequestError)

    def write_mask(self, limits: Limits, folder: Path) -> Path | None:
        """Write the mask of the picture, white where pixels are missing, to `folder`; None for other problems.

        It comes from the color of missing pixels, or from what was painted, in the size of the picture.
        """
        if self.task != "inpainting":
            return None
        pixels = read_picture(self.picture, max_megapixels=limits.megapixels, dtype=torch.uint8).numpy()
        if self.mask is None:
            missing = (pixels == (0 if self.color == "black" else 255)).all(0)
            nothing = f"no pixel of the picture is {self.color}: nothing is missing"
        else:
            mask = read_picture(self.mask, channels=1, max_megapixels=limits.megapixels, dtype=torch.uint8)
            painted = Image.fromarray((mask[0].numpy() > 127).astype(np.uint8) * 255)
            # A thin stroke on a large canvas must not fall between the pixels of a small picture.
            missing = np.asarray(painted.resize((pixels.shape[2], pixels.shape[1]), Image.Resampling.BOX)) > 0
            nothing = "nothing is painted: paint over what is missing"
        require(missing.any(), nothing, RequestError)
        require(not missing.all(), "everything is missing: nothing is left of the picture", RequestError)
        path = folder / "mask.png"
        Image.fromarray(missing).convert("L").save(path)
        return path

    def problem(self, channels: int, limits: Limits, mask: Path | None) -> Problem:
        """Read the picture and state the library's problem.

        Parameters
        ----------
        channels
            How many channels the images of the model have, 1 or 3.
        limits
            How many megapixels the picture may have or, where it is to be enlarged, the result.
        mask
            What `write_mask` has returned.
        """
        if self.clean:
            given = {"factor" if key == "scale" else key: value for key, value in self.settings.items()}
            given |= {} if self.sigma is None else {"sigma": self.sigma}
            return Problem.simulated(self.picture, str(self.task), given, self.seed, channels, None, limits.megapixels)
        larger = self.scale**2 if self.trouble == "small" else 1  # how many more pixels the result has
        return Problem.from_file(
            self.picture, self.task, sigma=self.sigma, strength=self.strength, mask=mask, channels=channels,
            max_megapixels=limits.megapixels / larger, **self.settings,
        )  # fmt: skip

    def command(self, mask: str | None = None, picture: str | None = None) -> str:
        """Write the command line that gives the same result, with these names of the files.

        The picture is named as the visitor calls it if no other name is given.
        """
        name = f"./{self.name}" if self.name.startswith("-") else self.name  # or it would be taken for an option
        estimated = self.sigma is None and not self.clean
        options = {"simulate" if self.clean else "task": self.task} | self.settings | {
            "sigma": None if self.sigma is None else f"{self.sigma:g}", "mask": mask, "model": self.model,
            "strength": self.strength if estimated and self.strength != 1 else None,
            "quality": self.quality, "steps": self.steps, "iterations": self.iterations, "samples": self.samples,
            "seed": self.seed,
        }  # fmt: skip
        words = ["firm", "restore", picture or name]
        for option, value in options.items():
            words += [] if value is None else [f"--{option}", str(value)]
        return shlex.join(words)

    def explain(self, error: Exception) -> str:
        """Say what went wrong to the visitor, with the file by its own name; what nobody expected goes to the log."""
        if not isinstance(error, PictureError | ProblemError | RequestError | NothingToDoError):
            logging.getLogger("firm").error("a request failed", exc_info=error)
            return f"the picture could not be restored ({type(error).__name__})"
        text = str(error).replace(str(self.picture), self.name)
        return for_visitors(text if self.mask is None else text.replace(str(self.mask), "mask"))


def for_visitors(text: str) -> str:
    """Say a message of the library in the words of the page: noise in gray levels, and no options, which it has not.

    A part of the message that names an option other than the noise level is left out.
    """
    if text.startswith("sigma "):  # a note on the noise: its level, and those that the model was trained for
        text = re.sub(r"\d[\d.]*(e-\d+)?", lambda n: _gray_levels(n[0]), text.replace("sigma", "a noise level of", 1))
    text = re.sub(r"--sigma ([\d.]+)", lambda found: f"a noise level of {_gray_levels(found[1])}", text)
    text = text.replace("--sigma", "*Noise level*")  # the slider
    text = text.replace("--task denoising restores", "*Noise* restores")  # a photograph that needs nothing
    text = text.replace("needs the blur's standard deviation in pixels: give --blur, or its --kernel", NO_WIDTH)
    text = text.replace(" (max_megapixels; --max-megapixels on the command line)", ", which the page's host can raise")
    text = re.sub(r" \([^()]*--[^()]*\)|[:;] [^:;]*--[^;]*", "", text)
    return text.partition(" by its mask")[0]  # the mask is painted, or made from a color: it is the right way round


def _gray_levels(sigma: str) -> str:
    level = float(sigma) * GRAY_LEVELS
    return f"{level:.0f}" if level > 10 else f"{level:.2g}"
