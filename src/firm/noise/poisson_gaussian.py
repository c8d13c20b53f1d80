"""The noise of a camera: that of photons, and that of reading the sensor."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from firm.noise.base import Rows, rows_of
from firm.noise.estimates import fit_photons
from firm.noise.poisson import Counted, poisson_quantile

HALVINGS, NEWTON = 8, 4  # steps that find the proximal step


class PoissonGaussian(Counted):
    """Photons and read noise: y = gain k - offset + sigma n, with the k of `Poisson` and n standard normal.

    Its likelihood is that of normal noise with the same variance gain (u + offset) + sigma^2, including the logarithm
    of that variance (Foi et al., 2008); what is drawn are counts.

    Parameters
    ----------
    gain, sigma
        What a photon adds to y, and the standard deviation of the read noise, both above 0: numbers, one per sample,
        (B,), or maps that broadcast over y, such as (C, 1, 1) for one of each channel. Without read noise: `Poisson`.
    offset
        What black measures is -offset. None: A 1, which is 1 for the identity and for masks.
    check
        Look at the values; off where a training loop draws its own.
    """

    sigma: Tensor

    def __init__(
        self,
        gain: float | Tensor,
        sigma: float | Tensor,
        offset: float | Tensor | None = None,
        *,
        check: bool = True,
    ) -> None:
        super().__init__()
        self._register(check, gain=gain, sigma=sigma)
        self._register(check, offset=offset)

    @classmethod
    def estimate(cls, picture: Tensor) -> PoissonGaussian:
        """Return the noise that a picture (1, C, H, W) shows; `firm.noise.estimates.fit_photons` says how sure."""
        found = fit_photons(picture)
        return cls(found.gain, found.sigma)

    def neg_log_likelihood(self, u: Tensor, y: Tensor) -> Tensor:
        """Sum (y - u)^2 / 2V + log(V) / 2 with the variance V = gain (u + offset) + sigma^2, for u + offset >= 0."""
        s, variance = self._variance(u)
        each = (y - u).square() / (2 * variance) + variance.log() / 2
        return torch.where(s < 0, torch.inf, each).flatten(1).sum(1)

    def draw(self, u: Tensor, source: Rows | Generator | None = None) -> Tensor:
        """Draw counts as `Poisson` does, and add the read noise."""
        rows, gain, s = rows_of(u, source), self._over(self.gain, u).to(u.dtype), self.intensity(u)
        counts = poisson_quantile(rows.rand(*u.shape[1:], device=u.device).to(u.dtype), s.clamp(min=0) / gain)
        read = self._over(self.sigma, u).to(u.dtype) * rows.randn(*u.shape[1:], device=u.device, dtype=u.dtype)
        return u + (gain * counts - s) + read

    def std(self, u: Tensor) -> Tensor:
        """Return sqrt(gain (u + offset) + sigma^2); no intensity is below 0."""
        return self._variance(u)[1].sqrt()

    def prox(self, v: Tensor, y: Tensor, weight: float | Tensor) -> Tensor:
        """The minimum over u >= -offset, found through the variance V = gain (u + offset) + sigma^2.

        With e and p the same of y and v, 2 gain^2 times the objective is, up to a constant,

            F(V) = e^2 / V + V + gain^2 log V + weight (V - p)^2,
            V^2 F'(V) = 2 weight V^3 + (1 - 2 weight p) V^2 + gain^2 V - e^2.

        The cubic has one or three positive roots. It rises up to its first extremum and from its second one on, so that
        each of the two parts holds one minimum of F, by halving the logarithm of V and then Newton's method.
        """
        gain, floor = self._over(self.gain, v), self._over(self.sigma, v).square()
        e, p = gain * self.intensity(y) + floor, gain * self.intensity(v) + floor

        def slope(V: Tensor) -> Tensor:
            return 1 - (e / V).square() + gain.square() / V + 2 * weight * (V - p)

        def newton(V: Tensor) -> Tensor:
            curvature = 2 * e.square() / V**3 - gain.square() / V.square() + 2 * weight
            return V - slope(V) / curvature.where(curvature > 0, torch.inf)

        def objective(V: Tensor) -> Tensor:
            return e.square() / V + V + gain.square() * V.log() + weight * (V - p).square()

        with torch.no_grad():
            highest = torch.maximum(torch.maximum(e.abs(), p), floor * torch.ones_like(e))
            lowest = floor * torch.ones_like(e)
            half = (2 * weight * p - 1) / (6 * weight)  # the extrema are half +- root
            root = half.square() - gain.square() / (6 * weight)
            apart = (root > 0) & (half > 0)
            root = root.clamp(min=0).sqrt()
            first = torch.where(apart, gain.square() / (6 * weight) / (half + root), highest)
            second = torch.where(apart, half + root, lowest)
            found = []
            for low, high in ((lowest, first.clamp(lowest, highest)), (second.clamp(lowest, highest), highest)):
                for _ in range(HALVINGS):
                    middle = (low * high).sqrt()
                    rising = slope(middle) > 0
                    low, high = torch.where(rising, low, middle), torch.where(rising, middle, high)
                V = (low * high).sqrt()
                for _ in range(NEWTON):
                    V = newton(V).clamp(low, high)
                found.append(V)
            V = torch.where(objective(found[0]) <= objective(found[1]), found[0], found[1])
            at_rest = (slope(lowest) >= 0) & (objective(lowest) <= objective(V))  # in the dark
        for _ in range(2):  # which have the derivatives of the solution, the first and the second
            V = newton(V)
        V = torch.where(at_rest, floor * torch.ones_like(V), V.clamp(min=lowest))
        return v + ((V - floor) / gain - self.intensity(v))

    def _variance(self, u: Tensor) -> tuple[Tensor, Tensor]:
        s = self.intensity(u)
        return s, self._over(self.gain, u) * s.clamp(min=0) + self._over(self.sigma, u).square()
