"""A kernel of any form, from the gradients of a picture: sparse variational Bayes, from coarse to fine.

After Wipf and Zhang, "Revisiting Bayesian blind deconvolution" (JMLR 2014): the gradients x of a sharp picture are
Gaussian with a variance gamma of their own at every pixel, found from the data. That makes most of them 0 and leaves
edges free. With the means and variances of x given the picture, the kernel is a least-squares fit of the blurred
gradients. The variances matter: without them the best kernel is a point, and the best picture the blurred one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from firm.operators import Blur

COARSER = math.sqrt(0.5)  # from scale to scale
COARSEST = 5  # pixels of the kernel
ROUNDS, ITERATIONS, FITS = 12, 10, 150  # a scale; of conjugate gradients; of the kernel's fit
FAINT = 0.05  # of the kernel's largest value: less is taken for 0


def free_form(gray: Tensor, noise: float, size: int) -> Tensor:
    """Estimate the kernel (size, size) that has blurred a gray picture (H, W): at least 0, with the sum 1.

    Parameters
    ----------
    gray
        The picture; all of it is used, and time grows with its size.
    noise
        The standard deviation of its noise.
    size
        Odd; the blur should fit. The center of mass of the kernel is its middle: a shift cannot be told.
    """
    sizes = [size]
    while sizes[-1] > COARSEST:
        sizes.append(max(COARSEST, round(sizes[-1] * COARSER) // 2 * 2 + 1))
    middle = sizes[-1] // 2
    kernel = torch.zeros(sizes[-1], sizes[-1])
    kernel[middle, middle : middle + 2] = 0.5  # not a point, which is where it would stay
    for side in reversed(sizes):
        small, scale = gray, side / size
        if side < size:
            shape = [round(n * scale) for n in gray.shape]
            small = F.interpolate(gray[None, None], shape, mode="bicubic", antialias=True, align_corners=False)[0, 0]
        if side > len(kernel):
            larger = F.interpolate(kernel[None, None], (side, side), mode="bilinear", align_corners=False)[0, 0]
            kernel = larger / larger.sum()
        kernel = _at_one_scale(_gradients(small), kernel, max(2 * (noise * scale) ** 2, 1e-6))
    return kernel


def _at_one_scale(y: Tensor, kernel: Tensor, least: float) -> Tensor:
    """Refine a kernel on gradients y (2, H, W) whose noise has at least the variance `least`."""
    reach = len(kernel) // 2
    h, w = (_quick(n + 2 * reach) - 2 * reach for n in y.shape[-2:])
    y = y[:, :h, :w]
    power = float(y.square().mean())
    x = F.pad(y, (reach,) * 4)
    level, gamma = max(10 * least, 0.02 * power), torch.full_like(x, 3 * power)
    for _ in range(ROUNDS):
        x = _gradients_given(y, x, kernel, gamma, level)
        variance = 1 / (kernel.square().sum() / level + 1 / gamma)
        gamma = (x.square() + variance).mean(0, keepdim=True).expand_as(x)  # edges have both gradients
        inside = variance[:, reach : reach + h, reach : reach + w].sum()
        kernel = _kernel_given(y, x, kernel, inside)
        misfit = (_blurred(x, kernel) - y).square().sum() + kernel.square().sum() * inside
        level = max(least, 0.9 * float(misfit) / y.numel())
    return _centered(kernel)


def _quick(n: int) -> int:
    """Return the largest number up to n without a prime factor above 5, whose Fourier transform is quick."""
    return max(a * b * c for a in _POWERS[2] for b in _POWERS[3] for c in _POWERS[5] if a * b * c <= n)


_POWERS = {prime: [prime**i for i in range(12)] for prime in (2, 3, 5)}


def _gradients(gray: Tensor) -> Tensor:
    return torch.stack([gray[:-1, 1:] - gray[:-1, :-1], gray[1:, :-1] - gray[:-1, :-1]])


def _blurred(x: Tensor, kernel: Tensor) -> Tensor:
    return Blur(kernel, boundary="valid", check=False).A(x[None])[0]


def _gradients_given(y: Tensor, x: Tensor, kernel: Tensor, gamma: Tensor, level: float) -> Tensor:
    """Solve (H'H / level + 1 / gamma) x = H'y / level by conjugate gradients from x, with the diagonal's help."""
    op = Blur(kernel, boundary="valid", check=False)

    def M(v: Tensor) -> Tensor:
        return op.A_adjoint(op.A(v[None]))[0] / level + v / gamma

    inverse = 1 / (kernel.square().sum() / level + 1 / gamma)
    r = op.A_adjoint(y[None])[0] / level - M(x)
    z = inverse * r
    p, rz = z, (r * z).sum()
    for _ in range(ITERATIONS):
        Mp = M(p)
        alpha = rz / (p * Mp).sum().clamp(min=1e-30)
        x, r = x + alpha * p, r - alpha * Mp
        z = inverse * r
        rz, before = (r * z).sum(), rz
        p = z + rz / before.clamp(min=1e-30) * p
    return x


def _kernel_given(y: Tensor, x: Tensor, kernel: Tensor, variance: Tensor) -> Tensor:
    """Minimize |k * x - y|^2 + variance |k|^2 over kernels k >= 0, from `kernel`; its sum is made 1.

    The gradient is exact, and the matrix that of the autocorrelation of x: where the fit ends, both agree.
    """
    side, (h, w) = len(kernel), y.shape[-2:]
    reach, shape = side // 2, x.shape[-2:]
    residual = F.pad(_blurred(x, kernel) - y, (reach,) * 4)
    correlated = torch.fft.irfft2((torch.fft.rfft2(residual) * torch.fft.rfft2(x).conj()).sum(0), s=shape)
    lags = torch.arange(side) - reach
    gradient = correlated[lags[:, None] % shape[0], lags % shape[1]] + variance * kernel
    padded = (h + side, w + side)
    power = torch.fft.rfft2(x[:, reach : reach + h, reach : reach + w], s=padded).abs().square().sum(0)
    apart = torch.arange(side)[:, None] - torch.arange(side)
    auto = torch.fft.irfft2(power, s=padded)[apart[:, None, :, None] % padded[0], apart[None, :, None, :] % padded[1]]
    G = auto.reshape(side**2, side**2) + variance * torch.eye(side**2)
    fitted = _non_negative(G, gradient.flatten() - G @ kernel.flatten(), kernel.flatten()).reshape(side, side)
    fitted = fitted * (fitted > FAINT * fitted.max())
    total = fitted.sum()
    return fitted / total if total > 0 else kernel


def _non_negative(G: Tensor, c: Tensor, k: Tensor) -> Tensor:
    """Minimize k'Gk / 2 + c'k over k >= 0 by Nesterov's accelerated projected gradients."""
    v = G[len(G) // 2]
    for _ in range(20):
        v = G @ v
        v = v / v.norm()
    step = 1 / (1.02 * float(v @ (G @ v)))
    z, t = k, 1.0
    for _ in range(FITS):
        new = (z - step * (c + G @ z)).clamp(min=0)
        following = (1 + math.sqrt(1 + 4 * t**2)) / 2
        z, k, t = new + (t - 1) / following * (new - k), new, following
    return k


def _centered(kernel: Tensor) -> Tensor:
    """Move the center of mass of a kernel to its middle, by whole pixels; what leaves the square is lost."""
    side = len(kernel)
    offsets = torch.arange(side, dtype=kernel.dtype) - side // 2
    down, right = (round(float((kernel.sum(axis) * offsets).sum())) for axis in (1, 0))
    around = F.pad(kernel, (side,) * 4).roll((-down, -right), (0, 1))[side:-side, side:-side]
    return around / around.sum()
