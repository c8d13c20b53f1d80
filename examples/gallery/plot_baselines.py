"""
Beside other methods
====================

The methods that the paper compares with are plain functions of a network, an operator and
measurements. Here two of them deblur the portrait beside FIRM, with the networks in ``weights``
of the repository (they are not in the installed package).
"""

import time

import matplotlib.pyplot as plt
import torch

import firm
from firm.baselines import as_denoiser, pnp_hqs
from firm.baselines.catalog import settings
from firm.baselines.weights import load_weights

x = firm.data.portrait()
task = firm.Task("deblurring")  # a Gaussian blur of one pixel, noise 0.05
op, y = task.measure(x, seed=0)
flow = load_weights("face-denoiser")  # an unconditional flow of faces, which is a denoiser too
generator = torch.Generator().manual_seed(0)
model = firm.load("face-128")

# %%
# PnP-HQS (DPIR) brings a denoiser and the operator together at run time, in 24 steps. ISTA-Net+ is a
# network trained end to end for this task alone, and needs one pass. FIRM's model serves eight tasks.
# All run plainly here, in float32, with the settings of the tables.

ista_net = load_weights("face-ista-net-deblurring")
methods = {
    "FIRM, N = 2": lambda: firm.sample(model, op, y, 2, sigma=task.sigma, generator=generator),
    "PnP-HQS (DPIR)": lambda: pnp_hqs(as_denoiser(flow), op, y, task.sigma, **settings("pnp-hqs", "deblurring")),
    "ISTA-Net+": lambda: ista_net(op, y),
}
pictures = {"measured": y}
for name, run in methods.items():
    start = time.perf_counter()
    with torch.no_grad():
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
