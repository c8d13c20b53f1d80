"""
Pictures of any size
====================

``face-128`` was trained on 128x128 pixels, and restores pictures of other sizes and of other
things too. ``firm.tiled`` sends a large picture through the network in overlapping tiles; the
solve with the operator always covers the whole picture, so tiles leave no seams.
"""

import matplotlib.pyplot as plt
import torch
from skimage.data import astronaut

import firm

photo = torch.from_numpy(astronaut()).permute(2, 0, 1)[None] / 127.5 - 1  # (1, 3, 512, 512)
x = photo[..., 0:250, 60:390]  # sides need not be multiples of anything
model = firm.tiled(firm.fast(firm.load("face-128")), tile=256, overlap=32)

# %%
# Scratches: a stroke mask, drawn at random, and a little noise.

task = firm.Task("stroke-inpainting", size=(250, 330), strokes=12, width=5, sigma=0.02)
op, y = task.measure(x, seed=3)
r = firm.restore(model, op, y, steps=2, sigma=task.sigma)
before, after = (float(firm.metrics.psnr(image, x)) for image in (y, r.image))
print(f"{before:.1f} dB before, {after:.1f} dB after, {r.seconds:.1f} s")

figure, axes = plt.subplots(1, 3, figsize=(12, 3.3), layout="constrained")
for axis, image, title in zip(axes, (y, r.image, x), ("scratched", "restored", "original"), strict=True):
    axis.imshow((image[0].permute(1, 2, 0) / 2 + 0.5).clamp(0, 1).numpy())
    axis.set_title(title)
    axis.axis("off")

# %%
# On the command line ``firm restore PICTURE`` does all this by itself: see :doc:`/restoring`.
