"""
A first restoration
===================

Degrade the bundled portrait, restore it, and score the result: the whole library in a dozen
lines.
"""

import matplotlib.pyplot as plt

import firm

model = firm.load("face-128")  # comes with the package
x = firm.data.portrait()  # (1, 3, 128, 128), values in [-1, 1]

# %%
# A *task* bundles an operator A with a noise level. This one hides 70 % of the pixels and adds
# a little noise: ``y = A x + noise``.

task = firm.Task("random-inpainting")
op, y = task.measure(x, seed=0)
print(op, tuple(y.shape), f"noise {task.sigma}")

# %%
# Two Euler steps of the learned flow restore it. The model solves with ``op`` inside every
# step, so there is nothing to tune; ``sigma`` tells it how noisy the measurement is.

r = firm.restore(model, op, y, steps=2, sigma=task.sigma)
psnr = float(firm.metrics.psnr(r.image, x))
print(f"{psnr:.2f} dB after {r.nfe} network calls and {r.seconds:.2f} s")

# %%


def show(**pictures):
    """Draw images in [-1, 1] side by side."""
    size = (2.6 * len(pictures), 2.9)
    _, axes = plt.subplots(1, len(pictures), figsize=size, layout="constrained")
    for axis, (title, image) in zip(axes, pictures.items(), strict=True):
        axis.imshow((image[0].permute(1, 2, 0) / 2 + 0.5).clamp(0, 1).numpy())
        axis.set_title(title.replace("_", " "))
        axis.axis("off")


show(original=x, measured=y, restored=r.image)

# %%
# The other tasks work the same way, with the same model:

names = ["denoising", "deblurring", "super-resolution", "box-inpainting"]
restored = {}
for name in names:
    task = firm.Task(name)
    op, y = task.measure(x, seed=0)
    restored[name] = firm.restore(model, op, y, steps=2, sigma=task.sigma).image
show(**restored)
