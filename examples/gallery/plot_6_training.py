"""
Train a tiny model
==================

Algorithm 1 of the paper is a dozen lines around ``firm.velocity_loss``. Here it trains a
network of about 40,000 parameters to fill in small pictures of gray discs, on a CPU, while
you watch. For real training use ``firm train`` (:doc:`/training`): it has checkpoints,
schedules, validation and several GPUs.
"""

# sphinx_gallery_thumbnail_number = 2
import time

import matplotlib.pyplot as plt
import torch

import firm

torch.manual_seed(0)
generator = torch.Generator().manual_seed(0)

# %%
# The data are made on the spot: two discs over a background, 16x16 pixels, in [-1, 1].

SIDE = 16
rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")


def discs(n):
    """`n` pictures, (n, 1, SIDE, SIDE)."""
    x = 1.6 * torch.rand(n, 1, 1, 1, generator=generator) - 0.8
    for _ in range(2):
        center, radius = SIDE * torch.rand(2, n, 1, 1, generator=generator), 2 + 4 * torch.rand(n, 1, 1)
        inside = ((rows - center[0]) ** 2 + (columns - center[1]) ** 2).sqrt() < radius
        x = torch.where(inside[:, None], 1.6 * torch.rand(n, 1, 1, 1, generator=generator) - 0.8, x)
    return x


# %%
# Half of the pixels are missing, a new mask for every picture. The network sees the
# data-consistent image, the state of the flow and the time.

task = firm.Task("random-inpainting", size=SIDE, missing=0.5, sigma=0.02)
net = firm.UNet(1, ch=8, mult=(1, 2), blocks=1, attention=(), groups=4)
model = firm.Firm(net, firm.Solver(K=2, output="correction"))
print(f"{sum(p.numel() for p in net.parameters()):,} parameters")


def measure(x):
    """A random mask for each picture, and what it lets through, with noise."""
    mask = (torch.rand(len(x), 1, SIDE, SIDE, generator=generator) > task.missing).float()
    op = firm.operators.Mask(mask)
    return op, op.A(x) + task.sigma * torch.randn(x.shape, generator=generator)


# %%
# Algorithm 1: draw pictures, noise and times, measure, and lower the weighted error of the
# velocity.

STEPS = 200
optimizer = torch.optim.AdamW(net.parameters(), lr=6e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=STEPS)
balance = firm.TimeBalance()  # weighs all times alike, see /training
start, errors = time.perf_counter(), []
for _ in range(STEPS):
    x_1 = discs(16)
    op, y = measure(x_1)
    t = firm.stratified_times(len(x_1), generator=generator)
    loss = firm.velocity_loss(model, op, x_1, y, torch.randn(x_1.shape, generator=generator), t, weights=balance)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    errors.append(balance.mean_error())
print(f"{STEPS} steps in {time.perf_counter() - start:.0f} s")

figure, axis = plt.subplots(figsize=(5, 2.8), layout="constrained")
axis.semilogy(errors)
axis.set(xlabel="step", ylabel="error of the velocity")
axis.grid(alpha=0.3)

# %%
# Pictures it has never seen:

model.requires_grad_(False).eval()
x = discs(6)
op, y = measure(x)
r = firm.restore(model, op, y, steps=2)
known = firm.metrics.psnr(y, x).mean()
print(f"measured {float(known):.1f} dB, restored {float(firm.metrics.psnr(r.image, x).mean()):.1f} dB")

figure, axes = plt.subplots(3, 6, figsize=(8, 4.2), layout="constrained")
for row, (images, title) in enumerate(((x, "original"), (y, "measured"), (r.image, "restored"))):
    for axis, image in zip(axes[row], images, strict=True):
        axis.imshow(image[0].numpy(), cmap="gray", vmin=-1, vmax=1)
        axis.set(xticks=[], yticks=[])
    axes[row, 0].set_ylabel(title)
