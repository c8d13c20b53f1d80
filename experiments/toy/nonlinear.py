"""The toy problem with a nonlinear measurement: of x = (u, v) the product u v / 1.5 is seen, with noise.

p(x | y) lies along both branches of a hyperbola, so that it has two modes, and neither is Gaussian. It is known by
quadrature: ``python -m experiments.toy.nonlinear`` trains the network of the linear toy for it, and compares samples.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from torch import Generator, Tensor

from experiments.toy import problem as toy
from experiments.toy.problem import sample_prior as sample_prior
from firm import sample
from firm.operators import LinearOperator, NonlinearOperator, from_functions

SCALE, SIGMA = 1.5, toy.SIGMA
SAMPLES, TABLE_STEPS = 4000, (1, 2, 4, 10, 50)


class Product(NonlinearOperator):
    """A(u, v) = u v / 1.5, (B, 2) to (B, 1); its Jacobian is (v, u) / 1.5."""

    cg_iterations, newton_steps = 2, 4  # J'J + rho I has two eigenvalues: two iterations are exact

    def A(self, x: Tensor) -> Tensor:
        """Multiply the coordinates."""
        return x[:, :1] * x[:, 1:] / SCALE

    def guess(self, y: Tensor) -> Tensor:
        """Take the point in the middle: which branch it is, y does not say."""
        return torch.zeros(len(y), 2, dtype=y.dtype, device=y.device)

    def linearized(self, x: Tensor) -> LinearOperator:
        """Return the Jacobian as two products."""
        gradient = x.flip(1) / SCALE
        op = from_functions(lambda v: (gradient * v).sum(1, keepdim=True), lambda w: gradient * w)
        op.cg_tol, op.cg_iterations = 0, self.cg_iterations
        return op


def operator() -> Product:
    """Return the measurement."""
    return Product()


def measure(x: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw y = A(x) + noise, (n, 1)."""
    return operator().A(x) + SIGMA * torch.randn(len(x), 1, generator=generator).to(x)


def marginals(y: float, points: int = 2401, reach: float = 3.0) -> tuple[Tensor, Tensor]:
    """Compute grid points (n,) and the exact CDF of u, which is that of v too, on them, by quadrature of p(x | y)."""
    grid = torch.linspace(-reach, reach, points, dtype=torch.float64)
    gauss = [torch.exp(-((grid - mean) / toy.STD).square() / 2) for mean in (-1.5, 1.5)]
    prior = gauss[0] + gauss[1]  # the mixture is a product
    density = prior[:, None] * prior[None] * torch.exp(-((grid[:, None] * grid / SCALE - y) / SIGMA).square() / 2)
    cdf = density.sum(1).cumsum(0)
    return grid, cdf / cdf[-1]


def wasserstein(samples: Tensor, y: float) -> float:
    """Compute W1 between samples (n,) of a coordinate and its exact marginal: the area between the two CDFs."""
    grid, cdf = marginals(y)
    empirical = torch.searchsorted(samples.double().sort().values, grid, right=True) / len(samples)
    return float(torch.trapezoid((empirical - cdf).abs(), grid))


def main() -> None:
    """Train, sample and write the numbers."""
    from experiments.toy.study import train

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--training", type=int, default=8000, help="steps of 512")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("outputs/toy-nonlinear"))
    given = parser.parse_args()
    import sys

    start = time.monotonic()
    model = train(given.seed, given.training, problem=sys.modules[__name__])
    seconds, rows = time.monotonic() - start, []
    for y in (1.5, -1.5):
        measured = torch.full((SAMPLES, 1), y)
        for N in TABLE_STEPS:
            x = sample(model, operator(), measured, N, generator=Generator().manual_seed(given.seed))
            rows.append({
                "y": y, "N": N, "w1 of u": wasserstein(x[:, 0], y), "w1 of v": wasserstein(x[:, 1], y),
                "share with u > 0": float((x[:, 0] > 0).float().mean()),
                "misfit": float((operator().A(x) - measured).square().mean().sqrt()),
            })  # fmt: skip
            print(rows[-1], flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    about = {"steps": given.training, "batch": 512, "seed": given.seed, "samples": SAMPLES, "seconds": round(seconds)}
    (given.out / "nonlinear.json").write_text(json.dumps({"settings": about, "rows": rows}, indent=1) + "\n")
    model.save(given.out / "model.safetensors")


if __name__ == "__main__":
    main()
