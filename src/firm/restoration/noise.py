"""The noise level of a picture, from its finest diagonal details."""

from __future__ import annotations

from torch import Tensor

SMALLEST = 0.002  # rounding to 8 bits alone is noise of 2 / 255 / sqrt(12) = 0.0023
ENOUGH = 50  # details, for a median worth having


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
    H, W = y.shape[-2] // 2 * 2, y.shape[-1] // 2 * 2

    def corners(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x = x[..., :H, :W]
        return x[..., ::2, ::2], x[..., ::2, 1::2], x[..., 1::2, ::2], x[..., 1::2, 1::2]

    a, b, c, d = corners(y)
    details = (a - b - c + d) / 2
    if seen is not None:
        whole = corners(seen.bool())
        details = details[..., whole[0] & whole[1] & whole[2] & whole[3]]
    if details.numel() < ENOUGH:
        raise ValueError("too few neighbouring pixels to estimate the noise from")
    return max(SMALLEST, float(details.abs().flatten().median()) / 0.6745)
