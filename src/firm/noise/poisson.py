"""Photon noise: the number of photons that is counted at every measurement has a Poisson distribution."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from firm.noise.base import Noise, Rows, rows_of
from firm.noise.estimates import fit_photons

MANY = 400  # photons, of which the quantile is known well without the distribution function
WINDOW = 6  # counts around the first guess of a quantile; see `poisson_quantile`


class Counted(Noise):
    """What the noise of photons shares: a gain, and an offset that makes intensities u + offset of measurements u."""

    gain: Tensor
    offset: Tensor | None

    def intensity(self, u: Tensor) -> Tensor:
        """Return u + offset, which is 0 in the dark; an offset not known yet counts as 1."""
        return u + (1 if self.offset is None else self._over(self.offset, u))

    def _over(self, value: Tensor, u: Tensor) -> Tensor:
        """Return a parameter so that it broadcasts over `u`, where that was not done before (`Noise.on`)."""
        return value if value.ndim in (0, u.ndim) else self._placed("", value, u)

    def _seen(self, y: Tensor) -> Tensor | None:
        """Where the operator collects no light at all, nothing is seen."""
        return None if self.offset is None or self.offset.ndim == 0 else (self.offset > 1e-6).to(y.dtype).expand_as(y)


class Poisson(Counted):
    """Photon noise: y = gain k - offset, with k photons of a Poisson distribution of mean (u + offset) / gain.

    Its variance is gain (u + offset). With P photons at white, gain = 2 / P.

    Parameters
    ----------
    gain
        What a photon adds to y, above 0: a number, one per sample, (B,), or a map that broadcasts over y.
    offset
        What black measures is -offset. None: A 1, which is 1 for the identity and for masks.
    check
        Look at the values; off where a training loop draws its own.
    """

    impossible_because = "are below black, -offset, and would be negative counts of photons"

    def __init__(self, gain: float | Tensor, offset: float | Tensor | None = None, *, check: bool = True) -> None:
        super().__init__()
        self._register(check, gain=gain)
        self._register(check, offset=offset)

    @classmethod
    def estimate(cls, picture: Tensor) -> Poisson:
        """Return photon noise as a picture (1, C, H, W) shows it; `firm.noise.estimates.fit_photons` says how sure."""
        return cls(fit_photons(picture, read=False).gain)

    def neg_log_likelihood(self, u: Tensor, y: Tensor) -> Tensor:
        """Sum (s - c log s) / gain with the intensities s = u + offset and c = y + offset; infinite where s < 0."""
        s, c = self.intensity(u), self.intensity(y)
        each = (s - torch.special.xlogy(c, torch.where(c > 0, s, 1).clamp(min=0))) / self._over(self.gain, u)
        return torch.where(s < 0, math.inf, each).flatten(1).sum(1)

    def draw(self, u: Tensor, source: Rows | Generator | None = None) -> Tensor:
        """Draw counts: quantiles of one uniform number each, so that batches can be split, and CUDA graphs hold it."""
        uniform = rows_of(u, source).rand(*u.shape[1:], device=u.device).to(u.dtype)
        gain = self._over(self.gain, u).to(u.dtype)
        counts = poisson_quantile(uniform, self.intensity(u).clamp(min=0) / gain)
        return u + (gain * counts - self.intensity(u))

    def std(self, u: Tensor) -> Tensor:
        """Return sqrt(gain (u + offset)), of one photon at least: no counts do not mean no noise."""
        gain = self._over(self.gain, u)
        return (gain * self.intensity(u).clamp(min=gain)).sqrt()

    def prox(self, v: Tensor, y: Tensor, weight: float | Tensor) -> Tensor:
        """The root s >= 0 of weight s^2 - (weight q - 1/gain) s - c/gain = 0; s, q and c are those of u, v and y."""
        per_gain = 1 / (self._over(self.gain, v) * weight)
        b, c = self.intensity(v) - per_gain, 4 * per_gain * self.intensity(y).clamp(min=0)
        root = (b.square() + c).clamp(min=torch.finfo(v.dtype).tiny).sqrt()
        s = torch.where(b > 0, (b + root) / 2, c / (2 * (root - b.clamp(max=0))))  # nothing cancels
        return v + (s - self.intensity(v))

    def impossible(self, y: Tensor) -> Tensor:
        """Count negative intensities, where any light is seen."""
        seen = self._seen(y)
        below = self.intensity(y) < -1e-4
        return (below if seen is None else below & (seen > 0)).sum()


def poisson_quantile(uniform: Tensor, mean: Tensor) -> Tensor:
    """Return the smallest k with P(X <= k) > u for X of a Poisson distribution: u uniform makes k a draw of it.

    The quantile of the normal distribution, corrected for skewness (Cornish and Fisher), misses it by a count or two;
    from the distribution function below that, the next `WINDOW` probabilities are added one by one. Of means above
    `MANY` the first guess is taken: their probabilities lose digits in float32. The number of operations is fixed, and
    no draw depends on another one.
    """
    mean = mean.clamp(min=1e-30)
    normal = torch.special.ndtri(uniform.clamp(1e-7, 1 - 1e-7))
    guess = mean + mean.sqrt() * normal + (normal.square() - 1) / 6
    k = (guess.floor() - WINDOW // 2).clamp(min=0)
    below = torch.special.gammaincc(k.clamp(min=1), mean) * (k > 0)  # P(X <= k - 1)
    probability = (k * mean.log() - mean - torch.lgamma(k + 1)).exp()  # P(X = k)
    found = k
    for _ in range(WINDOW):
        below = below + probability
        found = found + (uniform >= below)
        k = k + 1
        probability = probability * mean / k
    return torch.where(mean > MANY, (guess + 0.5).floor(), found)
