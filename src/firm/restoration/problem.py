"""From a picture file to an inverse problem: operator, measurements, noise level."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from firm.data.picture import read_picture
from firm.operators import Blur, Identity, Mask, Operator, Subsample, gaussian_kernel
from firm.restoration.noise import estimate_noise
from firm.tasks import PARAMETERS, Task, TaskName

PictureTask = Literal["denoising", "deblurring", "super-resolution", "inpainting"]


class ProblemError(ValueError):
    """Settings that do not make a restoration problem; the message says what is missing or wrong."""


@dataclass(frozen=True)
class Problem:
    """One picture to restore."""

    op: Operator
    y: Tensor  # measurements of one image, (1, ...)
    sigma: float  # their noise level
    shown: Tensor  # the measurement as a picture, (1, C, h, w)
    settings: dict[str, Any]  # of the task, for the report; sigma is that of the picture
    truth: Tensor | None = None  # (1, C, H, W), where a clean picture was degraded
    grey: bool = False  # three equal channels
    margin: int = 0  # pixels around the picture that are restored and cut off again

    def to(self, device: torch.device) -> Problem:
        """The same on another device."""
        truth = None if self.truth is None else self.truth.to(device)
        return Problem(
            self.op.to(device), self.y.to(device), self.sigma, self.shown.to(device), self.settings, truth, self.grey,
            self.margin,
        )  # fmt: skip

    def finish(self, x: Tensor) -> Tensor:
        """Cut the margin off restored images (..., C, H, W); a grey picture gets one channel back."""
        if self.margin:
            x = x[..., self.margin : -self.margin, self.margin : -self.margin]
        return x.mean(-3, keepdim=True) if self.grey else x


def picture_problem(
    path: Path,
    task: PictureTask,
    *,
    sigma: float | None = None,
    mask: Path | None = None,
    blur: float | None = None,
    scale: int | None = None,
) -> Problem:
    """A degraded picture to restore as it is. Without `sigma` the noise level is estimated (`estimate_noise`).

    Parameters
    ----------
    path
        The picture, of any size, grey or colour.
    task
        "inpainting" needs `mask`, "deblurring" needs `blur`; "super-resolution" takes `scale`, 2 if not given.
    sigma
        Noise level in units of pictures in [-1, 1]: twice that of [0, 1], and 2/255 of that of 0..255.
    mask
        A picture of the same size, white where pixels are missing.
    blur
        Standard deviation of the Gaussian blur, in pixels. The picture is continued by its mirror image.
    scale
        Factor between the sides of the result and of the picture.
    """
    given = {"mask": mask, "blur": blur, "scale": scale}
    own = {"denoising": None, "deblurring": "blur", "super-resolution": "scale", "inpainting": "mask"}
    if task not in own:
        raise ProblemError(f"no task {task!r} for pictures; there are {', '.join(own)}")
    for key, value in given.items():
        if value is not None and key != own[task]:
            raise ProblemError(f"{key} does not belong to {task}")
    if sigma is not None and not 0 <= sigma < math.inf:
        raise ProblemError(f"sigma must be 0 or more, got {sigma}")
    picture = read_picture(path)[None]
    settings: dict[str, Any] = {"task": task}
    op: Operator
    y, seen, margin = picture, None, 0
    if task == "denoising":
        op = Identity()
    elif task == "deblurring":
        if blur is None or not 0 < blur <= 10:
            raise ProblemError(
                f"deblurring needs the blur's standard deviation in pixels, above 0 and up to 10: {blur}"
            )
        reach = math.ceil(4 * blur)
        op = Blur(gaussian_kernel(2 * reach + 1, blur))
        margin = min(16 + reach, *(n - 1 for n in picture.shape[-2:]))  # the operator is periodic, the world is not
        y = F.pad(picture, (margin,) * 4, mode="reflect") if margin else picture
        settings["blur"] = blur
    elif task == "super-resolution":
        scale = 2 if scale is None else scale
        if not 1 <= scale <= 8:
            raise ProblemError(f"super-resolution: scale must be from 1 to 8, got {scale}")
        op = Subsample(scale)
        settings["factor"] = scale
    else:
        if mask is None:
            raise ProblemError("inpainting needs a mask: a picture of the same size, white where pixels are missing")
        seen = _read_mask(mask, picture)
        op = Mask(seen)
        settings["missing"] = round(1 - float(seen.mean()), 4)
    settings["estimated"] = sigma is None
    try:
        sigma = estimate_noise(picture, seen) if sigma is None else sigma
    except ValueError as error:
        raise ProblemError(f"{path}: {error}") from error
    settings["sigma"] = sigma
    grey, shown = _is_grey(picture), picture if seen is None else picture * seen
    if grey:
        y, sigma = independent_channels(y[:, :1], sigma)
    return Problem(op, y, sigma, shown, settings, None, grey, margin)


def simulated_problem(path: Path, name: TaskName, settings: dict[str, Any], seed: int = 0) -> Problem:
    """A clean picture, degraded as in the paper's task `name`, of any size; `settings` change the task's own."""
    truth = read_picture(path)[None]
    grey = _is_grey(truth)
    try:
        task = Task(name, (int(truth.shape[-2]), int(truth.shape[-1])), **settings)
        op, y = task.measure(truth[:, :1] if grey else truth, seed)
    except ValueError as error:
        raise ProblemError(str(error)) from error
    assert task.sigma is not None
    shown = y if not y.is_complex() else op.A_adjoint(y)
    own = {key: getattr(task, key) for key in PARAMETERS[name]}
    about = {"task": name, "estimated": False, **own, "sigma": task.sigma}
    y, sigma = independent_channels(y, task.sigma) if grey else (y, task.sigma)
    return Problem(op, y, sigma, shown, about, truth, grey)


def independent_channels(y: Tensor, sigma: float) -> tuple[Tensor, float]:
    """Measurements (B, 1, ...) of a grey picture as those of three equal channels with independent noise.

    Models for colour expect independent noise, three copies of one channel share theirs. Adding noise that sums to
    zero over the channels, of the right size, makes it independent with deviation sqrt(3) sigma, and leaves the mean
    of the channels, which is all that is known, as it was.
    """
    level = math.sqrt(3) * sigma
    noise = torch.randn(
        (len(y), 3, *y.shape[2:]), dtype=y.dtype, generator=torch.Generator().manual_seed(0)
    )  # of one seed: the same picture gives the same result
    return y + level * (noise - noise.mean(1, keepdim=True)), level


def _read_mask(path: Path, picture: Tensor) -> Tensor:
    """1 = seen, (H, W), from a picture that is white where pixels are missing."""
    missing = read_picture(path, channels=1)[0] > 0
    if missing.shape != picture.shape[-2:]:
        (h, w), (H, W) = missing.shape, picture.shape[-2:]
        raise ProblemError(f"the mask {path} has {w}x{h} pixels, the picture {W}x{H}: they must be of one size")
    if bool(missing.all()):
        raise ProblemError(f"the mask {path} is white everywhere: nothing is left of the picture")
    return 1 - missing.float()


def _is_grey(picture: Tensor) -> bool:
    return bool((picture == picture[:, :1]).all())


def advice(card: dict[str, Any], problem: Problem) -> list[str]:
    """Sentences on where a problem lies outside what the model was trained for; empty if it does not, or is unknown."""
    name = problem.settings["task"]
    wanted = ("random-inpainting", "box-inpainting", "stroke-inpainting") if name == "inpainting" else (name,)
    entries = [e for e in card.get("trained_for", []) if isinstance(e, dict) and e.get("name") in wanted]
    if not entries:
        return [f"the model was not trained for {name}"] if card.get("trained_for") else []
    out = []
    if name == "inpainting" and not any(e["name"] == "stroke-inpainting" for e in entries):
        out.append("the model was trained for single missing pixels and a centred box; other holes may show")
    keys = ("sigma",) if name == "inpainting" else ("sigma", *PARAMETERS[name])  # a real mask has no parameters
    for key in keys:
        value = problem.sigma if key == "sigma" else problem.settings.get(key)
        known = [e[key] if isinstance(e[key], list | tuple) else (e[key], e[key]) for e in entries if key in e]
        if value is None or not known:
            continue
        low, high = min(k[0] for k in known), max(k[1] for k in known)
        if not low * 0.99 <= value <= high * 1.01:
            trained = f"{low:g}" if low == high else f"{low:g} to {high:g}"
            out.append(f"{key} {value:.3g} is not what the model was trained for, {trained}")
    return out
