"""Deblurring with an unknown kernel: who restores is told an estimate from the measurement, not the kernel."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from firm._util.checks import generator_for
from firm.blind import estimate_kernel
from firm.operators import Blur, LinearOperator, motion_kernels
from firm.tasks.base import BaseTask, Rows
from firm.tasks.deblurring import valid_blur
from firm.tasks.parameter import Parameter

SIDE = 25  # pixels, of every kernel
FAMILIES = ("gaussian", "motion", "shake")
WIDTH, LENGTH, REACH = (0.8, 2.5), (5.0, 15.0), (4.0, 11.0)  # drawn uniformly, in pixels
STEPS, INERTIA = 64, 0.85  # of a shaking hand


class BlindDeblurring(BaseTask):
    """A blur drawn at random, of a photograph with unknown surroundings. Who restores has to estimate it.

    Gaussians of 0.8 to 2.5 pixels, straight motions of 5 to 15, and the paths of shaking hands, random walks with
    inertia, within 25x25. Training draws kernels and knows them: its models then take any kernel.
    """

    name = "blind-deblurring"
    family = Parameter(
        str, "of the kernels: gaussian, motion, shake, or random for all three", "random",
        choices=(*FAMILIES, "random"), option="",
    )  # fmt: skip
    sigma = Parameter(float, "noise level, for pixels in [-1, 1] (2/255 of that in 0..255)", 0.01, low=0, drawn="log")

    def operator(self, seed: int = 42, indices: tuple[int, ...] = (0,)) -> Blur:
        """Return the true blurs of these images."""
        drawn = [generator_for(seed, i, "kernel") for i in indices]
        uniform = torch.stack([torch.rand(4, generator=g) for g in drawn])
        steps = torch.stack([torch.randn(STEPS, 2, generator=g) for g in drawn])
        return valid_blur(self._kernels(uniform, steps))

    def draw_operator(self, rows: Rows, device: torch.device) -> LinearOperator:
        """Draw a kernel for every sample."""
        return valid_blur(self._kernels(rows.rand(4, device=device), rows.randn(STEPS, 2, device=device)))

    def told(self, op: LinearOperator, y: Tensor) -> Blur:
        """Forget the operator, and estimate the kernel of each measurement; ValueError where it cannot be told."""
        kernels = [_in_square(estimate_kernel(image[None]).kernel) for image in y]
        return valid_blur(torch.stack(kernels)[:, None].to(y))

    def _kernels(self, uniform: Tensor, steps: Tensor) -> Tensor:
        """Make kernels (B, 1, 25, 25) of numbers in [0, 1], (B, 4), and standard normal ones, (B, STEPS, 2)."""
        which, size, turn = uniform[:, 0], uniform[:, 1], 180 * uniform[:, 2]
        offsets = torch.arange(SIDE, device=uniform.device) - SIDE // 2
        width = WIDTH[0] + (WIDTH[1] - WIDTH[0]) * size
        row = torch.exp(-offsets.square() / (2 * width[:, None].square()))
        gaussians = (row[:, :, None] * row[:, None, :])[:, None]
        motions = motion_kernels(SIDE, LENGTH[0] + (LENGTH[1] - LENGTH[0]) * size, turn)
        shakes = shake_kernels(SIDE, REACH[0] + (REACH[1] - REACH[0]) * size, steps)
        kinds = torch.stack([k / k.sum((-2, -1), keepdim=True) for k in (gaussians, motions, shakes)])
        chosen = (3 * which).long().clamp(max=2)
        if self.family != "random":
            chosen = torch.full_like(chosen, FAMILIES.index(self.family))
        return kinds[chosen, torch.arange(len(chosen), device=chosen.device)]


def shake_kernels(size: int, reach: Tensor, steps: Tensor) -> Tensor:
    """Make the kernels (B, 1, size, size) of hands that shake: light along a random walk with inertia.

    Parameters
    ----------
    size
        Their sides, odd.
    reach
        How many pixels each goes from its middle, up or down or to a side, (B,); at most size // 2 - 1.
    steps
        Standard normal numbers (B, n, 2), the changes of its velocity.
    """
    velocity, path = torch.zeros_like(steps[:, 0]), [torch.zeros_like(steps[:, 0])]
    for step in steps.unbind(1):
        velocity = INERTIA * velocity + step
        path.append(path[-1] + velocity)
    ways = torch.stack(path, 1).mT  # (B, 2, n)
    way = F.interpolate(ways, scale_factor=16, mode="linear", align_corners=True).mT
    way = way - way.mean(1, keepdim=True)  # its center of mass in the middle
    way = way * (reach / way.abs().amax((1, 2)).clamp(min=1e-6))[:, None, None]
    offsets = torch.arange(size, device=steps.device) - size // 2
    near = (1 - (offsets - way[..., None]).abs()).clamp(min=0)  # (B, n, 2, size)
    kernels = torch.einsum("bnh,bnw->bhw", near[:, :, 0], near[:, :, 1])[:, None]
    return kernels / kernels.sum((-2, -1), keepdim=True)


def _in_square(kernel: Tensor) -> Tensor:
    """Return a kernel of odd sides in a square of 25, cut off or with zeros around."""
    cut = [max(0, n - SIDE) // 2 for n in kernel.shape]
    inside = kernel[cut[0] : len(kernel) - cut[0], cut[1] : kernel.shape[1] - cut[1]]
    rows, columns = ((SIDE - n) // 2 for n in inside.shape)
    square = F.pad(inside, (columns, columns, rows, rows))
    return square / square.sum()
