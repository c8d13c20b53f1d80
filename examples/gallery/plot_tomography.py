"""
Computed tomography from few views
==================================

A fan of rays turns around a phantom: 40 views, and ten thousand photons in each bin where nothing
absorbs. ``photo``, which never saw a tomogram, restores the slice; filtered back-projection, the
classical inverse, is the first look. Not for diagnosis.
"""

import math

import matplotlib.pyplot as plt
import torch

import firm

# %%
# The phantom: attenuation, 0 where images are -1. Ellipses as (center x, y, half axes, turn, density).

SIDE = 128
ELLIPSES = [
    (0.0, 0.0, 0.78, 0.9, 0.0, 1.5), (0.0, 0.0, 0.72, 0.84, 0.0, -0.55), (-0.25, 0.1, 0.16, 0.34, 0.3, -0.45),
    (0.27, 0.1, 0.2, 0.38, -0.3, -0.45), (0.0, -0.45, 0.24, 0.12, 0.0, 0.15), (0.02, 0.52, 0.07, 0.07, 0.0, 0.3),
    (-0.1, -0.45, 0.03, 0.03, 0.0, 0.35), (0.1, -0.44, 0.02, 0.05, 0.5, 0.35), (0.0, 0.12, 0.03, 0.2, 0.0, 0.2),
]  # fmt: skip
columns = torch.linspace(-1, 1, SIDE)
rows = -columns[:, None]
x = torch.full((SIDE, SIDE), -1.0)
for cx, cy, a, b, turn, density in ELLIPSES:
    u = (columns - cx) * math.cos(turn) + (rows - cy) * math.sin(turn)
    v = (rows - cy) * math.cos(turn) - (columns - cx) * math.sin(turn)
    x = x + density * ((u / a) ** 2 + (v / b) ** 2 < 1)
x = x[None, None]

# %%
# The measurement. A x are lengths in pixels times what the pixels hold; a pixel of 1 takes 6 % of the light.

angles = torch.arange(40) * 2 * math.pi / 40
op = firm.operators.Radon(angles, SIDE, source=400, detector=200)
counts = torch.poisson(1e4 * torch.exp(-0.03 * op.A(x + 1)), generator=torch.Generator().manual_seed(1))
p, deviation = firm.noise.line_integrals(counts, 1e4)
y = p / 0.03 - op.A(torch.ones_like(x))
noise = firm.noise.Gaussian(deviation / 0.03)

# %%
# Four samples, their mean, and where they differ. The residual says how well the result fits the data.

first = firm.operators.filtered_back_projection(op, p / 0.03) - 1
r = firm.restore(firm.fast(firm.load("photo")), op, y, sigma=noise, samples=4)
before, after = (float(firm.metrics.psnr(image.clamp(-1, 1), x)) for image in (first, r.mean))
print(f"{before:.1f} dB by back-projection, {after:.1f} dB restored, residual {float(r.residual):.2f} sigma")

panels = [("counts", counts), ("back-projection", first), ("mean", r.mean), ("phantom", x), ("deviation", r.std)]
figure, axes = plt.subplots(1, 5, figsize=(15, 3.3), layout="constrained")
for axis, (title, image) in zip(axes, panels, strict=True):
    limits = {"vmin": -1, "vmax": 0.6} if image.shape == x.shape and title != "deviation" else {}
    axis.imshow(image[0, 0].numpy(), cmap="gray", aspect="auto", **limits)
    axis.set_title(title)
    axis.axis("off")

# %%
# Sinograms in files are restored by ``firm restore sinogram.mat --task ct``: see :doc:`/ct`.
