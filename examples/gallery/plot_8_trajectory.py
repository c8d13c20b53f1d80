"""
Inside the solver
=================

Two loops lie inside each other. The outer one walks along the flow, from noise at t = 0 to an
image at t = 1 (Algorithm 2). At each stop the inner one alternates K = 5 exact solves with the
operator and K network calls (Algorithm 3). Callbacks show both.
"""

import matplotlib.pyplot as plt
import torch

import firm

model = firm.load("face-128")
x = firm.data.portrait()
task = firm.Task("random-inpainting")
op, y = task.measure(x, seed=0)

# %%
# The outer loop: the state x_t starts as noise, the estimate z of the clean image is good from
# the first step.

states = []
restored = firm.sample(
    model, op, y, steps=5, sigma=task.sigma, generator=torch.Generator().manual_seed(0),
    callback=lambda i, t, x_t, z: states.append((t, x_t, z)),
)  # fmt: skip


def draw(axis, image, title):
    """One image in [-1, 1]."""
    axis.imshow((image[0].permute(1, 2, 0) / 2 + 0.5).clamp(0, 1).numpy())
    axis.set_title(title, fontsize=10)
    axis.axis("off")


figure, axes = plt.subplots(2, 6, figsize=(12, 4.3), layout="constrained")
for column, (t, x_t, z) in enumerate(states):
    draw(axes[0, column], x_t, f"state $x_t$, t = {t:.1f}")
    draw(axes[1, column], z, "estimate z")
draw(axes[0, 5], restored, "result, t = 1")
draw(axes[1, 5], x, "original")

# %%
# The inner loop at t = 0: the solve puts the measured pixels in, the network repairs what the
# solve leaves, and so on. PSNR of the data-consistent iterate and of the network's answer:

t, x_t, _ = states[0]
iterates = []
model.posterior_mean(op, x_t, t, y, sigma=task.sigma, callback=lambda k, x_k, z_k: iterates.append((k, x_k, z_k)))
figure, axes = plt.subplots(2, 5, figsize=(10.4, 4.5), layout="constrained")
for column, (k, x_k, z_k) in enumerate(iterates):
    for row, (name, image) in enumerate((("solve $x$", x_k), ("network $z$", z_k))):
        draw(axes[row, column], image, f"{name}, k = {k}: {float(firm.metrics.psnr(image, x)):.1f} dB")
