"""How exactly must a weighted solve be made? ``python solver.py DICOM``: `photo` on one small slice, by tolerance."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import firm
from experiments.ct import run
from firm.noise import Gaussian

run.SIDE = 96


def main() -> None:
    """Print PSNR, residual and seconds for tolerances, and for fixed numbers of iterations."""
    photo = firm.load("photo")
    x, op, y, noise = next(run.problems(Path(sys.argv[1]), 1))
    for tolerance, iterations in ((1e-3, 500), (1e-4, 500), (1e-5, 500), (1e-6, 500), (0, 20), (0, 40), (0, 80)):
        op.cg_tol, op.cg_iterations = tolerance, iterations
        start = time.perf_counter()
        r = firm.restore(photo, op, y, sigma=Gaussian(noise.std(y)), seed=3)
        score, seconds = float(firm.metrics.psnr(r.mean.clamp(-1, 1), x)), time.perf_counter() - start
        print(f"tolerance {tolerance:g}, {iterations} iterations: {score:.2f} dB, {seconds:.1f} s")


if __name__ == "__main__":
    main()
