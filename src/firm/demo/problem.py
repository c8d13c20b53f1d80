"""From a request to the library's restoration problem."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from firm.data.picture import read_array
from firm.demo.request import Limits, Request, RequestError, Trouble
from firm.restoration import Problem

TASKS: dict[Trouble, str] = {
    "noise": "denoising", "blur": "deblurring", "small": "super-resolution", "holes": "inpainting",
    "pixels": "inpainting",
}  # fmt: skip
SIMULATED: dict[Trouble, str] = {**TASKS, "holes": "stroke-inpainting", "pixels": "random-inpainting"}
FILTER = "bicubic"  # as most programs shrink; a clean picture is thinned out instead, which works for any size


def task_of(request: Request) -> str:
    """The library's name of what is wrong."""
    return (SIMULATED if request.clean else TASKS)[request.trouble]


def settings_of(request: Request) -> dict[str, Any]:
    """The task's settings that the request chooses, by the names of the command line's options."""
    if request.trouble == "blur":
        return {"blur": request.blur}
    if request.trouble == "small":
        return {"scale": request.scale} if request.clean else {"scale": request.scale, "filter": FILTER}
    if request.clean and request.trouble == "pixels":
        return {"missing": request.missing}
    if request.clean and request.trouble == "holes":
        return {"strokes": request.strokes}
    return {}


def problem_of(request: Request, channels: int, limits: Limits, mask: Path | None) -> Problem:
    """Read the picture and state the problem; `mask` is a file, white = missing, for inpainting."""
    settings, largest = settings_of(request), limits.megapixels
    if request.clean:
        settings["factor"] = settings.pop("scale", None)
        settings["sigma"] = request.sigma
        given = {key: value for key, value in settings.items() if value is not None}
        return Problem.simulated(request.picture, task_of(request), given, request.seed, channels, None, largest)
    if request.trouble == "small":
        largest /= request.scale**2  # the result has that many more
    return Problem.from_file(
        request.picture, task_of(request), sigma=request.sigma, mask=mask, channels=channels,
        max_megapixels=largest, **settings,
    )  # fmt: skip


def mask_of(request: Request, limits: Limits, folder: Path) -> Path | None:
    """The file that says what is missing, white = missing, written to `folder`; None where nothing is."""
    if request.clean or request.trouble not in ("holes", "pixels"):
        return None
    pixels = read_array(request.picture, max_megapixels=limits.megapixels)
    if request.trouble == "pixels":
        missing = (pixels == (0 if request.color == "black" else 255)).all(0)
        if not missing.any():
            raise RequestError(f"no pixel of the picture is {request.color}: nothing is missing")
    else:
        assert request.mask is not None
        painted = Image.fromarray(read_array(request.mask, channels=1, max_megapixels=limits.megapixels)[0])
        missing = np.asarray(painted.resize((pixels.shape[2], pixels.shape[1]), Image.Resampling.NEAREST)) > 127
        if not missing.any():
            raise RequestError("nothing is painted: paint over what is missing")
    if missing.all():
        raise RequestError("everything is missing: nothing is left of the picture")
    path = folder / "mask.png"
    Image.fromarray(np.where(missing, 255, 0).astype(np.uint8)).save(path)
    return path
