"""The kernel of an unknown blur, from the picture alone: a Gaussian, a straight motion, or a free form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from firm._util.checks import require
from firm.blind.free_form import free_form
from firm.blind.spectrum import Spectrum, best_gaussian, best_motion
from firm.operators import gaussian_kernel, motion_kernel

Kind = Literal["gaussian", "motion", "free-form"]

SMALLEST, LARGEST = 64, 512  # pixels: of a larger picture the middle is used, where free forms are looked for
SIZE = 25  # of free forms
LEAST_DETAIL = 0.02  # share of frequencies above the noise
SHARP, SHORTEST = 0.7, 3.0  # a Gaussian below, and a motion below, as sharp photographs have too
BETTER = 10.0  # by how much the spectrum must be likelier, for a free form to be believed
# The logarithm of the loss in dB (plus a tenth): fitted to 38 photographs of training, experiments/blind_deblurring.
LOSS, LOSS_SPREAD, LOSS_LEAST, TOLERATED = (-1.29, 4.04, 0.83), 0.86, 0.1, 1.5
FREE = 0.09  # what counts as the relative error of a free form


@dataclass(frozen=True)
class KernelEstimate:
    """A blur, as `estimate_kernel` finds it."""

    kernel: Tensor  # (h, w), odd sides, at least 0, with the sum 1
    kind: Kind
    settings: dict[str, float]  # width in pixels; length and angle in degrees; or size
    confidence: float  # in [0, 1]: how likely restoring with it loses at most 1.5 dB against the true kernel
    noise: float  # standard deviation in a channel of the picture

    def __str__(self) -> str:
        said = {
            "gaussian": "a Gaussian, {width:.2f} pixels wide (standard deviation)",
            "motion": "a straight motion, {length:.1f} pixels long at {angle:.0f} degrees",
            "free-form": "a free form within {size:.0f}x{size:.0f} pixels",
        }[self.kind].format(**self.settings)
        return f"{said}, confidence {self.confidence:.2f}"


def estimate_kernel(y: Tensor) -> KernelEstimate:
    """Estimate the kernel that has blurred a picture y (1, C, H, W), the same everywhere in it.

    The likeliest Gaussian and the likeliest straight motion are found by what they do to the spectrum
    (`firm.blind.spectrum`), a free form of up to 25x25 pixels from the edges (`firm.blind.free_form`). The free form
    is taken where it explains the spectrum clearly better: it has hundreds of unknowns, the others one or two.

    Parameters
    ----------
    y
        The picture, of at least 64 pixels a side. Its blur may come from beyond its edges.

    Returns
    -------
    The kernel, what it is, the noise, and a confidence: how likely it is that restoring with this kernel loses at most
    1.5 dB against the true one, as fitted to blurred photographs (experiments/blind_deblurring). A shift of the whole
    picture cannot be told. ValueError where the picture is too small, sharp, or has too little detail above its noise.
    """
    picture = y.detach().cpu().float()
    enough = min(picture.shape[-2:]) >= SMALLEST
    require(enough, f"a picture of fewer than {SMALLEST} pixels a side is too small to estimate a blur from")
    gray = picture.mean(1)[0]
    spectrum = Spectrum(gray)
    told = spectrum.detail >= LEAST_DETAIL
    require(told, "there is too little detail above the noise to estimate a blur from")
    gauss, width, width_error = best_gaussian(spectrum)
    motion, length, angle, length_error = best_motion(spectrum)
    moved = length >= SHORTEST and motion > gauss
    top, left = (max(0, n - LARGEST) // 2 for n in gray.shape)
    form = free_form(gray[top : top + LARGEST, left : left + LARGEST], math.sqrt(spectrum.noise), SIZE)
    free = float(spectrum.score(spectrum.transfer(form[None])))
    parametric = motion if moved else gauss
    noise = math.sqrt(sum(Spectrum(channel).noise for channel in picture[0]) / picture.shape[1])
    kind: Kind
    if free > parametric + BETTER:
        kind, kernel, settings, error = "free-form", form, {"size": float(SIZE)}, FREE
    elif moved:
        kind, settings, error = "motion", {"length": length, "angle": angle}, length_error / length
        kernel = motion_kernel(2 * math.ceil(length / 2) + 1, length, angle)
    else:
        sharp = f"the picture looks sharp: a blur below {SHARP} pixels cannot be told from none"
        require(width >= SHARP, sharp)
        kind, settings, error = "gaussian", {"width": width}, width_error / width
        kernel = gaussian_kernel(2 * math.ceil(4 * width) + 1, width)
    settings = {key: round(value, 2) for key, value in settings.items()}
    return KernelEstimate(kernel, kind, settings, _confidence(error, free - parametric), noise)


def _confidence(error: float, excess: float) -> float:
    """Compute how likely restoring with a kernel loses at most 1.5 dB against the true one.

    The logarithm of the loss is normal about a mean that grows with the kernel's relative `error` and with how much
    better, in log-likelihood, a free form explains the spectrum than a Gaussian or a motion does: its `excess`.
    """
    mean = LOSS[0] + LOSS[1] * error + LOSS[2] * math.log1p(max(excess, 0))
    return round(0.5 * math.erfc((mean - math.log(TOLERATED + LOSS_LEAST)) / (LOSS_SPREAD * math.sqrt(2))), 2)


def looks_moved(y: Tensor) -> bool:
    """Whether a straight motion explains the spectrum of a picture y (1, C, H, W) clearly better than a Gaussian."""
    if min(y.shape[-2:]) < SMALLEST:
        return False
    spectrum = Spectrum(y.detach().cpu().float().mean(1)[0])
    motion, length, _, _ = best_motion(spectrum)
    return spectrum.detail >= LEAST_DETAIL and length >= SHORTEST and motion > best_gaussian(spectrum)[0] + BETTER
