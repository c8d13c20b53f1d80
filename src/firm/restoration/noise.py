"""The noise level of a picture, from its finest diagonal details."""

from __future__ import annotations

from torch import Tensor

SMALLEST = 0.002  # rounding to 8 bits alone is noise of 2 / 255 / sqrt(12) = 0.0023
ENOUGH = 50  # details, for a median worth having
MEDIAN = 0.6745  # of |n|, for standard normal n
SIDE, SMOOTH = 8, 0.05  # blocks of 8x8 details; how many of them, the smoothest, tell the noise of a textured picture
SMOOTHEST = 0.755  # the quantile SMOOTH of the blocks' medians, over MEDIAN, where there is nothing but noise


def estimate_noise(y: Tensor, seen: Tensor | None = None) -> float:
    """Standard deviation of white noise in a picture y (..., H, W), in the units of y.

    Donoho's estimate: in the diagonal details of a Haar transform, (a - b - c + d) / 2 over 2x2 pixels, a picture
    leaves little but its noise, and the median ignores the rest. Fine texture reads as noise; noise that was clipped
    or smoothed reads as less than it was.

    Parameters
    ----------
    y
        The picture, any number of channels.
    seen
        1 where a pixel was measured, (H, W); only blocks that were seen whole are used.
    """
    details = _details(y)
    if seen is not None:
        whole = _corners(seen.bool())
        details = details[..., whole[0] & whole[1] & whole[2] & whole[3]]
    if details.numel() < ENOUGH:
        raise ValueError("too few neighboring pixels to estimate the noise from")
    return max(SMALLEST, float(details.abs().flatten().median()) / MEDIAN)


def smoothest_noise(y: Tensor) -> float:
    """The same where a picture y (..., H, W) in [-1, 1] is smoothest, for those in which texture would read as noise.

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
    return max(SMALLEST, float(medians.quantile(SMOOTH)) / (MEDIAN * SMOOTHEST))


def _corners(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The four pixels of all blocks of 2x2."""
    x = x[..., : x.shape[-2] // 2 * 2, : x.shape[-1] // 2 * 2]
    return x[..., ::2, ::2], x[..., ::2, 1::2], x[..., 1::2, ::2], x[..., 1::2, 1::2]


def _details(y: Tensor) -> Tensor:
    a, b, c, d = _corners(y)
    return (a - b - c + d) / 2


def _blocks(x: Tensor, side: int) -> Tensor:
    """The pixels of x (..., H, W) block by block, (..., H / side, W / side, side^2)."""
    return x.unflatten(-1, (-1, side)).unflatten(-3, (-1, side)).transpose(-3, -2).flatten(-2)
