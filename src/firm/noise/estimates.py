"""What an image tells of its noise: a level, or how the variance grows with the brightness."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from firm._util.checks import require

ROUNDING = 0.002  # rounding to 8 bits alone is noise of 2 / 255 / sqrt(12) = 0.0023
ENOUGH = 50  # details, for a median worth having
MEDIAN = 0.6745  # of |n|, for standard normal n
SIDE, SMOOTH = 8, 0.05  # blocks of 8x8 details; how many of them, the smoothest, tell the noise of a textured picture
SMOOTHEST = 0.755  # the quantile SMOOTH of the blocks' medians, over MEDIAN, where there is nothing but noise


def estimate_noise(y: Tensor, seen: Tensor | None = None) -> float:
    """Estimate the standard deviation of white noise in a picture, in its units.

    Donoho's estimate: in the diagonal details of a Haar transform, (a - b - c + d) / 2 over 2x2 pixels, a picture
    leaves little but its noise, and the median ignores the rest. Fine texture reads as noise; noise that was clipped
    or smoothed reads as less than it was.

    Parameters
    ----------
    y
        The picture (..., H, W), any number of channels.
    seen
        1 where a pixel was measured, (H, W); only blocks that were seen whole are used.

    Returns
    -------
    The deviation, at least 0.002, which is the rounding to 8 bits. ValueError where there are too few pixels.
    """
    details = _details(y)
    if seen is not None:
        whole = _corners(seen.bool())
        details = details[..., whole[0] & whole[1] & whole[2] & whole[3]]
    if details.numel() < ENOUGH:
        raise ValueError("too few neighboring pixels to estimate the noise from")
    return max(ROUNDING, float(details.abs().flatten().median()) / MEDIAN)


def smoothest_noise(y: Tensor) -> float:
    """Estimate the noise where a picture y (..., H, W) in [-1, 1] is smoothest, where texture would read as noise.

    That is so in the planes of a mosaic, whose neighbors lie two pixels apart. Medians are taken in blocks, and of
    these a low quantile. Blocks with pixels that are black or white, where noise is cut off, do not count. A picture of
    few blocks has `estimate_noise`.
    """
    details = _details(y).abs()
    h, w = (n // SIDE * SIDE for n in details.shape[-2:])
    inside = _blocks(y[..., : 2 * h, : 2 * w], 2 * SIDE).abs().amax(-1) < 1
    medians = _blocks(details[..., :h, :w], SIDE).median(-1).values[inside]
    if len(medians) < 1 / SMOOTH:
        return estimate_noise(y)
    return max(ROUNDING, float(medians.quantile(SMOOTH)) / (MEDIAN * SMOOTHEST))


def _corners(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the four pixels of all blocks of 2x2."""
    x = x[..., : x.shape[-2] // 2 * 2, : x.shape[-1] // 2 * 2]
    return x[..., ::2, ::2], x[..., ::2, 1::2], x[..., 1::2, ::2], x[..., 1::2, 1::2]


def _details(y: Tensor) -> Tensor:
    a, b, c, d = _corners(y)
    return (a - b - c + d) / 2


def _blocks(x: Tensor, side: int) -> Tensor:
    """Arrange the pixels of x (..., H, W) block by block, (..., H / side, W / side, side^2)."""
    return x.unflatten(-1, (-1, side)).unflatten(-3, (-1, side)).transpose(-3, -2).flatten(-2)


# Photons

BINS, FEWEST = 12, 12  # of brightness, each with as many blocks; of blocks in a bin
LOW = 0.1  # of the blocks of a bin, those that are smoother count
CUT = 0.05  # of the pixels of a block may be black or white, where noise is cut off
MEAN, SPREAD = 0.7979, 0.0944  # mean of |n| for standard normal n; deviation, over that, of the mean of 64 of them
ROUNDS = 10  # of weights by the line itself


@dataclass(frozen=True)
class PhotonFit:
    """The variance gain (y + 1) + sigma^2 of the noise in a picture, and the standard deviations of the estimates."""

    gain: float
    gain_error: float
    sigma: float
    sigma_error: float


def fit_photons(y: Tensor, read: bool = True) -> PhotonFit:
    """Fit the line, variance = gain (y + 1) + sigma^2, to the smooth parts of a picture.

    Blocks of 16x16 pixels are sorted by their brightness into `BINS` bins. In each, a low quantile of the blocks' mean
    details tells the noise, as in `smoothest_noise` (of counts, medians would be coarse). The line is fitted to the
    bins' variances with weights 1 / line^2, for their errors are in proportion, and again without each bin in turn
    (jackknife): that is how sure it is.

    Parameters
    ----------
    y
        The picture (1, C, H, W) in [-1, 1]; its channels are taken together.
    read
        Whether there may be read noise; if not, sigma is 0.

    Returns
    -------
    The fit. ValueError where the picture is too small, or where its noise does not grow with the brightness.
    """
    details = _details(y).abs()
    h, w = (n // SIDE * SIDE for n in details.shape[-2:])
    pixels = _blocks(y[..., : 2 * h, : 2 * w], 2 * SIDE).double()
    rough, light = _blocks(details[..., :h, :w], SIDE).double().mean(-1), pixels.mean(-1) + 1
    inside = ((pixels.abs() == 1).double().mean(-1) <= CUT) & (rough > 0)
    rough, light = rough[inside], light[inside]
    few = "too few smooth parts, neither black nor white, to tell how the noise grows with the brightness"
    require(rough.numel() >= 3 * FEWEST, few)
    bins = light.argsort().tensor_split(min(BINS, rough.numel() // FEWEST))
    lower = 1 + SPREAD * float(torch.special.ndtri(torch.tensor(LOW, dtype=torch.float64)))
    noise = torch.stack([rough[part].quantile(LOW) for part in bins]) / (MEAN * lower)
    s, variance = torch.stack([light[part].mean() for part in bins]), noise.square()
    gain, floor = _line(s, variance, read)
    require(gain > 0, "the noise of this picture does not grow with its brightness: it is not that of photons")
    n = len(bins)
    others = [torch.arange(n) != i for i in range(n)]
    without = [_line(s[kept], variance[kept], read) for kept in others]
    gains, floors = (torch.tensor(v, dtype=torch.float64) for v in zip(*without, strict=True))
    gain_error, floor_error = (float(((n - 1) * v.var(correction=0)).sqrt()) for v in (gains, floors))
    if not read:
        return PhotonFit(gain, gain_error, 0.0, 0.0)
    sigma = max(ROUNDING / 4, floor**0.5)  # below, there is none
    return PhotonFit(gain, gain_error, sigma, min(floor_error / (2 * sigma), floor_error**0.5))


def _line(s: Tensor, variance: Tensor, read: bool) -> tuple[float, float]:
    """Fit gain and floor of variance = gain s + floor, both at least 0, weighted by 1 / line^2."""
    gain, floor = float(variance.mean() / s.mean()), 0.0
    for _ in range(ROUNDS):
        weight = (gain * s + floor + 1e-12).pow(-2)
        columns = torch.stack([s, torch.ones_like(s)]) if read else s[None]
        solved = torch.linalg.lstsq((columns * weight.sqrt()).T, (variance * weight.sqrt())[:, None]).solution[:, 0]
        gain, floor = float(solved[0]), float(solved[1]) if read else 0.0
        if floor < 0:  # all of it comes from photons
            return _line(s, variance, read=False)
        if gain <= 0:
            return 0.0, float((weight * variance).sum() / weight.sum())
    return gain, floor
