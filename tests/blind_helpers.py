"""A picture with edges and texture, as photographs have, and what a blur makes of it."""

import torch
from torch.nn import functional as F


def leaves(side=208, count=900, seed=0):
    """Discs of all sizes that hide each other ("dead leaves"), (1, 3, side, side) in [-1, 1]."""
    g = torch.Generator().manual_seed(seed)
    row, column = torch.meshgrid(torch.arange(2 * side) / 2, torch.arange(2 * side) / 2, indexing="ij")
    x = torch.zeros(3, 2 * side, 2 * side)
    for _ in range(count):
        u = torch.rand(6, generator=g)
        radius = 2 / (1 - 0.95 * u[0]) ** 0.9
        inside = (row - side * u[1]).square() + (column - side * u[2]).square() < radius**2
        x[:, inside] = (1.6 * u[3:] - 0.8)[:, None]
    return F.avg_pool2d(x[None], 2)


def blurred(x, kernel, noise=0.01, seed=1):
    """Convolve x by a loop over the kernel's pixels, keep what needs nothing from outside, and add noise."""
    (h, w), (H, W) = kernel.shape, x.shape[-2:]
    y = sum(
        float(kernel[i, j]) * x[..., h - 1 - i : H - i, w - 1 - j : W - j]
        for i in range(h) for j in range(w) if kernel[i, j] > 0
    )  # fmt: skip
    return y + noise * torch.randn(y.shape, generator=torch.Generator().manual_seed(seed))


def alike(a, b, side=64):
    """How alike two kernels are, whatever their shift: the largest of their normalized correlation, 1 if equal."""
    A, B = (torch.fft.rfft2(k, s=(side, side)) for k in (a, b))
    return float(torch.fft.irfft2(A * B.conj(), s=(side, side)).max() / (a.norm() * b.norm()))


def hook():
    """A kernel (11, 11) that is neither a Gaussian nor straight, and no mirror image of itself."""
    k = torch.zeros(11, 11)
    k[1:9, 3] = 1.0
    k[8, 3:9] = 1.5
    k[6:8, 8] = 0.7
    return k / k.sum()
