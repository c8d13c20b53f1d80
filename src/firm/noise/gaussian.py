"""Gaussian noise: of one level, of a map of standard deviations, or with a spectrum."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from firm._util.checks import require
from firm.noise.base import Noise, Rows, rows_of
from firm.noise.estimates import estimate_noise
from firm.operators.base import LinearOperator, Operator, data_consistency, diagonal, per_sample, shape
from firm.operators.blur import filtered


class Gaussian(Noise):
    """y = u + n with independent normal n, whose covariance is diagonal in the pixels or in Fourier space.

    Parameters
    ----------
    sigma
        Standard deviation: a number, one per sample, (B,), or a map that broadcasts over y, positive throughout. Of
        complex noise it is that of both parts together.
    spectrum
        For noise with a spectrum in real images y (B, C, H, W): the factor of `sigma` at every frequency of the
        orthonormal transform, positive, (H, W) in the order of ``torch.fft.fft2`` and the same at k and -k.
    check
        Look at the values; off where a training loop draws its own.
    """

    takes_complex, without_unit = True, ("spectrum",)
    sigma: Tensor
    spectrum: Tensor | None

    def __init__(self, sigma: float | Tensor, spectrum: Tensor | None = None, *, check: bool = True) -> None:
        super().__init__()
        several = isinstance(sigma, Tensor) and sigma.ndim > 1
        self._register(check, zero=not several, sigma=sigma)
        self._register(check, spectrum=spectrum)
        if spectrum is not None and check:
            mirrored = spectrum.flip(-2, -1).roll((1, 1), (-2, -1))
            even = spectrum.ndim == 2 and torch.allclose(spectrum, mirrored)
            wanted = "(H, W), and the same at k and -k, in the order of torch.fft.fft2"
            require(even, f"Gaussian: spectrum must be {wanted}; got {shape(spectrum)}")

    def _placed(self, key: str, value: Tensor, y: Tensor) -> Tensor:
        if key == "sigma":
            placed = super()._placed(key, value, y)
            one_each = self.spectrum is None or placed.numel() in (1, len(y))
            require(one_each, "Gaussian: with a spectrum, sigma is a number or one per sample")
            return placed
        fits = not y.is_complex() and y.ndim == 4 and value.shape[-2:] == y.shape[-2:]
        require(fits, f"Gaussian: a spectrum of {shape(value)} does not fit measurements {shape(y)} of {y.dtype}")
        return value.to(y.device, y.dtype)

    @property
    def plain(self) -> bool:
        """Whether there is one level for every sample, and no more to know."""
        return self.spectrum is None and self.sigma.numel() == (len(self.sigma) if self.sigma.ndim else 1)

    @classmethod
    def estimate(cls, picture: Tensor) -> Gaussian:
        """Return white noise of the level that a picture (1, C, H, W) shows, see `firm.noise.estimates`."""
        return cls(estimate_noise(picture))

    def neg_log_likelihood(self, u: Tensor, y: Tensor) -> Tensor:
        """|W (y - u)|^2 / 2 with W the inverse root of the covariance; of complex noise twice that."""
        parts = 1.0 if y.is_complex() else 0.5
        return parts * (self._whitened(y - u) / self.sigma).abs().square().flatten(1).sum(1)

    def draw(self, u: Tensor, source: Rows | Generator | None = None) -> Tensor:
        """Add normal noise."""
        noise = rows_of(u, source).randn(*u.shape[1:], device=u.device, dtype=u.dtype)
        if self.spectrum is not None:
            noise = filtered(noise, self._half(self.spectrum))
        sigma = per_sample(self.sigma, u) if self.sigma.ndim == 1 else self.sigma.to(u.device, u.real.dtype)
        return u + sigma * noise

    def std(self, u: Tensor) -> Tensor:
        """The map itself, whatever `u`; with a spectrum its root mean square."""
        spread = 1 if self.spectrum is None else self.spectrum.square().mean().sqrt()
        return (self.sigma * spread).expand(u.shape)

    def level(self, y: Tensor) -> Tensor:
        """Return sigma where there is one; else see `Noise.level`."""
        return self.sigma.reshape(-1).expand(len(y)) if self.plain else super().level(y)

    def prox(self, v: Tensor, y: Tensor, weight: float | Tensor) -> Tensor:
        """The average of y and v with weights 1 and sigma^2 weight; without a spectrum."""
        share = weight * self.sigma.square()
        return (y + share * v) / (1 + share)

    def data_consistency(self, op: LinearOperator, z: Tensor, y: Tensor, rho: float | Tensor) -> Tensor:
        """Solve (A'W A + rho I) x = A'W y + rho z with W = level^2 / covariance; W = I for one level.

        Exact where A A' is diagonal (see `Noise.data_consistency`), by conjugate gradients with W^(1/2) A elsewhere.
        """
        if self.plain:
            return data_consistency(op, z, y, rho)
        if self.spectrum is None and diagonal(op, y) is not None:
            return super().data_consistency(op, z, y, rho)
        whitened = _Whitened(op, self, self.level(y).reshape(-1, *[1] * (y.ndim - 1)))
        return data_consistency(whitened, z, whitened.whiten(y), rho)

    def synchronizes(self, op: LinearOperator, y: Tensor) -> bool:
        """Conjugate gradients look at their residual, unless the operator's ``cg_tol`` is 0."""
        if self.plain or (self.spectrum is None and diagonal(op, y) is not None):
            return super().synchronizes(op, y)
        return getattr(op, "cg_tol", None) != 0

    def _whitened(self, y: Tensor) -> Tensor:
        """Return y with the spectrum divided out."""
        return y if self.spectrum is None else filtered(y, self._half(1 / self.spectrum))

    @staticmethod
    def _half(spectrum: Tensor) -> Tensor:
        return spectrum[..., : spectrum.shape[-1] // 2 + 1]


class _Whitened(Operator):
    """W^(1/2) A, whose noise is white with the standard deviation `level`, (B, 1, ...)."""

    def __init__(self, op: LinearOperator, noise: Gaussian, level: Tensor) -> None:
        super().__init__(like=op)
        self.op, self.noise, self.level = op, noise, level

    def whiten(self, y: Tensor) -> Tensor:
        """Multiply by W^(1/2)."""
        return self.noise._whitened(y) * (self.level / self.noise.sigma)

    def A(self, x: Tensor) -> Tensor:
        """Measure and whiten."""
        return self.whiten(self.op.A(x))

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Whiten, which is symmetric, and apply the adjoint."""
        return self.op.A_adjoint(self.whiten(y))
