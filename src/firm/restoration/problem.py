"""An inverse problem made from a file: operator, measurement, noise level, and what the user should know of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from firm._channels import independent
from firm._util.checks import require
from firm._util.custom import custom_code
from firm.blind import estimate_kernel, looks_moved
from firm.data.opening import MAX_MEGAPIXELS
from firm.data.origin import Origin
from firm.data.picture import Range
from firm.metrics import scores, visible
from firm.noise import Gaussian, Noise
from firm.operators import Blur, LinearOperator
from firm.operators.base import is_linear
from firm.operators.complex import AsReal
from firm.operators.jpeg import error_level
from firm.restoration.compression import cells_of
from firm.restoration.estimates import ROUNDING, estimate_blur, jpeg_note
from firm.restoration.levels import estimated_noise, modeled_noise
from firm.restoration.look import SURE, look
from firm.restoration.look import NothingToDoError as NothingToDoError
from firm.restoration.measurement import measured
from firm.restoration.reading import ProblemError as ProblemError
from firm.restoration.reading import Reading, as_problem, check_sigma, picture_settings, read, read_kernel, read_mask
from firm.tasks import BaseTask, built_in, task_class

COPIES_FACTOR = math.sqrt(3)  # of the noise of three copies, see `firm._channels.independent`
LARGE = 1024  # pixels: a motion that a look has found is estimated in the middle
UNSURE = (
    "the camera or something moved, but how cannot be told, and it was left as it is (--task deblurring --kernel auto "
    "tries it all the same)"
)
MOVED = "the picture looks motion-blurred: --kernel auto, which estimates that, may help"


@dataclass(frozen=True)
class Problem:
    """One image to restore; make one with `from_file`, `from_measurement` or `simulated`."""

    op: LinearOperator
    y: Tensor  # measurements, (B, ...): of one image, or of its channels one by one
    sigma: float  # their noise level, on average where there is a model of the noise
    shown: Tensor  # the measurement as a picture, (1, C, h, w)
    settings: dict[str, Any]  # of the task, for the report; sigma is that of the picture
    truth: Tensor | None = None  # (1, C, H, W), where a clean picture was degraded
    gray: bool = False  # three equal channels
    apart: bool = False  # a gray model restores the channels as images of their own
    margin: int = 0  # pixels around the picture that are restored and cut off again
    complex: bool = False  # real channels, then imaginary ones
    array: bool = False  # no picture: results are arrays
    value_range: Range | None = None  # of the array
    alpha: Tensor | None = None  # (h, w), bytes, of a picture with transparency
    noise_factor: float = 1.0  # `sigma` by that of the picture: a gray one gets more noise for a model of color
    origin: Origin = field(default_factory=Origin)  # the file's format, profile, EXIF data
    align: Callable[[Tensor, Tensor], Tensor] | None = None  # of images to the truth, before they are scored
    known: Tensor | None = None  # (1, C, H, W), NaN in the holes: pixels that the result must have exactly
    noise: Noise | None = None  # its model, where it is not Gaussian of one level
    kernel: Tensor | None = None  # (h, w), where it was estimated
    notes: tuple[str, ...] = ()  # for the user

    @property
    def told(self) -> float | Noise:
        """The noise as `firm.restore` takes it: its model, or its level."""
        return self.sigma if self.noise is None else self.noise

    @classmethod
    def from_file(
        cls, path: Path, task: str | None = None, *, sigma: float | None = None, strength: float = 1.0,
        mask: Path | None = None, keep_known: bool | None = None, kernel: Path | Literal["auto"] | None = None,
        channels: int = 3, value_range: Range | None = None, max_megapixels: float = MAX_MEGAPIXELS,
        key: str | None = None, region: int | None = None, **settings: Any,
    ) -> Problem:  # fmt: skip
        """Read a degraded picture or array, to restore it as it is.

        Without `sigma` the noise level is estimated (`estimate_grain`; in arrays, and around holes, `estimate_noise`),
        without `blur` or `kernel` the blur's width (`estimate_blur`). Without a `task` a look decides what a picture
        needs (`firm.restoration.look`); `NothingToDoError` says that it needs nothing.

        Parameters
        ----------
        path
            The picture, of any size, gray or color; or an array file.
        task
            "denoising", "deblurring", "motion-deblurring", "super-resolution", "inpainting", "demosaicing",
            "poisson-denoising" or "camera-denoising"; None for what a look at the picture finds.
        sigma
            Noise level in units of pictures in [-1, 1]: twice that of [0, 1], and 2/255 of that of 0..255.
        strength
            What a noise level that is estimated is multiplied by: 2 smooths more than it suggests, 0.5 less.
        mask
            For inpainting, a picture of the same size, white where pixels are missing; transparent pixels are kept.
        keep_known
            For inpainting: leave the pixels outside the mask exactly as they are. Otherwise their noise is removed too.
            If None, they are left where there is no noise, a level of at most 0.002, which is the rounding to 8 bits.
        kernel
            For deblurring: the point spread function, a small gray picture or an array (h, w). Its center is the pixel
            (h // 2, w // 2). It is divided by its sum. "auto": it is estimated (`firm.blind.estimate_kernel`).
        channels
            That the model takes.
        value_range
            Of an array: what stands for -1 and 1 (complex: 0 and 1); as they are, if not given. Results have it too. Of
            a gray picture of more than 8 bits: black and white; 0 and 65535, or of floats 0 and 1, if not given.
        max_megapixels
            Larger pictures, and masks, are refused from their header.
        key
            The name of the array in a file that holds several.
        region
            Restore only the middle, a square of so many pixels, for a preview; what is estimated is that of the whole.
        settings
            Of the task: `blur` (standard deviation in pixels) for deblurring; `length` and `angle` for motion; `scale`
            (2 if not given) and `filter` ("bicubic" if not given, "box" or "stride") for super-resolution; `pattern`
            ("rggb" if not given) for demosaicing; `peak` for photons, and `gain` and `read` for a camera's noise, both
            estimated if not given (`fit_photons`).
        """
        reading = read(path, channels, value_range, max_megapixels, key)
        notes: list[str | None] = [*reading.notes]
        found, moved = sigma, False
        if task is None:
            require(not reading.array, f"{path}: an array; say what is wrong with it (a task)", ProblemError)
            with as_problem(f"{path}: ", ": say what is wrong with it (--task)"):
                seen_in_it = look(path, reading.image)
            if not seen_in_it.task:
                raise NothingToDoError(str(seen_in_it))
            task, found = seen_in_it.task, strength * seen_in_it.sigma if sigma is None else sigma
            notes.append(str(seen_in_it))
            moved = seen_in_it.moved
            kernel = "auto" if moved else kernel
        kind, values = picture_settings(task, sigma, mask, keep_known, kernel, **settings)
        if kind.picture_file == "itself" and region is not None:
            raise ProblemError(f"{path}: a JPEG is restored by its coefficients, as a whole: it has no preview")
        if strength != 1 and "sigma" not in kind.parameters:
            raise ProblemError(f"{path}: strength changes a noise level, and {task} has a model of the noise")
        seen, given, blur, psf = None, None, None, None
        if kernel == "auto":
            with as_problem(f"{path}: ", "; give the blur with --blur or --kernel FILE"):
                require(not reading.complex, "complex images have no spectrum of photographs")
                psf = estimate_kernel(reading.image[_middle(reading.image, LARGE)] if moved else reading.image)
            if moved and psf.confidence < SURE:
                raise NothingToDoError(UNSURE)
            given, notes = psf.kernel, [*notes, f"{path.name}: the blur was estimated: {psf}"]
        elif kernel is not None:
            given, note = read_kernel(kernel, max_megapixels)
            notes = [note, *notes]
        elif kind.picture_file == "kernel" and not values:
            needs = f"{path}: deblurring needs the blur's standard deviation in pixels: give --blur, or its --kernel; "
            with as_problem(needs):
                require(not reading.complex, "complex images have no spectrum of photographs")
                hint = MOVED if looks_moved(reading.image) else None
                with as_problem("", f"; {hint}" if hint else ""):
                    blur = estimate_blur(reading.image)
            notes.append(hint)
            values = {"blur": blur.width}
        if kind.color and (channels != 3 or reading.array):
            raise ProblemError(f"{path}: {task} takes a picture file, and a model for color")
        op: LinearOperator
        with as_problem(f"{path}: "):
            if mask is not None:
                seen, note = read_mask(mask, reading.image, max_megapixels)
                given, notes = seen, [*notes, note]
            level = 0.0 if found is None else found
            if found is None and "sigma" in kind.parameters and kind.picture_file != "itself":
                level = strength * estimated_noise(reading, seen, kind.color)
                if psf is not None:  # fine texture, which the blur leaves across it, is no noise
                    level = max(ROUNDING, min(level, psf.noise))
            if region is not None:
                middle = _middle(reading.image, region)
                opaque = None if reading.alpha is None else reading.alpha[middle]
                reading = replace(reading, image=reading.image[middle], alpha=opaque)
                seen, given = (None, given) if seen is None else (seen[middle], seen[middle])
            if kind.picture_file == "itself":
                cells, y = cells_of(path, max_megapixels)
                level = strength * float(error_level(cells.luma[:, 0, 0])) if sigma is None else sigma
                op, margin = cells, 0
            else:
                op, y, margin = kind.from_picture(reading.image, values, given)
        noise, estimated = None, sigma is None
        if "sigma" not in kind.parameters:
            level, noise, estimated = modeled_noise(path, kind, values, op, y, reading.gray)
        keep = level <= ROUNDING if keep_known is None else keep_known
        about = {"task": task, **values}
        shown, known = reading.image, None
        if seen is not None:
            about |= {"missing": round(1 - float(seen.mean()), 4), "keep_known": keep}
            shown = shown * seen
            if keep:  # of a gray picture in one channel
                known = torch.where(seen.bool(), reading.image[:, :1] if reading.gray else reading.image, math.nan)
        about |= {} if blur is None else {"blur_error": blur.error}
        about |= {} if kernel is None else {"kernel": str(kernel)}
        about |= {"estimated": estimated, "sigma": level} | values
        if psf is not None:
            about |= {"kernel_kind": psf.kind, **psf.settings, "confidence": psf.confidence}
        if not reading.array:
            notes.append(jpeg_note(path, reading.image, task))
        problem = cls(
            op, y, level, visible(shown, True) if reading.complex else shown, about, margin=margin,
            complex=reading.complex, array=reading.array, value_range=value_range, alpha=reading.alpha, known=known,
            kernel=None if psf is None else psf.kernel, noise=noise, origin=reading.origin,
            notes=tuple(note for note in notes if note is not None),
        )  # fmt: skip
        return problem if kind.color else _fitted(problem, reading, channels)

    @classmethod
    def from_measurement(
        cls, path: Path, task: str, settings: Mapping[str, Any], size: tuple[int, int] | None = None, channels: int = 3,
        max_megapixels: float = MAX_MEGAPIXELS, key: str | None = None,
    ) -> Problem:  # fmt: skip
        """Read a measurement y = A x + noise of a custom task, ``file.py:Class``, whose code is run.

        Parameters
        ----------
        path
            A picture; or an array file that holds y for images in [-1, 1], as A gives it: real or complex, of any
            shape. Axes of length 1, such as that of the batch, may be left out.
        task, settings
            The task's class, and its settings; those that are not given, the noise level too, have its defaults.
        size
            Height and width of the image. If None, those of y or, where A makes another y of such an image, of A'y.
        channels, max_megapixels, key
            As in `from_file`.
        """
        kind = task_class(task)
        reading, made, op, y = measured(path, kind, settings, size, channels, max_megapixels, key)
        check_sigma(made.sigma)  # None, where the task has a noise model
        fits = tuple(y.shape[-2:]) == made.shape
        lost = () if fits or reading.alpha is None else ("the picture's transparency is lost: the image is larger",)
        alpha = reading.alpha if fits else None
        about = replace(reading, alpha=alpha, notes=(*reading.notes, *lost), complex=isinstance(op, AsReal))
        problem = _posed(task, made, op, y, about)
        if reading.array or y.shape[1] != channels:
            return problem
        return _fitted(replace(problem, y=reading.image, shown=reading.image), reading, channels)

    @classmethod
    def simulated(
        cls, path: Path, task: str, settings: Mapping[str, Any], seed: int = 0, channels: int = 3,
        value_range: Range | None = None, max_megapixels: float = MAX_MEGAPIXELS, key: str | None = None,
    ) -> Problem:  # fmt: skip
        """Degrade a clean picture or array of any size as in a task: the problem knows its truth.

        Parameters
        ----------
        path
            The clean picture, or an array file.
        task, settings
            A built-in task, or a custom one, ``file.py:Class``, whose code is run; `settings` change the task's own.
        seed
            Of the noise, and of what else the task draws.
        channels, value_range, max_megapixels, key
            As in `from_file`.
        """
        reading = read(path, channels, value_range, max_megapixels, key)
        truth = reading.image
        with as_problem(f"{path}: "):
            kind = task_class(task)
            require(not kind.color or channels == 3, f"{kind.name} takes a model for color")
            with custom_code(task=kind):
                made = kind((int(truth.shape[-2]), int(truth.shape[-1])), **settings)
            made.require_values()
            factor = made.settings().get("factor", 1)
            require(factor <= max(made.shape), f"a factor of {factor} is larger than the picture's sides")
            check_sigma(made.sigma)  # None, where the task has a noise model
            true_op, y = made.measure(truth[:, :1] if reading.gray and not kind.color else truth, seed)
            op = made.told(true_op, y)
            guessed = op.kernel[0, 0] if op is not true_op and isinstance(op, Blur) else None
            problem = replace(
                _posed(task, made, op, y, reading), truth=truth, value_range=value_range, kernel=guessed,
                align=made.aligned,
            )  # fmt: skip
        if isinstance(op, Blur) and op.boundary == "valid":  # cut off what a photograph would not show either
            margin = (truth.shape[-1] - y.shape[-1]) // 2
            inside = (..., slice(margin, -margin or None), slice(margin, -margin or None))
            alpha = None if problem.alpha is None else problem.alpha[inside]
            problem = replace(problem, margin=margin, truth=truth[inside], alpha=alpha)
        return problem if kind.color else _fitted(problem, reading, channels)

    def to(self, device: torch.device) -> Problem:
        """Return the same problem on another device."""
        op = self.op.to(device) if isinstance(self.op, torch.nn.Module) else self.op
        parts: dict[str, Tensor | Noise | None] = {
            "y": self.y, "shown": self.shown, "truth": self.truth, "known": self.known, "noise": self.noise,
        }  # fmt: skip
        moved: dict[str, Any] = {name: part.to(device) for name, part in parts.items() if part is not None}
        return replace(self, op=op, **moved)

    def finish(self, x: Tensor) -> Tensor:
        """Turn restored images (..., B, C, H, W) into the picture's, (..., 1, C, H, W), with the pixels it knows."""
        return self._together(x, self.known)

    def spread(self, std: Tensor) -> Tensor:
        """Turn standard deviations into the picture's: 0 where pixels are known; of gray, the channels' average."""
        return self._together(std, 0.0)

    def scores(self, x: Tensor) -> dict[str, float]:
        """PSNR and, where they are defined, SSIM and LPIPS of a finished image; none where the truth is not known.

        Complex images are compared by their magnitudes; gray counts as three channels.
        """
        if self.truth is None:
            return {}
        truth = self.truth[:, :1] if self.gray else self.truth
        x = x if self.align is None else self.align(x, truth)
        x, truth = visible(x, self.complex), visible(truth, self.complex)
        if x.shape[1] == 1:
            x, truth = (v.expand(-1, 3, -1, -1) for v in (x, truth))
        return {key: round(float(value), 4) for key, value in scores(x, truth, "text").items()}

    def _together(self, x: Tensor, kept: Tensor | float | None) -> Tensor:
        """Cut off the margin, put the channels together, (..., 1, C, H, W), and take `kept` where pixels are known."""
        if self.margin:
            x = x[..., self.margin : -self.margin, self.margin : -self.margin]
        if self.apart:
            x = x.transpose(-3, -4)
        x = x.mean(-3, keepdim=True) if self.gray else x
        return x if self.known is None or kept is None else torch.where(self.known.isnan(), x, kept)


# What is estimated, and how a picture fits a model


def _middle(image: Tensor, side: int) -> tuple[Any, ...]:
    """The place of a square in the middle of an image (..., H, W), where mosaics and enlargements may begin."""
    corners = (max(0, (n - side) // 2) // 12 * 12 for n in image.shape[-2:])
    return (..., *(slice(first, first + side) for first in corners))


def _posed(name: str, task: BaseTask, op: LinearOperator, y: Tensor, reading: Reading) -> Problem:
    """Make the problem of a measurement `y` (B, ...) with the operator of the task that the user calls `name`."""
    with custom_code(task=type(task)):
        adjoint = op.A_adjoint(y)
    seen = not y.is_complex() and y.ndim == 4 and y.shape[1] == adjoint.shape[1]
    shown = y if seen and is_linear(op) else adjoint  # which of a nonlinear one is made to be looked at
    known = built_in().get(task.name) is type(task)  # the library's own may be named as package.module:Class, too
    about = {"task": task.name if known else name, "estimated": False, **task.settings()}
    told = task.noise_for(adjoint)
    noise = told if isinstance(told, Noise) else None
    level = told if isinstance(told, float | int) else float(told.on(op, y, adjoint).level(y).mean())
    about["sigma"] = level
    return Problem(
        op, y, level, visible(shown, reading.complex), about, complex=reading.complex, array=reading.array,
        alpha=reading.alpha, noise=noise, origin=reading.origin, notes=reading.notes,
    )  # fmt: skip


def _fitted(problem: Problem, reading: Reading, channels: int) -> Problem:
    """Adapt the problem to a model of `channels`: gray pictures to color models, and color to gray ones."""
    if reading.array or (channels == 3 and not reading.gray):
        return problem
    if channels == 3:  # of one channel three equal ones, whose noise is made independent
        gray, level = problem.y[:, :1], torch.tensor([problem.sigma], dtype=torch.float64)
        model = None if problem.noise is None else problem.noise.on(problem.op, gray, problem.op.A_adjoint(gray))
        y, spread = independent(problem.op, gray, level, level if model is None else model, 3)
        noise = Gaussian(spread.std(y).transpose(0, 1)) if isinstance(spread, Noise) else None
        sigma = COPIES_FACTOR * problem.sigma
        return replace(problem, y=y.transpose(0, 1), sigma=sigma, noise=noise, noise_factor=COPIES_FACTOR, gray=True)
    if reading.gray:
        return replace(problem, y=problem.y[:, :1], gray=True)
    noise = None
    if problem.noise is not None:
        std = problem.noise.on(problem.op, problem.y, problem.op.A_adjoint(problem.y)).std(problem.y)
        noise = Gaussian(std.clamp(min=1e-3 * float(std.max())).transpose(0, 1))
    return replace(problem, y=problem.y.transpose(0, 1), noise=noise, apart=True)
