"""
Magnetic resonance imaging with eight coils
===========================================

A scanner samples the Fourier transform of what it sees, line by line. Leaving out three lines of
four makes the scan shorter and the image ambiguous; several receiver coils, and what is known of
images, bring it back. ``photo``, which has never seen such an image, does the second part.
"""

import matplotlib.pyplot as plt
import torch

import firm
from firm.operators import MultiCoil, as_real, to_complex, to_real
from firm.operators.coils import espirit_maps, simulated_maps
from firm.operators.sampling import uniform_lines

# %%
# A phantom of ellipses with a smooth phase, and the maps of eight coils around it. All images are
# complex; networks see their real and imaginary parts as two channels.

N, coils, sigma = 128, 8, 0.02
generator = torch.Generator().manual_seed(0)
y, x = torch.linspace(-1, 1, N)[:, None], torch.linspace(-1, 1, N)
head = torch.zeros(N, N)
for dy, dx, height, width, gray in (
    (0.0, 0.0, 0.9, 0.72, 0.9),
    (0.0, 0.0, 0.82, 0.64, -0.5),
    (-0.1, 0.22, 0.35, 0.13, -0.25),
    (-0.1, -0.22, 0.4, 0.16, -0.25),
    (0.4, 0.0, 0.2, 0.22, 0.3),
    (-0.5, 0.1, 0.06, 0.05, 0.4),
    (-0.5, -0.1, 0.04, 0.06, 0.4),
):
    inside = ((y - dy) / height) ** 2 + ((x - dx) / width) ** 2
    head += gray * torch.sigmoid(40 * (1 - inside))
truth = (head * torch.exp(1j * (0.6 * x + 0.4 * y)))[None, None]
maps = simulated_maps(torch.rand(1, coils, 6, generator=generator), torch.tensor([coils]), (N, N))

# %%
# Every fourth line is measured, and twenty in the middle, whose low-resolution image gives the
# maps: in a real scan nobody knows them. ESPIRiT finds them up to a phase.

R, center = torch.tensor([4.0]), torch.tensor([20.0])
mask = uniform_lines(torch.zeros(1), R, center, N)[0, 0]
measured = MultiCoil(mask, maps[0]).A(truth)
noise = torch.randn(measured.shape, dtype=measured.dtype, generator=generator)
kspace = mask * (measured + sigma * noise)

low = slice(N // 2 - 10, N // 2 + 10)
middle = torch.fft.fftshift(kspace[0], dim=(-2, -1))[:, low, low]
found = torch.fft.ifftshift(espirit_maps(middle, (N, N), crop=0.7), dim=(-2, -1))  # pixel 0 in the corner again

# %%
# The operator is SENSE: maps, Fourier transform, mask. ``as_real`` makes it one on two channels. In
# every step of FIRM the image is solved for with it, by conjugate gradients.

op = as_real(MultiCoil(mask, found))
r = firm.restore(firm.load("photo"), op, kspace, steps=1, samples=2, seed=0, sigma=sigma)
sense = firm.data_consistency(op, torch.zeros(1, 2, N, N), kspace, rho=0.05)
seen = found.abs().sum(0) > 0


def error(image):
    """PSNR of the magnitude where the coils see anything, its largest value as the peak."""
    difference = (to_complex(image).abs() - truth.abs())[0, 0][seen]
    return float(20 * torch.log10(truth.abs().max() / difference.square().mean().sqrt()))


images = {"zero-filled": op.A_adjoint(kspace), "CG-SENSE": sense, "FIRM": r.mean}
for name, image in images.items():
    print(f"{name}: {error(image):.2f} dB")
print(f"fits the measurements to {float(r.residual):.2f} of the noise")

# %%
# Where the samples differ, the measurements leave the image open: along the aliases of bright rims.

figure, axes = plt.subplots(1, 5, figsize=(13, 2.9), layout="constrained")
for axis, (name, image) in zip(axes, (images | {"phantom": to_real(truth)}).items(), strict=False):
    axis.imshow((to_complex(image).abs()[0, 0] * seen).numpy(), vmin=0, vmax=1, cmap="gray")
    axis.set_title(name)
spread = to_complex(r.samples[:, 0]).abs()[:, 0].std(0) * seen
axes[4].imshow(spread.numpy(), cmap="magma")
axes[4].set_title("standard deviation")
for axis in axes:
    axis.axis("off")

# %%
# Files of a scanner are read by ``firm restore scan.h5 --task mri``: :doc:`/mri` has the rest.
