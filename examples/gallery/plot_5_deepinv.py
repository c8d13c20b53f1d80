"""
DeepInverse in and out
======================

A physics of DeepInverse (``deepinv``) works as an operator of FIRM, an operator of FIRM as a
physics, and a FIRM model as a reconstructor in its evaluations. Install it with ``pip install
-e ".[deepinv]"``; :doc:`/deepinv` has the details.
"""

import importlib.util

import matplotlib.pyplot as plt
import torch

if importlib.util.find_spec("torchvision") and not torch.cuda.is_available():  # why: see the last part of /deepinv
    try:
        torch.ops.load_library(importlib.util.find_spec("torchvision").origin.replace("__init__.py", "_C.so"))
    except OSError:
        for name in ("nms", "qnms"):
            if not hasattr(torch.ops.torchvision, name):
                text = f"torchvision::{name}"
                torch.library.define(text, "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import deepinv as dinv

import firm
from firm.operators import as_deepinv, from_deepinv, gaussian_kernel
from firm.restoration import as_reconstructor

model = firm.load("face-128")
x = (firm.data.portrait() + 1) / 2  # images of deepinv are in [0, 1]

# %%
# **In.** A blur of deepinv, with its noise model, becomes an operator. ``op.measurement`` and
# ``op.image`` translate between [0, 1] and FIRM's [-1, 1].

physics = dinv.physics.BlurFFT(
    (3, 128, 128), gaussian_kernel(9, 1.5)[None, None], noise_model=dinv.physics.GaussianNoise(0.02)
)
y = physics(x)
op = from_deepinv(physics)
restored = op.image(firm.restore(model, op, op.measurement(y), steps=2, sigma=op.sigma).image)
psnr = dinv.metric.PSNR()
print(f"blurred {float(psnr(y, x)):.2f} dB, restored {float(psnr(restored, x)):.2f} dB")

# %%
# **Out.** An operator of FIRM inside a classical algorithm of deepinv, half-quadratic
# splitting:

small = firm.operators.Downsample(2)
physics_2 = as_deepinv(small, sigma=0.01)
y_2 = physics_2(x)
solver = dinv.optim.HQS(data_fidelity=dinv.optim.L2(), prior=dinv.optim.Tikhonov(), lambda_reg=0.01, max_iter=20)
classical = solver(y_2, physics_2)

# %%
# **And the model.** ``as_reconstructor`` makes it a ``deepinv.models.Reconstructor``: called
# with measurement and physics, in deepinv's range.

reconstructor = as_reconstructor(model, steps=2)
learned = reconstructor(y_2, physics_2)
print(f"Tikhonov {float(psnr(classical, x)):.2f} dB, FIRM {float(psnr(learned, x)):.2f} dB")

figure, axes = plt.subplots(1, 5, figsize=(12.4, 2.9), layout="constrained")
pictures = {"blurred": y, "restored": restored, "half size": y_2, "Tikhonov": classical, "FIRM": learned}
for axis, (title, image) in zip(axes, pictures.items(), strict=True):
    axis.imshow(image[0].permute(1, 2, 0).clamp(0, 1).numpy())
    axis.set_title(title)
    axis.axis("off")
