"""How many iterations of conjugate gradients `MultiCoil` takes, with and without a preconditioner in k-space.

``python experiments/mri/iterations.py`` prints a table. The preconditioner is the diagonal of F A'A F^H,
the mask convolved with the power spectrum of the maps, as a filter: two transforms more in each iteration.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from firm.operators import MultiCoil
from firm.operators.coils import simulated_maps
from firm.operators.sampling import poisson_disc, uniform_lines

N, COILS = 256, 8


def iterations(op: MultiCoil, rho: float, preconditioned: bool, b: Tensor, goals: tuple[float, ...]) -> list[int]:
    """Solve (A'A + rho) x = b from 0, and count until the residual is below each of the goals."""
    spectra = torch.fft.fft2(op.maps, norm="ortho").abs().square().sum(1, keepdim=True)
    mask = op.mask.square().expand(1, 1, N, N)
    filter = torch.fft.ifft2(torch.fft.fft2(mask) * torch.fft.fft2(spectra)).real / N**2 + rho

    def P(r: Tensor) -> Tensor:
        return torch.fft.ifft2(torch.fft.fft2(r) / filter) if preconditioned else r

    x, r = torch.zeros_like(b), b
    p = z = P(r)
    found: list[int] = []
    for k in range(1, 500):
        Mp = op.normal(p) + rho * p
        rz = (r.conj() * z).real.sum()
        alpha = rz / (p.conj() * Mp).real.sum()
        x, r = x + alpha * p, r - alpha * Mp
        z = P(r)
        p = z + (r.conj() * z).real.sum() / rz * p
        while len(found) < len(goals) and r.norm() <= goals[len(found)] * b.norm():
            found.append(k)
        if len(found) == len(goals):
            break
    return found


def seconds(run: Callable[[], object], times: int = 10) -> float:
    """Time one call, after a first one."""
    run()
    began = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - began) / times


def main() -> None:
    """Print iterations to a residual of 1e-3, 1e-4 and 1e-6, and the time of A'A."""
    generator = torch.Generator().manual_seed(0)
    maps = simulated_maps(torch.rand(1, COILS, 6, generator=generator), torch.tensor([COILS]), (N, N))
    y, x = torch.linspace(-1, 1, N)[:, None], torch.linspace(-1, 1, N)
    head = ((y**2 + x**2 < 0.6) * (1 + 0.3 * torch.sin(20 * x) * torch.cos(15 * y)) * torch.exp(2j * x))[None, None]
    center = torch.tensor([24.0])
    masks = {f"lines {R}x": uniform_lines(torch.zeros(1), torch.tensor([float(R)]), center, N) for R in (4, 8)}
    masks["Poisson discs 6x"] = poisson_disc(torch.rand(1, N, N, generator=generator), torch.tensor([6.0]), center)
    goals = (1e-3, 1e-4, 1e-6)
    for name, mask in masks.items():
        op = MultiCoil(mask, maps)
        measured = op.A(head)
        noise = 0.01 * torch.randn(measured.shape, dtype=measured.dtype, generator=generator)
        b = op.A_adjoint(measured + noise) + 0.01 * 0.9 * head
        for rho in (0.01, 0.001):
            plain, better = (iterations(op, rho, p, b, goals) for p in (False, True))
            print(f"{name}, rho {rho}: plain {plain}, preconditioned {better}")
        print(f"{name}: A'A {1e3 * seconds(lambda op=op: op.normal(head)):.1f} ms, "  # type: ignore[misc]
              f"A'(A x) {1e3 * seconds(lambda op=op: op.A_adjoint(op.A(head))):.1f} ms")  # type: ignore[misc]  # fmt: skip


if __name__ == "__main__":
    main()
