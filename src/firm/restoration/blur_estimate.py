"""The width of a Gaussian blur in a picture, from how its spectrum falls off."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from firm.restoration.noise import estimate_noise

# Sharp photographs have power spectra C / f^a with a = 2.4 +- 0.4 (150 photographs), and a ring of frequencies lies
# around that by a factor of 1.3 up or down; a little more makes the errors that are stated those that occur.
SLOPE, SLOPE_SPREAD, SCATTER = 2.4, 0.4, 0.5
LOWEST, HIGHEST, RINGS = 0.03, 0.5, 24  # frequencies in cycles a pixel: below, the subject decides, not the blur
LARGEST = 1024  # pixels: of larger pictures the middle is used
SMALLEST = 48
NARROWEST, WIDEST = 0.2, 5.0  # pixels: the widths that are compared
BLURRED = 0.45  # below, a picture is as sharp as unblurred ones are


@dataclass(frozen=True)
class BlurEstimate:
    """A blur's standard deviation in pixels, and the standard deviation of that estimate."""

    width: float
    error: float

    def __str__(self) -> str:
        return f"{self.width:.2f} ± {self.error:.2f}"


def estimate_blur(y: Tensor) -> BlurEstimate:
    """Standard deviation, in pixels, of a Gaussian blur in a picture y (1, C, H, W); ValueError where it cannot tell.

    The mean of the channels has the spectrum C f^-a exp(-(2 pi f w)^2) + N: that of a sharp photograph, the blur's,
    and the noise's. N is estimated (`estimate_noise`), C is fitted, and the width w is averaged over all likely
    slopes a: the result is the mean of w given the picture, with its standard deviation. What the lens or an earlier
    program blurred counts as blur too; motion and other shapes of blur are not told from it.
    """
    gray = _middle(y.detach().cpu().double().mean(1)[0])
    if min(gray.shape) < SMALLEST:
        raise ValueError(f"a picture of fewer than {SMALLEST} pixels a side is too small to estimate the blur from")
    f, power, modes = _spectrum(gray)
    noise = estimate_noise(gray) ** 2
    if int((power > 3 * noise).sum()) < 5:
        raise ValueError("there is too little detail above the noise to estimate the blur from")
    widths = torch.exp(torch.linspace(math.log(NARROWEST), math.log(WIDEST), 120, dtype=torch.float64))
    likely = _posterior(f, power, modes, noise, widths)
    width = float((likely * widths).sum())
    error = float((likely * (widths - width).square()).sum().sqrt())
    if width < BLURRED:
        raise ValueError(f"the picture looks sharp: a blur below {BLURRED} pixels cannot be told from none")
    if width > 0.85 * WIDEST or error > 0.3 * width:
        raise ValueError(f"the blur cannot be told from the picture (about {width:.1f} ± {error:.1f} pixels)")
    return BlurEstimate(round(width, 2), round(error, 2))


def _middle(image: Tensor) -> Tensor:
    """The central part (h, w) of an image (H, W), at most `LARGEST` pixels a side."""
    for dim, n in enumerate(image.shape):
        length = min(n, LARGEST)
        image = image.narrow(dim, (n - length) // 2, length)
    return image


def _spectrum(image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Power of an image (H, W) in rings: their mean frequencies, powers, and numbers of independent values, (n,)."""
    H, W = image.shape
    window = torch.outer(*(torch.hann_window(n, periodic=False, dtype=image.dtype) for n in (H, W)))
    mean = (image * window).sum() / window.sum()
    power = torch.fft.fft2((image - mean) * window).abs().square() / window.square().sum()
    f = torch.hypot(torch.fft.fftfreq(H, dtype=image.dtype)[:, None], torch.fft.fftfreq(W, dtype=image.dtype)[None])
    edges = torch.exp(torch.linspace(math.log(LOWEST), math.log(HIGHEST), RINGS + 1, dtype=image.dtype))
    ring = torch.bucketize(f.flatten(), edges)  # 0: below the first
    count, total, frequency = (
        torch.bincount(ring, v, minlength=RINGS + 2)[1 : RINGS + 1]
        for v in (torch.ones_like(ring), power.flatten(), f.flatten())
    )
    full = count >= 8
    return frequency[full] / count[full], total[full] / count[full], count[full] / 2


def _posterior(f: Tensor, power: Tensor, modes: Tensor, noise: float, widths: Tensor) -> Tensor:
    """How likely each of the widths (W,) is, given the powers at the frequencies f."""
    slopes = torch.linspace(1.2, 3.6, 49, dtype=f.dtype)
    shape = torch.exp(
        -slopes[None, :, None] * f.log() - (2 * math.pi * f * widths[:, None, None]).square()
    )  # (W, A, n)
    weight = 1 / (SCATTER**2 + 1 / modes)
    log_c = (power[:4].log() - shape[..., :4].log()).mean(-1)
    for _ in range(6):  # Gauss-Newton for C, in its logarithm
        signal = log_c.exp()[..., None] * shape
        share = signal / (signal + noise)
        residual = power.log() - (signal + noise).log()
        log_c = log_c + ((weight * share * residual).sum(-1) / (weight * share.square()).sum(-1)).clamp(-2, 2)
    residual = power.log() - (log_c.exp()[..., None] * shape + noise).log()
    score = -(weight * residual.square()).sum(-1) / 2 - ((slopes - SLOPE) / SLOPE_SPREAD).square() / 2
    return torch.softmax(score.flatten(), 0).reshape(score.shape).sum(1)
