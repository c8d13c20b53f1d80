"""The noise of computed tomography: photons are counted behind the object, and their logarithm is the measurement."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from firm.noise.base import Noise, Rows, rows_of
from firm.noise.gaussian import Gaussian
from firm.noise.poisson import poisson_quantile
from firm.operators.base import LinearOperator


def line_integrals(counts: Tensor, blank: float | Tensor) -> tuple[Tensor, Tensor]:
    """Return p = log(blank / (k + 1/2)) of counted photons k, and its standard deviation, 1 / sqrt(k + 1/2).

    The half photon takes the bias of the logarithm away where a few are counted, and makes a measurement of no photon
    at all an uncertain one, which counts little, instead of an infinite one.

    Parameters
    ----------
    counts
        Photons behind the object, not negative.
    blank
        Photons without an object, of every ray or of all.
    """
    seen = counts + 0.5
    return (blank / seen).log(), seen.rsqrt()


class Attenuation(Noise):
    """y = unit log(photons / (k + 1/2)) - offset, with k photons of mean photons exp(-(u + offset) / unit) counted.

    The data-consistency step takes this for Gaussian noise with the standard deviation unit / sqrt(k + 1/2) in every
    ray, which is nearly true from some ten photons on: weighted least squares. `firm.operators.Transmission` has the
    intensities themselves for a measurement and is not linear; it takes one noise level, where here all rays have
    theirs.

    Parameters
    ----------
    photons
        Counted on average where nothing absorbs: a number, one per sample, (B,), or a map that broadcasts over y.
    unit
        What y gains where the beam is weakened by the factor e.
    offset
        What nothing absorbing measures is -offset. None: A 1, as black is -1 in images.
    check
        Look at the values; off where a training loop draws its own.
    """

    without_unit = ("photons",)
    photons: Tensor
    unit: Tensor
    offset: Tensor | None

    def __init__(
        self, photons: float | Tensor, unit: float | Tensor = 1.0, offset: float | Tensor | None = None, *,
        check: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self._register(check, photons=photons, unit=unit)
        self._register(check, offset=offset)

    def counted(self, u: Tensor) -> Tensor:
        """Return how many photons arrive on average at the noiseless `u`."""
        absorbed = u + (0 if self.offset is None else self._over(self.offset, u))
        return self._over(self.photons, u) * torch.exp(-absorbed / self._over(self.unit, u))

    def _over(self, value: Tensor, u: Tensor) -> Tensor:
        return value if value.ndim in (0, u.ndim) else self._placed("", value, u)

    def _seen(self, y: Tensor) -> Tensor | None:
        """Rays that miss the image tell nothing, nor do views that were not taken."""
        return None if self.offset is None else (self.offset > 0).to(y.dtype).expand_as(y)

    def neg_log_likelihood(self, u: Tensor, y: Tensor) -> Tensor:
        """Sum m - k log m, with the counts k behind y and the mean m behind u."""
        m, k = self.counted(u), self.counted(y) - 0.5
        return (m - k * m.log()).flatten(1).sum(1)

    def draw(self, u: Tensor, source: Rows | Generator | None = None) -> Tensor:
        """Count photons, with one uniform number each, and take the logarithm."""
        uniform = rows_of(u, source).rand(*u.shape[1:], device=u.device).to(u.dtype)
        mean = self.counted(u)
        p, _ = line_integrals(poisson_quantile(uniform, mean), mean)
        seen, noise = self._seen(u), self._over(self.unit, u) * p
        return u + (noise if seen is None else noise * seen)

    def std(self, u: Tensor) -> Tensor:
        """Return unit / sqrt(photons), of at least half a photon."""
        return self._over(self.unit, u) * self.counted(u).clamp(min=0.5).rsqrt()

    def prox(self, v: Tensor, y: Tensor, weight: float | Tensor) -> Tensor:
        """The mean of v and y, weighted with their precisions."""
        precision = self.std(y).square().reciprocal()
        return (precision * y + weight * v) / (precision + weight)

    def data_consistency(self, op: LinearOperator, z: Tensor, y: Tensor, rho: float | Tensor) -> Tensor:
        """Solve as with Gaussian noise of the standard deviations that y shows."""
        return Gaussian(self.std(y), check=False).data_consistency(op, z, y, rho)

    def synchronizes(self, op: LinearOperator, y: Tensor) -> bool:
        """As Gaussian noise with a map does."""
        return Gaussian(self.std(y), check=False).synchronizes(op, y)
