"""
Few steps or many
=================

The number of Euler steps N is the one dial you turn when restoring. Few steps give the smallest
error; more steps give sharper detail that fits the measurement but need not be true. No
retraining is involved.
"""

import matplotlib.pyplot as plt

import firm
from firm.metrics import lpips, psnr

model = firm.fast(firm.load("face-128"))
x = firm.data.portrait()
task = firm.Task("super-resolution")  # every second pixel in both directions, noise 0.05
op, y = task.measure(x, seed=0)

# %%
# LPIPS compares images as a vision network sees them: lower is closer to the original.

restored = {N: firm.restore(model, op, y, steps=N, sigma=task.sigma) for N in (1, 2, 4, 10)}
for N, r in restored.items():
    print(f"N = {N:2}: {float(psnr(r.image, x)):.2f} dB, LPIPS {float(lpips(r.image, x)):.4f}, {r.nfe} network calls")

# %%

figure, axes = plt.subplots(1, 5, figsize=(12, 2.9), layout="constrained")
for axis, image, title in zip(
    axes,
    (op.A_adjoint(y), *(restored[N].image for N in (1, 4, 10)), x),
    ("measured pixels", "N = 1", "N = 4", "N = 10", "original"),
    strict=True,
):
    axis.imshow((image[0, :, 30:94, 30:94].permute(1, 2, 0) / 2 + 0.5).clamp(0, 1).numpy())
    axis.set_title(title)
    axis.axis("off")

# %%
# The two scores pull in opposite directions:

figure, axis = plt.subplots(figsize=(5, 3.4), layout="constrained")
points = [(float(lpips(r.image, x)), float(psnr(r.image, x))) for r in restored.values()]
axis.plot(*zip(*points, strict=True), "o-")
for N, point in zip(restored, points, strict=True):
    axis.annotate(f"N = {N}", point, textcoords="offset points", xytext=(7, 4))
axis.margins(0.15)
axis.set(xlabel="LPIPS (lower is better)", ylabel="PSNR in dB (higher is better)")
axis.grid(alpha=0.3)
