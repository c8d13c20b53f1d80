"""
A microscope's counts
=====================

A camera behind a microscope counts photons, multiplies them by a gain, adds an offset and reads them
with some noise. All of this is estimated from the stack itself, and the result is a stack of counts
again. The cells are simulated.
"""

from pathlib import Path
from tempfile import mkdtemp

import matplotlib.pyplot as plt
import numpy as np
import tifffile
import torch

import firm
from firm.instruments.microscopy import MicroscopyScan
from firm.restoration.scan import restore_scan

drawn = np.random.default_rng(1)
y, x = np.mgrid[:160, :160]
light = np.zeros((160, 160))
for i, j, width, height in drawn.uniform((0, 0, 1.2, 0.2), (160, 160, 3, 1), (60, 4)):  # spots
    light += height * np.exp(-((y - i) ** 2 + (x - j) ** 2) / (2 * width**2))
for i, j, radius in drawn.uniform((20, 20, 12), (140, 140, 24), (6, 3)):  # nuclei
    light += 0.4 / (1 + np.exp((np.hypot(y - i, x - j) - radius).clip(-30, 30)))
photons = 30 * light / light.max()

# %%
# 30 photons at the brightest; a photon adds 2.2 counts to the 100 of no light, and reading 1.6 of noise.

counts = np.rint(2.2 * drawn.poisson(photons) + 100 + 1.6 * drawn.normal(size=photons.shape)).astype(np.uint16)
folder = Path(mkdtemp())
tifffile.imwrite(folder / "cells.ome.tif", counts, metadata={"axes": "YX"})
scan = MicroscopyScan.open(folder / "cells.ome.tif")
print(scan.about)

# %%
# The model is ``photo``, which never saw a microscope, with this noise in its data-consistency step.

cpu = torch.device("cpu")
row = restore_scan(firm.load("photo"), scan, folder / "cells", steps=1, samples=1, seed=0, device=cpu)
restored = tifffile.imread(folder / "cells_restored.ome.tif")
clean = 2.2 * photons + 100
error = [np.sqrt(np.mean((image - clean) ** 2)) for image in (counts, restored)]
print(f"error {error[0]:.1f} counts before, {error[1]:.1f} after; it fits the counts to {row['residual']:.2f} sigma")

figure, axes = plt.subplots(1, 3, figsize=(12, 4.2), layout="constrained")
panels = {"counted": counts, f"restored, {restored.dtype}": restored, "without noise": clean}
for axis, (title, image) in zip(axes, panels.items(), strict=True):
    axis.imshow(image, cmap="gray", vmin=95, vmax=clean.max())
    axis.set_title(title)
    axis.axis("off")

# %%
# On the command line: ``firm restore cells.ome.tif --task microscopy``; see :doc:`/microscopy`.
