"""The toy problem with a nonlinear measurement: of x = (u, v) the magnitude |u| is seen, with noise.

It is phase retrieval in two dimensions: p(x | y) has four modes, at both signs of u and of v, and is known exactly:
p(u | y) is proportional to p(u) exp(-(|u| - y)^2 / 2 sigma^2), by quadrature, and p(v | y) = p(v).
``python -m experiments.toy.nonlinear`` trains the network of the linear toy for it, and compares samples.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch
from torch import Generator, Tensor

from experiments.toy import problem as toy
from experiments.toy.problem import sample_prior as sample_prior
from firm import Solver, sample
from firm.operators import Magnitude, Mask

SIGMA, SAMPLES, TABLE_STEPS = toy.SIGMA, 20_000, (1, 2, 4, 10, 50)


def operator() -> Magnitude:
    """Return A(u, v) = (|u|, 0); one step is exact, because the mask is diagonal."""
    return Magnitude(Mask(torch.tensor([1.0, 0.0])), black=0.0, iterations=1)


def measure(x: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw y = A(x) + noise, (n, 2); the second entry is noise alone."""
    return operator().A(x) + SIGMA * torch.randn(x.shape, generator=generator).to(x)


def marginal_cdf(y: float, coordinate: int, grid: Tensor) -> Tensor:
    """Compute the exact CDF of u (0) or v (1) given |u| measured as `y`, on an even grid (n,), by quadrature."""
    density = sum(torch.exp(-((grid - mean) / toy.STD).square() / 2) for mean in (-1.5, 1.5))
    if coordinate == 0:
        density = density * torch.exp(-((grid.abs() - y) / SIGMA).square() / 2)
    cdf = torch.cumulative_trapezoid(density, grid)
    return torch.cat([cdf.new_zeros(1), cdf / cdf[-1]])


def wasserstein(samples: Tensor, y: float, coordinate: int) -> float:
    """Compute W1 between samples (n,) of a coordinate and its exact marginal: the area between the two CDFs."""
    grid = torch.linspace(-6, 6, 24_001, dtype=torch.float64)
    empirical = torch.searchsorted(samples.double().sort().values, grid, right=True) / len(samples)
    return float(torch.trapezoid((empirical - marginal_cdf(y, coordinate, grid)).abs(), grid))


def main() -> None:
    """Train, sample and write the numbers."""
    from experiments.toy.study import train

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--training", type=int, default=16_000, help="steps of 512")
    parser.add_argument("--iterations", type=int, default=5, help="K")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("outputs/toy-nonlinear"))
    given = parser.parse_args()
    start = time.monotonic()
    model = train(given.seed, given.training, problem=sys.modules[__name__], solver=Solver(given.iterations))
    seconds, rows = time.monotonic() - start, []
    for y in (1.5, 1.3):
        measured = torch.tensor([y, 0.0]).expand(SAMPLES, 2)
        for N in TABLE_STEPS:
            x = sample(model, operator(), measured, N, generator=Generator().manual_seed(given.seed))
            rows.append({
                "y": y, "N": N, "w1 of u": wasserstein(x[:, 0], y, 0), "w1 of v": wasserstein(x[:, 1], y, 1),
                "share with u > 0": float((x[:, 0] > 0).float().mean()),
                "share with v > 0": float((x[:, 1] > 0).float().mean()),
            })  # fmt: skip
            print(rows[-1], flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    about = {
        "K": given.iterations,
        "steps": given.training,
        "batch": 512,
        "seed": given.seed,
        "samples": SAMPLES,
        "seconds": round(seconds),
    }
    (given.out / "nonlinear.json").write_text(json.dumps({"settings": about, "rows": rows}, indent=1) + "\n")
    model.save(given.out / "model.safetensors")


if __name__ == "__main__":
    main()
