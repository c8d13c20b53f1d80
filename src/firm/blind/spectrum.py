"""How likely a blur is, given the power spectrum of the blurred picture: Whittle's likelihood.

A blur multiplies the spectrum of a photograph by |H(f)|^2, the transfer function of its kernel. Of photographs much is
known: their power falls like C / |f|^a, with a near 2.4, a little more or less along the axes. So a picture has

    P(f) = C |f|^-a exp(anisotropy of f's direction) |H(f)|^2 + N,

and what the family of blurs leaves open (a width; a length and an angle) is told by which H explains P best: the zeros
of a motion, the fall of a Gaussian. Phases are not used: for free forms they are needed, see `firm.blind.free_form`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from firm.operators import motion_kernels

BLOCKS = 56  # a side, over all frequencies: fine enough for the zeros of a motion of 25 pixels
LOWEST, HIGHEST = 0.03, 0.5  # frequencies in cycles a pixel: below, the subject decides, not the blur
LEAST = 1e-4  # of |H|^2: zeros are filled by the window's leakage and by what moved otherwise
SCATTER = 0.8  # of the logarithm of a block's power about the model, beyond that of its few modes
INDEPENDENT = 200  # what the blocks count for: neighbors scatter together, so that errors that are stated occur
WINDOW = 2.25  # modes that a Hann window in two dimensions makes one
QUIETEST, DEVIATION = 0.1, -1.2816  # the quantile of blocks that tells the noise, and that of a standard normal
# The mean and the standard deviation of a photograph's parameters: log C, a, and those of cos and sin of 2 and 4 phi.
MEAN = (0.0, 2.4, 0.0, 0.0, 0.0, 0.0)
SPREAD = (1e3, 0.4, 0.4, 0.4, 0.25, 0.25)
NARROWEST, WIDEST, LONGEST = 0.2, 5.0, 25.0  # pixels


class Spectrum:
    """The power of a gray picture (H, W) in blocks of frequencies, and the noise below it.

    Parameters
    ----------
    gray
        The picture, of at least 48 pixels a side.
    """

    def __init__(self, gray: Tensor) -> None:
        power, self.fy, self.fx, modes = _blocks(gray.double())
        self.noise = _floor(power, modes)  # a variance, per pixel
        self.clear = math.log(self.noise * (1 + 6 / math.sqrt(modes)))  # noise alone seldom has so much power
        self.f = torch.hypot(self.fx, self.fy)
        self.log_power = power.log() + 1 / (2 * modes)  # the logarithm of a mean of exponentials lies below
        self.weight = INDEPENDENT / len(power) / (SCATTER**2 + 1 / modes)
        direction = torch.atan2(self.fy, self.fx)
        waves = [wave(m * direction) for m in (2, 4) for wave in (torch.cos, torch.sin)]
        self.basis = torch.stack([torch.ones_like(self.f), -self.f.log(), *waves], 1)  # (n, 6)

    @property
    def detail(self) -> float:
        """The share of the frequencies whose power is clearly above the noise."""
        return float((self.log_power > self.clear).float().mean())

    def score(self, log_transfer: Tensor, iterations: int = 5) -> Tensor:
        """Find how well blurs explain the spectrum: the log-likelihood (M,), up to a constant, of each of M.

        The photograph's parameters are fitted to each blur by Gauss-Newton, in the logarithm of the power.

        Parameters
        ----------
        log_transfer
            log |H|^2 at the frequencies, (M, n): what `transfer`, `gaussians` or `motions` return.
        iterations
            Of Gauss-Newton.
        """
        return torch.cat([self._score(part, iterations) for part in log_transfer.split(256)])

    def _score(self, T: Tensor, iterations: int) -> Tensor:
        mean, precision = torch.tensor(MEAN), 1 / torch.tensor(SPREAD).square()
        products = (self.basis[:, :, None] * self.basis[:, None]).flatten(1)
        c = mean.expand(len(T), -1).clone()
        low = self.f < 4 * LOWEST
        c[:, 0] = (self.log_power - self.basis @ mean - T)[:, low].median(1).values
        for _ in range(iterations):
            signal = (c @ self.basis.T + T).exp()
            share, residual = signal / (signal + self.noise), self.log_power - (signal + self.noise).log()
            normal = (self.weight * share.square()) @ products
            right = (self.weight * share * residual) @ self.basis - precision * (c - mean)
            step = torch.linalg.solve(normal.reshape(-1, 6, 6) + precision.diag(), right[..., None])[..., 0]
            c = c + step.clamp(-1, 1)
        residual = self.log_power - ((c @ self.basis.T + T).exp() + self.noise).log()
        return -(self.weight * residual.square()).sum(1) / 2 - (precision * (c - mean).square()).sum(1) / 2

    def transfer(self, kernels: Tensor) -> Tensor:
        """Compute log |H|^2 of kernels (M, h, w), summing to 1, at the frequencies: (M, n)."""
        rows, columns = (
            torch.exp(-2j * math.pi * f[:, None] * torch.arange(side))
            for f, side in zip((self.fy, self.fx), kernels.shape[1:], strict=True)
        )
        H = torch.einsum("mhw,nw,nh->mn", kernels.to(columns.dtype), columns, rows)
        return (H.abs().square() + LEAST).log()

    def gaussians(self, width: Tensor) -> Tensor:
        """Compute log |H|^2 of Gaussians of standard deviations `width` (M,), in pixels: (M, n)."""
        return (torch.exp(-((2 * math.pi * self.f * width[:, None]).square())) + LEAST**2).log()

    def motions(self, length: Tensor, angle: Tensor) -> Tensor:
        """Compute log |H|^2 of straight motions, lengths (M,) in pixels and angles (M,) in degrees: (M, n)."""
        return self.transfer(motion_kernels(2 * math.ceil(LONGEST / 2) + 1, length, angle)[:, 0])


def best_gaussian(spectrum: Spectrum) -> tuple[float, float, float]:
    """Find the width of the likeliest Gaussian: its score, the mean of the width given the picture, its deviation."""
    width = torch.exp(torch.linspace(math.log(NARROWEST), math.log(WIDEST), 120))
    score = spectrum.score(spectrum.gaussians(width))
    mean, deviation = _moments(score, width)
    return float(score.max()), mean, deviation


def best_motion(spectrum: Spectrum) -> tuple[float, float, float, float]:
    """Find the likeliest straight motion: its score, length and angle in degrees, and the deviation of the length."""
    length, angle = _grid(torch.arange(2.0, LONGEST + 0.1), torch.arange(0.0, 180.0, 7.5))
    best = spectrum.score(spectrum.motions(length, angle), iterations=3).topk(4).indices
    length, angle = length[best], angle[best]
    for step, turn in ((0.5, 4.0), (0.25, 2.0), (0.125, 1.0)):
        around = torch.tensor([-1.0, 0.0, 1.0])
        steps, turns = _grid(step * around, turn * around)
        length = (length[:, None] + steps).flatten().clamp(1, LONGEST)
        angle = (angle[:, None] + turns).flatten()
        best = spectrum.score(spectrum.motions(length, angle)).topk(2).indices
        length, angle = length[best], angle[best]
    lengths = (length[0] + torch.arange(-2, 2.01, 0.1)).clamp(1, LONGEST)
    score = spectrum.score(spectrum.motions(lengths, angle[0].expand_as(lengths)))
    return float(score.max()), *_moments(score, lengths)[:1], float(angle[0]) % 180, _moments(score, lengths)[1]


def _moments(score: Tensor, values: Tensor) -> tuple[float, float]:
    """Return the mean and the deviation of a parameter with these log-likelihoods."""
    likely = torch.softmax(score, 0)
    mean = (likely * values).sum()
    return float(mean), float((likely * (values - mean).square()).sum().sqrt())


def _grid(*axes: Tensor) -> list[Tensor]:
    return [values.flatten() for values in torch.meshgrid(*axes, indexing="ij")]


def _blocks(gray: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
    """Average the power of a gray picture over blocks of frequencies in half of the plane.

    Returns
    -------
    Powers, vertical and horizontal frequencies, (n,); and how many independent modes a block has.
    """
    H, W = gray.shape
    window = torch.outer(*(torch.hann_window(n, periodic=False, dtype=gray.dtype) for n in (H, W)))
    mean = (gray * window).sum() / window.sum()
    power = torch.fft.fftshift(torch.fft.fft2((gray - mean) * window).abs().square()) / window.square().sum()
    fy, fx = (torch.fft.fftshift(torch.fft.fftfreq(n, dtype=gray.dtype)) for n in (H, W))
    h, w = (max(1, round(n / BLOCKS)) for n in (H, W))

    def averaged(values: Tensor) -> Tensor:
        inside = values[: H // h * h, : W // w * w]
        return inside.unflatten(1, (-1, w)).unflatten(0, (-1, h)).mean((1, 3))

    blocks = [averaged(v) for v in (power, fy[:, None].expand(H, W), fx.expand(H, W))]
    f = torch.hypot(blocks[1], blocks[2])
    half = (blocks[2] > 0) & (f > LOWEST) & (f < HIGHEST)
    power, fy, fx = (block[half].float() for block in blocks)
    return power.clamp(min=1e-12), fy, fx, h * w / WINDOW


def _floor(power: Tensor, modes: float) -> float:
    """Estimate the noise's variance from the quietest frequencies, which the blur has emptied of all else.

    Noise alone has powers that are Gamma-distributed, with `modes` as its shape; Wilson and Hilferty's formula has the
    quantile.
    """
    ninth = 1 / (9 * modes)
    return max(float(power.quantile(QUIETEST)) / max(1 - ninth + DEVIATION * math.sqrt(ninth), 0.1) ** 3, 1e-7)
