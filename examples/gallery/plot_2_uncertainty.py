"""
How sure is it?
===============

FIRM samples from the posterior: each seed gives another image that fits the measurement. Where
the samples agree, the measurement (together with what the model knows about faces) determines
the image; where they differ, it does not.
"""

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt

import firm

model = firm.fast(firm.load("face-128"))
x = firm.data.portrait()
task = firm.Task("box-inpainting")  # a hole of 40x40 pixels in the middle of the face
op, y = task.measure(x, seed=0)

# %%
# Six samples go through the network together. Four steps instead of two: with more steps the
# samples spread more, as samples of a posterior should.

r = firm.restore(model, op, y, steps=4, samples=6, seed=0, sigma=task.sigma)
print(f"samples {tuple(r.samples.shape)}, {r.nfe} network calls, {r.seconds:.1f} s")

figure, axes = plt.subplots(1, 6, figsize=(12, 2.2), layout="constrained")
for axis, image in zip(axes.flat, r.samples, strict=True):
    axis.imshow((image[0].permute(1, 2, 0) / 2 + 0.5).clamp(0, 1).numpy())
    axis.axis("off")

# %%
# The mean of the samples has less error than a single one, and their standard deviation is a
# map of the doubt. In gray levels (0 to 255) it is 127.5 times the value for images in [-1, 1].

doubt = 127.5 * r.std[0].mean(0)
error = 127.5 * (r.mean - x)[0].abs().mean(0)
figure, axes = plt.subplots(1, 4, figsize=(11, 2.9), layout="constrained")
for axis, image, title in zip(axes, (y, r.mean), ("measured", "mean of 6"), strict=False):
    axis.imshow((image[0].permute(1, 2, 0) / 2 + 0.5).clamp(0, 1).numpy())
    axis.set_title(title)
maps = {"standard deviation": doubt, "true error of the mean": error}
for axis, (title, values) in zip(axes[2:], maps.items(), strict=True):
    picture = axis.imshow(values.numpy(), cmap="inferno", vmin=0, vmax=25)
    axis.set_title(title)
figure.colorbar(picture, ax=axes[2:], label="gray levels")
for axis in axes:
    axis.axis("off")

# %%
# The doubt sits where the hole is. But it is smaller than the true error: few steps give
# samples that lie too close to their mean. Treat the map as a guide to *where* to be careful,
# not as an error bar.

for name in ("image", "mean"):
    print(f"{name}: {float(firm.metrics.psnr(getattr(r, name), x)):.2f} dB")
inside = op.mask.expand(1, 3, 128, 128)[0, 0] == 0
print("in gray levels:")
print(f"standard deviation inside the hole {doubt[inside].mean():.1f}, outside {doubt[~inside].mean():.2f}")
print(f"true error of the mean inside the hole {error[inside].mean():.1f}")
