"""
Beside other methods
====================

The methods that the paper compares with are plain functions of a network, an operator and
measurements. Here three of them deblur the portrait, with the networks in ``baselines/weights``
of the repository (they are not in the installed package).
"""

import time

import matplotlib.pyplot as plt
import torch

import firm
from firm.baselines import as_denoiser, pnp_flow, pnp_hqs
from firm.baselines.settings import settings
from firm.baselines.weights import load_weights

x = firm.data.portrait()
task = firm.Task("deblurring")  # a Gaussian blur of one pixel, noise 0.05
op, y = task.measure(x, seed=0)
prior = load_weights("face-prior")  # an unconditional flow of faces
generator = torch.Generator().manual_seed(0)
model = firm.load("face-128")

# %%
# FIRM has learned to restore; the other two bring a prior and the measurement together at run
# time. All three run plainly here, in float32. Published settings for the baselines, with
# PnP-Flow cut from 100 steps to 25 so that this page builds quickly.

methods = {
    "FIRM, N = 2": lambda: firm.sample(model, op, y, 2, sigma=task.sigma, generator=generator),
    "PnP-HQS (DPIR)": lambda: pnp_hqs(as_denoiser(prior), op, y, task.sigma, **settings("pnp-hqs", "deblurring")),
    "PnP-Flow, 25 steps": lambda: pnp_flow(
        prior, op, y, task.sigma, **{**settings("pnp-flow", "deblurring"), "steps": 25}, generator=generator
    ),
}
pictures = {"measured": y}
for name, run in methods.items():
    start = time.perf_counter()
    pictures[name] = run()
    print(f"{name}: {float(firm.metrics.psnr(pictures[name], x)):.2f} dB, {time.perf_counter() - start:.1f} s")

# %%
# One picture proves nothing: :doc:`/which-method` has the averages over 100 faces and five
# tasks.

figure, axes = plt.subplots(1, 4, figsize=(11, 3), layout="constrained")
for axis, (title, image) in zip(axes, pictures.items(), strict=True):
    axis.imshow((image[0, :, 20:108, 20:108].permute(1, 2, 0) / 2 + 0.5).clamp(0, 1).numpy())
    axis.set_title(title)
    axis.axis("off")
