"""What a picture tells of its degradation beside its noise: the width of a blur, and traces of a JPEG."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from firm._util.checks import require
from firm.data.opening import PictureError, header
from firm.noise.estimates import ROUNDING as ROUNDING
from firm.noise.estimates import estimate_noise as estimate_noise
from firm.noise.estimates import smoothest_noise as smoothest_noise

# Blur

# Sharp photographs have power spectra C / f^a with a = 2.4 +- 0.4 (150 photographs), and a ring of frequencies lies
# around that by a factor of 1.3 up or down; a little more makes the errors that are stated those that occur.
SLOPE, SLOPE_SPREAD, SCATTER = 2.4, 0.4, 0.5
LOWEST, HIGHEST, RINGS = 0.03, 0.5, 24  # frequencies in cycles a pixel: below, the subject decides, not the blur
LARGEST = 1024  # pixels: of larger pictures the middle is used
MINIMUM = 48
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
    """Estimate the width, in pixels, of a Gaussian blur in a picture y (1, C, H, W).

    The mean of the channels has the spectrum C f^-a exp(-(2 pi f w)^2) + N: that of a sharp photograph, the blur's,
    and the noise's. N is estimated (`estimate_noise`), C is fitted, and the width w is averaged over all likely
    slopes a: the result is the mean of w given the picture, with its standard deviation. What the lens or an earlier
    program blurred counts as blur too; motion and other shapes of blur are not told from it.

    Parameters
    ----------
    y
        The picture, of at least 48 pixels a side; of a large one the middle is used.

    Returns
    -------
    The width, and how sure it is. ValueError where the picture is sharp, or does not tell.
    """
    gray = y.detach().cpu().double().mean(1)[0]
    top, left = (max(0, n - LARGEST) // 2 for n in gray.shape)
    gray = gray[top : top + LARGEST, left : left + LARGEST]
    enough = min(gray.shape) >= MINIMUM
    require(enough, f"a picture of fewer than {MINIMUM} pixels a side is too small to estimate the blur from")
    f, power, modes = _spectrum(gray)
    noise = estimate_noise(gray) ** 2
    enough = int((power > 3 * noise).sum()) >= 5
    require(enough, "there is too little detail above the noise to estimate the blur from")
    widths = torch.exp(torch.linspace(math.log(NARROWEST), math.log(WIDEST), 120, dtype=torch.float64))
    likely = _posterior(f, power, modes, noise, widths)
    width = float((likely * widths).sum())
    error = float((likely * (widths - width).square()).sum().sqrt())
    require(width >= BLURRED, f"the picture looks sharp: a blur below {BLURRED} pixels cannot be told from none")
    sure = width <= 0.85 * WIDEST and error <= 0.3 * width
    require(sure, f"the blur cannot be told from the picture (about {width:.1f} ± {error:.1f} pixels)")
    return BlurEstimate(round(width, 2), round(error, 2))


def _spectrum(image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Find the power of an image (H, W) in rings: mean frequencies, powers, numbers of independent values, (n,)."""
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
    """Compute how likely each of the widths (W,) is, given the powers at the frequencies f."""
    slopes = torch.linspace(1.2, 3.6, 49, dtype=f.dtype)
    blur = (2 * math.pi * f * widths[:, None, None]).square()
    shape = torch.exp(-slopes[None, :, None] * f.log() - blur)  # (W, A, n)
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


# JPEG

GOOD = 85  # quality: above, smoothing the blocks costs more detail than they do
BLOCKY = 0.3  # how much larger steps between blocks are than others; at most 0.26 on 49 of 50 uncompressed photographs
# The luminance table of the standard's Annex K, which quality 50 of the usual programs means.
STANDARD = (16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22,
            29, 51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92, 49, 64, 78, 87, 103,
            121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99)  # fmt: skip


def jpeg_quality(path: str | Path) -> int | None:
    """Quality, 1 to 100, at which a JPEG file was saved, from its quantization table; None for other files."""
    tables: Any = None
    with suppress(PictureError), header(Path(path)) as picture:  # whoever reads it says why
        tables = getattr(picture, "quantization", None)
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
    """Compute by which share the steps between columns (H, W) at the worst of 8 places exceed those at the others."""
    step = image.diff(dim=1)
    excess = (step[:, 1:-1] - (step[:, :-2] + step[:, 2:]) / 2).abs().clamp(max=0.2)  # edges of things are no blocks
    whole = excess.shape[1] // 8 * 8
    if whole < 16:
        return 0.0
    places = excess[:, :whole].mean(0).reshape(-1, 8).mean(0)
    worst = places.max()
    others = (places.sum() - worst) / 7
    return float((worst - others) / others) if float(others) > 0 else 0.0


def jpeg_note(path: Path, y: Tensor, task: str) -> str | None:
    """Say what to do where the compression of a picture will show in its restoration, whatever the noise level.

    Parameters
    ----------
    path
        The file; if it is a JPEG, its header tells the quality.
    y
        The picture as it was read, (1, C, H, W) in [-1, 1].
    task
        The kind of degraded pictures that it is restored as, such as "inpainting".

    Returns
    -------
    The advice in a sentence, or None where there is none: an estimate of the noise sees blocks as noise.
    """
    if task == "jpeg":
        return None
    quality = jpeg_quality(path)
    if task not in _ADVICE or ((quality is None or quality > GOOD) and not has_blocks(y)):
        return None
    found = "this is a JPEG" if quality is not None else "this picture was a JPEG once: it has blocks of 8x8 pixels"
    return f"{found}, and its compression is not undone: {_ADVICE[task]}"


_ADVICE = {
    "inpainting": "the holes are filled, the blocks around them stay; an uncompressed original would be better",
    **dict.fromkeys(
        ("poisson-denoising", "camera-denoising"),
        "it smooths noise, so that less is estimated than there "
        "was; take the values as the sensor gave them, from a file without loss (PNG, TIFF)",
    ),
    "demosaicing": "it mixes the values of neighboring pixels, which have different colors here; take them as the "
    "sensor gave them, from a file without loss (PNG, TIFF)",
}
