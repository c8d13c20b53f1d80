"""Magnetic resonance imaging with several coils, some of k-space left out to save time."""

from __future__ import annotations

import torch
from torch import Tensor

from firm._util.checks import generator_for
from firm.operators import LinearOperator, MultiCoil, Operator, as_real, to_complex, to_real
from firm.operators.coils import simulated_maps, smooth_phase
from firm.operators.sampling import poisson_disc, radial, uniform_lines, variable_density_lines
from firm.tasks.base import BaseTask, Rows
from firm.tasks.parameter import Parameter

ITERATIONS = 10  # of conjugate gradients in every solve, in training as in restoring


class MRI(BaseTask):
    """Complex images, real and imaginary channels, seen by simulated coils in k-space, of which a part is sampled.

    Every image has coils and a mask of its own. Magnitudes of images are about 1 at most. ``firm restore --task mri``
    takes raw k-space of a scanner, see `firm.instruments.mri`.
    """

    name, picture = "mri", "mri"
    scan = "firm.instruments.mri:MriScan"
    sigma = Parameter(float, "standard deviation of the complex noise, both parts together", 0.01, low=0, drawn="log")
    acceleration = Parameter(
        float, "every how many lines one is measured", 4.0, low=1, high=64, drawn="log",
        picture={"about": "take only every so many of the lines that were measured, to try; 1 takes all",
                 "default": 1.0},
    )  # fmt: skip
    center_lines = Parameter(
        int, "lines around zero frequency that are all measured", lambda shape: max(4, round(shape[1] * 24 / 256)),
        low=0, high=4096, drawn="uniform",
        picture={"about": "lines in the middle that are taken in any case, and make the coils' maps", "default": 24},
    )  # fmt: skip
    pattern = Parameter(
        str, "which lines, or which samples", "lines", choices=("lines", "variable-density", "radial", "poisson-disc")
    )
    coils = Parameter(int, "receiver coils", 8, low=1, high=64, drawn="uniform")
    phase = Parameter(
        float, "strength of the smooth phase that training gives to images, in radians", 0.0, low=0, drawn="uniform",
        option="",
    )  # fmt: skip

    def operator(self, seed: int = 42, indices: tuple[int, ...] = (0,)) -> Operator:
        """Return the operator for these images, each with coils and a mask of its own."""
        drawn = []
        for i in indices:
            rows = Rows(1, 0, 1, generator_for(seed, i, "mri"))
            drawn.append(self._draw(rows, torch.device("cpu"), self.coils, fixed=True))
        masks, maps = (torch.cat(parts) for parts in zip(*drawn, strict=True))
        return multicoil(masks, maps, check=False)

    def draw_operator(self, rows: Rows, device: torch.device) -> LinearOperator:
        """Draw coils and a mask for every sample."""
        most = int(self.ranges.get("coils", (0, self.coils))[1])
        return multicoil(*self._draw(rows, device, most), check=False)

    def variant(self, x: Tensor, rows: Rows) -> Tensor:
        """Turn images, which may be magnitudes, by a smooth phase."""
        if "phase" not in self.ranges and not self.phase:
            return x
        strength = self.sample("phase", rows, x.device)
        factor = smooth_phase(rows.rand(4, 4, device=x.device), strength, self.shape)
        return to_real(to_complex(x) * factor)

    def _draw(self, rows: Rows, device: torch.device, coils: int, fixed: bool = False) -> tuple[Tensor, Tensor]:
        """Draw masks and maps; `fixed` takes the task's values, not those of its ranges."""

        def value(key: str) -> Tensor:
            return torch.full((len(rows),), float(self.__dict__[key])) if fixed else self.sample(key, rows, device)

        H, W = self.shape
        maps = simulated_maps(rows.rand(coils, 6, device=device), value("coils"), self.shape)
        R, center = value("acceleration"), value("center_lines")
        if self.pattern == "lines":
            return uniform_lines(rows.rand(device=device), R, center, W), maps
        if self.pattern == "variable-density":
            return variable_density_lines(rows.rand(W, device=device), R, center, W), maps
        if self.pattern == "radial":
            return radial(rows.rand(device=device), R, self.shape), maps
        return poisson_disc(rows.rand(H, W, device=device), R, center), maps


def multicoil(mask: Tensor, maps: Tensor, check: bool = True, iterations: int = ITERATIONS) -> Operator:
    """Make the operator of coils for real images, whose solves make a few iterations and read nothing back.

    Parameters
    ----------
    mask, maps, check
        As in `firm.operators.MultiCoil`.
    iterations
        Of conjugate gradients.
    """
    op = MultiCoil(mask, maps, check=check)
    op.cg_tol, op.cg_iterations = 0, iterations
    return as_real(op)
