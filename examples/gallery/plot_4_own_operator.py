"""
Bring your own operator
=======================

Anything linear will do. Here it is a camera sensor: behind each pixel sits one color filter,
red, green or blue in a Bayer pattern, so a color image is measured as one gray mosaic.
(It is also the task ``demosaicing`` of the library, and ``photo`` was trained for it.)
"""

import matplotlib.pyplot as plt
import torch

import firm
from firm.operators import dot_test, from_functions

# %%
# Write ``A`` and its adjoint as ordinary functions of batches. Which color does each pixel
# see?

red, green, blue = torch.zeros(3, 128, 128)
red[0::2, 0::2] = 1
green[0::2, 1::2] = green[1::2, 0::2] = 1
blue[1::2, 1::2] = 1
filters = torch.stack([red, green, blue])


def A(x):
    """(B, 3, H, W) to (B, 1, H, W): every pixel keeps the color of its filter."""
    return (filters * x).sum(1, keepdim=True)


def A_adjoint(y):
    """Back to three channels; unseen colors are 0."""
    return filters * y


op = from_functions(A, A_adjoint, image_shape=(3, 128, 128))
print(f"error of the adjoint: {dot_test(op, (1, 3, 128, 128)):.1e}")

# %%
# ``dot_test`` would have raised an error for a wrong adjoint. The operator has no formula for
# its data-consistency solve; FIRM uses conjugate gradients. Now measure and restore:

x, sigma = firm.data.portrait(), 0.02
y = op.A(x) + sigma * torch.randn(1, 1, 128, 128, generator=torch.Generator().manual_seed(1))
model = firm.load("photo")
r = firm.restore(model, op, y, steps=2, sigma=sigma)
print(f"restored: {float(firm.metrics.psnr(r.image, x)):.2f} dB in {r.seconds:.2f} s")

# %%
# For comparison, what averaging the neighbors of the same color gives:

weights = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]).expand(3, 1, 3, 3)
near = torch.nn.functional.conv2d(op.A_adjoint(y), weights, padding=1, groups=3)
averaged = near / torch.nn.functional.conv2d(filters[None], weights, padding=1, groups=3)
print(f"averaged: {float(firm.metrics.psnr(averaged, x)):.2f} dB")

figure, axes = plt.subplots(1, 4, figsize=(10.4, 2.9), layout="constrained")
for axis, image, title in zip(
    axes, (y.expand(1, 3, -1, -1), averaged, r.image, x), ("mosaic", "averaged", "restored", "original"), strict=True
):
    axis.imshow((image[0, :, 30:94, 30:94].permute(1, 2, 0) / 2 + 0.5).clamp(0, 1).numpy())
    axis.set_title(title)
    axis.axis("off")

# %%
# A model trained for an operator does better than one that has never met it: version 1 of ``photo``,
# which had not, was 5 dB behind on faces. :doc:`/own-operator` goes from here to a model for *your* operator.
