"""What `Radon` costs: seconds to make it, memory, milliseconds of A and its adjoint, iterations: ``speed.py``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from torch import Tensor

from firm.noise import Gaussian
from firm.operators import Radon, data_consistency
from firm.operators.scale import Scaled


class Plain(Scaled):
    """Without a preconditioner."""

    def precondition(self, r: Tensor, rho: Tensor) -> Tensor:
        """Leave the residual as it is."""
        return r


def milliseconds(work: Callable[[], object], repeats: int = 10) -> float:
    """Return how long it takes, in the mean, after it was done once."""
    work()
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    return round((time.perf_counter() - start) / repeats * 1e3, 1)


def iterations(op: Scaled, z: Tensor, y: Tensor, rho: float, noise: Gaussian | None = None) -> int:
    """Count the projections that a solve to 1e-6 makes."""
    calls, project = [0], op.op._apply_matrix

    def counted(v: Tensor, result: tuple[int, int], forward: bool) -> Tensor:
        calls[0] += forward
        return project(v, result, forward)

    op.op._spectrum(z)
    op.op._apply_matrix = counted
    data_consistency(op, z, y, rho, noise)
    op.op._apply_matrix = project
    return calls[0]


def main() -> None:
    """Print a line for every size, and for every solve."""
    for side, views, fan in ((256, 180, False), (256, 60, False), (256, 60, True), (512, 60, False)):
        angles = torch.arange(views) * (2 if fan else 1) * math.pi / views
        start = time.perf_counter()
        op = Radon(angles, side, **(dict(source=2.0 * side, detector=1.0 * side) if fan else {}))
        made = time.perf_counter() - start
        x, y = torch.randn(1, 1, side, side), torch.randn(1, 1, *op.measured)
        batch, held = torch.randn(8, 1, side, side), sum(b.nbytes for b in op.buffers())
        print(
            f"{op}: made in {made:.1f} s, {held / 1e6:.0f} MB, A {milliseconds(lambda: op.A(x))} ms, "  # noqa: B023
            f"A' {milliseconds(lambda: op.A_adjoint(y))} ms, A of 8 images {milliseconds(lambda: op.A(batch))} ms"  # noqa: B023
        )
        place = torch.linspace(-1, 1, side)
        truth = ((place.square() / 0.4 + place[:, None].square() / 0.7 < 1).float() - 1)[None, None]
        z = truth + 0.1 * torch.randn(truth.shape, generator=torch.Generator().manual_seed(0))
        c = 1 / op.largest[None]
        p = op.A(truth + 1)
        weighted = Gaussian((3 * p / p.max()).exp())
        for rho in (0.1, 0.01, 0.001):
            counts = [
                iterations(kind(op, c), z, Scaled(op, c).A(truth), rho, noise)
                for noise in (None, weighted)
                for kind in (Plain, Scaled)
            ]
            print(f"  rho {rho}: {counts[0]} iterations, preconditioned {counts[1]}; weights of 1 to 400: {counts[2]}")


if __name__ == "__main__":
    main()
