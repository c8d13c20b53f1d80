"""Logarithms of counts with weights, or transmissions with one level: ``transmission.py DICOM`` on a small slice."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import firm
from experiments.ct import run
from firm.noise import Attenuation, Gaussian
from firm.operators import Transmission

run.SIDE = 96


def main() -> None:
    """Restore the middle slice with `photo` from both."""
    x, op, _, noise = next(run.problems(Path(sys.argv[1]), 1))
    assert isinstance(noise, Attenuation)
    photo, unit = firm.load("photo"), float(noise.unit)
    for photons in (1e4, 200.0):
        counted = Attenuation(photons, unit).on(op, op.A(x), x)
        y = counted.draw(op.A(x), torch.Generator().manual_seed(3))
        shares = (counted.counted(y) - 0.5) / photons
        level = float((shares / photons).mean().sqrt())
        by_logarithm = firm.restore(photo, op, y, sigma=Gaussian(counted.std(y)), seed=3).mean
        transmitted = firm.restore(photo, Transmission(op, 1 / unit), shares, sigma=level, seed=3).mean
        found = [round(float(firm.metrics.psnr(z.clamp(-1, 1), x)), 2) for z in (by_logarithm, transmitted)]
        print(f"{photons:g} photons: logarithms {found[0]} dB, transmissions {found[1]} dB")


if __name__ == "__main__":
    main()
