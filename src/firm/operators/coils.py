"""Receiver coils: their maps from a calibration region or simulated, their noise, and whitening. Tensors throughout.

K-space is centered here, as scanners and files have it: zero frequency at (H // 2, W // 2).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from firm._util.checks import require

CORNER = 1.12  # where the corners of k-space begin, in units of the ellipse that touches its sides
FLAT = 1.1  # how much stronger samples before them may be, if both are noise
POWER_ITERATIONS = 30  # the second eigenvalue is far below the first wherever one set of maps explains the coils


def espirit_maps(
    calibration: Tensor, shape: tuple[int, int], kernel: int = 6, threshold: float = 0.02, crop: float = 0.9
) -> Tensor:
    """Estimate sensitivity maps (C, H, W) from the fully sampled middle of k-space: ESPIRiT (Uecker et al., 2014).

    All patches a of `kernel` x `kernel` samples of all coils lie near one subspace, with the projection P = E E^H, from
    the eigenvectors E of sum a a^H whose singular values are above `threshold` of the largest. Averaged over where in a
    patch a sample may lie, P acts on images pixel by pixel,

        G_cd(r) = 1/K^2 sum_uw P_cu,dw exp(-2 pi i (w - u) r / N),        G(r) s(r) = s(r),

    so that the maps are the eigenvectors of G(r) with the eigenvalue 1. They have sum |s|^2 = 1, and the phase of the
    strongest combination of coils is 0.

    Parameters
    ----------
    calibration
        Complex samples (C, h, w) around zero frequency, all of them measured.
    shape
        H and W of the image.
    kernel
        Sides of the patches, K.
    threshold
        Of singular values, relative to the largest.
    crop
        Maps are 0 where the eigenvalue is below this: nothing is seen there.
    """
    C, h, w = calibration.shape
    require(
        min(h, w) > kernel and bool(calibration.isfinite().all()) and bool(calibration.any()),
        f"espirit_maps: the calibration region of {h}x{w} samples must be finite, larger than {kernel}x{kernel}, and "
        "not 0 throughout",
    )
    H, W = shape
    patches = calibration.unfold(1, kernel, 1).unfold(2, kernel, 1)  # (C, h - K + 1, w - K + 1, K, K)
    a = patches.permute(0, 3, 4, 1, 2).reshape(C * kernel**2, -1)
    values, vectors = torch.linalg.eigh(a @ a.mH / a.abs().square().sum())
    E = vectors[:, values > threshold**2 * values[-1]]
    P = (E @ E.mH).reshape(C, kernel, kernel, C, kernel, kernel)
    Q = torch.zeros(C, C, H, W, dtype=P.dtype, device=P.device)  # sums of P over equal lags w - u
    for i in range(kernel):
        for j in range(kernel):  # u = (i, j)
            rows, columns = (torch.arange(kernel, device=P.device) - n for n in (i, j))
            Q[:, :, rows[:, None] % H, columns[None] % W] += P[:, i, j]
    G = torch.fft.fftshift(torch.fft.fft2(Q), dim=(-2, -1)).permute(2, 3, 0, 1) / kernel**2  # (H, W, C, C)
    s = strongest = torch.linalg.eigh(a.reshape(C, -1) @ a.reshape(C, -1).mH)[1][:, -1:]
    s = s.expand(H, W, C, 1)
    for _ in range(POWER_ITERATIONS):
        s = G @ s
        eigenvalue = s.norm(dim=-2, keepdim=True)
        s = s / eigenvalue.clamp(min=torch.finfo(eigenvalue.dtype).tiny)
    against = (strongest.mH @ s).sgn().conj()
    maps = torch.where(eigenvalue > crop, s * torch.where(against == 0, 1, against), 0)
    return maps[..., 0].permute(2, 0, 1).contiguous()


def simulated_maps(u: Tensor, count: Tensor, shape: tuple[int, int]) -> Tensor:
    """Make smooth maps (B, C, H, W) of coils on a ring around the image, with sum |s|^2 = 1 everywhere.

    A coil's sensitivity falls with its distance d as (1 + d^2 / a^2)^(-3/2), that of a loop of radius a on its axis,
    and its phase is a ramp. Nothing is read back from the device.

    Parameters
    ----------
    u
        Uniform numbers in [0, 1), (B, C, 6), one row for each coil; what they are drawn from is up to the caller.
    count
        How many of the C coils there are in each sample, (B,); the maps of the others are 0.
    shape
        H and W.
    """
    B, C, _ = u.shape
    coil = torch.arange(C, device=u.device)
    ring, around, radius, phase, slope, toward = (v[..., None, None] for v in u.unbind(-1))  # each (B, C, 1, 1)
    number = count.reshape(B, 1, 1, 1).clamp(min=1)
    angle = 2 * math.pi * ((coil[:, None, None] + around - 0.5) / number + ring[:, :1])
    distance = 1.0 + 0.6 * ring
    y, x = _grid(shape, u)
    d2 = (y - distance * angle.sin()).square() + (x - distance * angle.cos()).square()
    magnitude = (1 + d2 / (0.5 + 0.7 * radius).square()).pow(-1.5)
    ramp = math.pi * slope * (y * (2 * math.pi * toward).sin() + x * (2 * math.pi * toward).cos())
    magnitude = magnitude * (coil[:, None, None] < number)
    magnitude = magnitude / magnitude.square().sum(1, keepdim=True).sqrt()
    return torch.polar(magnitude, ramp + 2 * math.pi * phase)


def smooth_phase(u: Tensor, strength: Tensor, shape: tuple[int, int]) -> Tensor:
    """Make smooth phase factors exp(i phi), (B, 1, H, W), as images of a scanner have them.

    phi is a sum of cosines of up to one and a half periods along each side, of about `strength` radians, and a constant
    that may be anything.

    Parameters
    ----------
    u
        Uniform numbers in [0, 1), (B, 4, 4).
    strength
        Root mean square of what varies, in radians, (B,).
    shape
        H and W.
    """
    y, x = (v.flatten() for v in _grid(shape, u))
    order = torch.arange(4, device=u.device)
    weight = 1 / (1 + order[:, None].square() + order.square())
    weight = torch.where(order[:, None] + order == 0, 0, weight)
    power = 0.5 * (1 + (order == 0).to(u.dtype))  # mean squares of the cosines; that of u is 1/12
    weight = weight / (weight.square() * power[:, None] * power).sum().sqrt()
    rows, columns = (torch.cos(math.pi / 2 * order[:, None] * (v + 1)) for v in (y, x))  # (4, H), (4, W)
    phi = torch.einsum("bij,ih,jw->bhw", math.sqrt(12) * (u - 0.5) * weight, rows, columns)
    phi = strength.reshape(-1, 1, 1) * phi + 2 * math.pi * u[:, :1, :1]
    return torch.polar(torch.ones_like(phi), phi)[:, None]


def _grid(shape: tuple[int, int], like: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates of the pixels from -1 to 1, (H, 1) and (1, W)."""
    y, x = (torch.linspace(-1, 1, n, device=like.device, dtype=like.dtype) for n in shape)
    return y[:, None], x[None]


# Noise


def edge_samples(kspace: Tensor, beyond: float = CORNER) -> Tensor:
    """Return the samples of k-space (C, H, W) that hold the least of the image, in its corners: (C, N).

    They lie outside the ellipse that touches the sides, `beyond` times as large. Where a scanner measured an ellipse
    only, and the corners are 0, they are those in its outermost tenth. Samples that are 0 in all coils were not
    measured, and are left out.
    """
    measured, radius = _measured(kspace)
    outside = measured & (radius > beyond)
    if outside.sum() < 0.01 * measured.sum():
        outside = measured & (radius > 0.9 * radius[measured].max()) if measured.any() else measured
    return kspace[:, outside]


def _measured(kspace: Tensor) -> tuple[Tensor, Tensor]:
    """Where k-space (C, H, W) was measured, and how far that is out: 1 on the ellipse that touches the sides."""
    y, x = (torch.arange(n, device=kspace.device) - n // 2 for n in kspace.shape[1:])
    H, W = kspace.shape[1:]
    return kspace.ne(0).any(0), ((y / (H / 2)).square()[:, None] + (x / (W / 2)).square()).sqrt()


def noise_covariance(samples: Tensor) -> Tensor:
    """Return E[n n^H], (C, C), of samples of noise (C, N), from a scan without a signal.

    It is the identity in their mean square where there are fewer than ten samples for each coil.
    """
    C, N = samples.shape
    power = samples.abs().square().mean()
    valid = N > 0 and bool(power > 0) and bool(power.isfinite())
    require(valid, "noise_covariance: the samples must be finite, and not all 0: give the noise level instead")
    if N < 10 * C:
        return power * torch.eye(C, dtype=samples.dtype, device=samples.device)
    return samples @ samples.mH / N


def edge_covariance(kspace: Tensor) -> Tensor:
    """Estimate the covariance of the coils' noise, (C, C), from the corners of k-space (C, H, W).

    Noise is as strong everywhere, an image fades: where the samples between the ellipse that touches the sides and the
    corners proper are stronger than those, an image reaches that far. Then its coils would be taken for correlated
    noise, and all count as independent and equal, with the level of the corners.
    """
    samples = edge_samples(kspace)
    power = samples.abs().square().mean() if samples.numel() else torch.zeros(())
    require(bool(power > 0), "edge_covariance: there are no samples but zeros")
    measured, radius = _measured(kspace)
    before = kspace[:, measured & (radius > 1) & (radius <= CORNER)].abs().square()
    if before.numel() and bool(before.mean() <= FLAT * power):
        return noise_covariance(samples)
    return power * torch.eye(len(kspace), dtype=kspace.dtype, device=kspace.device)


def whiten(kspace: Tensor, covariance: Tensor) -> Tensor:
    """Mix coils so that their noise is independent and has a variance of 1: L^-1 y, where L L^H is its covariance.

    Parameters
    ----------
    kspace
        Samples (C, ...) of k-space, or maps: whoever whitens the measurements measures with whitened maps.
    covariance
        That of the noise, (C, C).
    """
    eye = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    jitter = 1e-6 * covariance.diagonal().real.mean() * eye  # coils may be copies of each other
    L = torch.linalg.cholesky(covariance + jitter)
    mixed = torch.linalg.solve_triangular(L, kspace.reshape(len(kspace), -1).to(L.dtype), upper=False)
    return mixed.reshape(kspace.shape)
