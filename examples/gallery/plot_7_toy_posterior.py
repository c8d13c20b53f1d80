"""
A posterior that is known exactly
=================================

Do the samples really follow the posterior? For a mixture of four Gaussians in the plane
everything can be computed. The measurement sees one coordinate, u; the other, v, has a
posterior with two humps and an empty valley between them, right where the posterior mean lies.
The bundled model ``toy`` was trained for it (``firm reproduce toy``, 2 to 3 minutes on two
cores).
"""

import matplotlib.pyplot as plt
import torch

import firm
from experiments.toy import problem as toy

model, op = firm.load("toy"), toy.operator()
y = torch.tensor([1.5, 0.0])  # u was measured as 1.5


def draw(field, N, n=4000):
    """`n` samples of p(x | y) in N steps."""
    return firm.sample(field, op, y.expand(n, 2), N, generator=torch.Generator().manual_seed(0))


# %%
# One step lands in the valley: it returns the posterior mean, the least expected error, where
# no image ever is. With more steps the samples find the two humps.

figure, axes = plt.subplots(1, 4, figsize=(11, 2.9), layout="constrained", sharey=True)
grid = torch.linspace(-2.6, 2.6, 261)
density = toy.density(torch.stack(torch.meshgrid(grid, grid, indexing="xy"), dim=-1), y)
levels = [float(share * density.max()) for share in (0.05, 0.3, 0.7)]
for axis, N in zip(axes, (1, 2, 4, 50), strict=True):
    x = draw(model, N)
    axis.contour(grid, grid, density, levels=levels, colors="tab:red")
    axis.scatter(*x[:1000].T, s=3, alpha=0.4)
    axis.set(title=f"N = {N}", xlabel="u", xlim=(0, 2.6), ylim=(-2.6, 2.6))
axes[0].set_ylabel("v")

# %%
# How far from the exact posterior? W1 is the distance over which probability has to be moved.
# Beside the learned field, the exact one, which takes the place of a model: what is left at N =
# 2 and 4 is the error of Euler's method, not of the network.

exact = toy.ExactField()
print("  N   learned  exact field")
for N in (1, 2, 4, 10, 50):
    learned, best = (toy.wasserstein(draw(field, N)[:, 1], y, 1) for field in (model, exact))
    print(f"{N:3}   {learned:.3f}    {best:.3f}")
