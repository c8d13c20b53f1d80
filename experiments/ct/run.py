"""Sparse-view CT: back-projection, Tikhonov, total variation and the untrained `photo`: ``python run.py DATA``.

DATA is a folder of DICOM files, whose slices are measured here, or a measured sinogram of the Helsinki challenge, whose
reconstruction from all views is the truth. Settings of `photo` are chosen on slices of one person and reported on those
of another; weights of the classical methods are chosen with the truth, for their benefit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import firm
from experiments.ct.dicom import WATER, attenuation, series
from experiments.ct.total_variation import total_variation
from firm.instruments.ct import CtScan
from firm.metrics import psnr, ssim
from firm.noise import Attenuation, Gaussian, Noise
from firm.operators import Radon, data_consistency, filtered_back_projection
from firm.operators.scale import Scaled

SIDE, VIEWS, PHOTONS = 256, 60, 1e4
TIKHONOV = [0.3, 1, 3, 10, 30, 100]
TV = [1, 2, 4, 8, 16, 32]


def problems(folder: Path, count: int) -> Iterator[tuple[Tensor, Any, Tensor, Noise]]:
    """Slices of a person, spread evenly, each measured: images, operator of norm 1, measurements and their noise."""
    files = series(folder)
    angles = torch.arange(VIEWS, dtype=torch.float64) * torch.pi / VIEWS
    radon = Radon(angles, SIDE)
    op = Scaled(radon, 1 / radon.largest[None])
    op.cg_tol = 1e-4
    for i in range(count):
        x, pixel = attenuation(files[(2 * i + 1) * len(files) // (2 * count)], SIDE)
        noise = Attenuation(PHOTONS, float(1 / (radon.largest * WATER * pixel)))  # x + 1 is 1 for water
        clean = op.A(x)
        noise = noise.on(op, clean, x)
        yield x, op, noise.draw(clean, firm.tasks.generator_for(7, i, "noise")), noise


def helsinki(path: Path) -> Iterator[tuple[Tensor, Any, Tensor, Noise]]:
    """The measured sinogram at some of its views; the truth is back-projected from all, with pixels half as large."""
    scan = CtScan.open(path, views=VIEWS, side=SIDE)
    every = CtScan.open(path, side=2 * SIDE)
    p, _, _ = every._integrals(0)
    truth = F.avg_pool2d(filtered_back_projection(every.geometry, p), 2)
    s = scan.slice(0)
    x = (2 * truth / scan.white - 1).clamp(-1, 1)
    radon: Any = s.op
    op, c = Scaled(radon, 1 / radon.largest[None]), 1 / radon.largest
    assert isinstance(s.noise, Gaussian)
    noise = s.noise.scaled(c[None]).on(op, c * s.y, x)
    yield x, op, c * s.y, noise


def back_projection(op: Any, y: Tensor, smooth: bool) -> Tensor:
    """Filtered back-projection of a measurement of x + 1."""
    radon, c = op.op, float(op.factor)
    return (filtered_back_projection(radon, (y + op.A(torch.ones(1, 1, SIDE, SIDE))) / c, smooth=smooth) - 1).clamp(
        -1, 1
    )


def classical(weights: dict[str, list[float]], iterations: int) -> dict[str, Callable[..., Tensor]]:
    """Methods by name, each with a weight; called with the operator, measurements and noise."""
    methods: dict[str, Callable[..., Tensor]] = {
        "FBP": lambda op, y, noise: back_projection(op, y, False),
        "FBP, Hann": lambda op, y, noise: back_projection(op, y, True),
    }

    def tikhonov(op: Any, y: Tensor, noise: Noise, weight: float) -> Tensor:
        level = float(noise.level(y))
        x: Tensor = data_consistency(op, torch.full((1, 1, SIDE, SIDE), -1.0), y, weight * level**2, noise)
        return x.clamp(-1, 1)

    def tv(op: Any, y: Tensor, noise: Noise, weight: float) -> Tensor:
        return total_variation(op, y, 1 / noise.std(y), weight, back_projection(op, y, True), iterations)

    for w in weights["Tikhonov"]:
        methods[f"Tikhonov {w:g}"] = lambda op, y, noise, w=w: tikhonov(op, y, noise, w)
    for w in weights["TV"]:
        methods[f"TV {w:g}"] = lambda op, y, noise, w=w: tv(op, y, noise, w)
    return methods


def with_photo(settings: list[dict[str, Any]]) -> dict[str, Callable[..., Tensor]]:
    """`photo` by the settings of `firm.restore`; "noise" is the map of every ray, its root mean square, or harmonic."""
    model = firm.fast(firm.load("photo"))
    methods = {}

    def restored(op: Any, y: Tensor, noise: Noise, s: dict[str, Any]) -> Tensor:
        s = dict(s)
        kind = s.pop("noise")
        std = noise.std(y)
        harmonic = float(std[std > 0].square().reciprocal().mean().rsqrt())
        sigma = {"map": Gaussian(std), "level": float(noise.level(y)), "harmonic": harmonic}[kind]
        r = firm.restore(model, op, y, seed=3, sigma=sigma, **s)
        return r.mean.clamp(-1, 1)

    for s in settings:
        label = "photo " + ", ".join(f"{k} {v}" for k, v in s.items())
        methods[label] = lambda op, y, noise, s=s: restored(op, y, noise, s)
    return methods


def measure(data: Path, count: int, methods: dict[str, Callable[..., Tensor]]) -> dict[str, Any]:
    """Mean PSNR, SSIM and seconds of every method."""
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for x, op, y, noise in problems(data, count) if data.is_dir() else helsinki(data):
        for name, method in methods.items():
            start = time.perf_counter()
            found = method(op, y, noise)
            seconds = time.perf_counter() - start
            rows.setdefault(name, []).append((float(psnr(found, x)), float(ssim(found, x)), seconds))
            print(f"{name:40s} {rows[name][-1]}", flush=True)
    return {
        name: {
            "psnr": round(statistics.mean(r[0] for r in v), 2), "ssim": round(statistics.mean(r[1] for r in v), 4),
            "seconds": round(statistics.median(r[2] for r in v), 2), "each": [round(r[0], 2) for r in v],
        }
        for name, v in rows.items()
    }  # fmt: skip


def main() -> None:
    """Run what the command line asks for, and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--classical", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--tikhonov", type=float, nargs="*", default=TIKHONOV)
    parser.add_argument("--tv", type=float, nargs="*", default=TV)
    parser.add_argument("--photo", type=json.loads, nargs="*", default=[])
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    weights = {"Tikhonov": given.tikhonov, "TV": given.tv}
    methods = classical(weights, given.iterations) if given.classical else {}
    methods |= with_photo(given.photo) if given.photo else {}
    result = {"data": given.data.name, "slices": given.count, "views": VIEWS, "photons": PHOTONS, "side": SIDE}
    result |= {"iterations of TV": given.iterations, "methods": measure(given.data, given.count, methods)}
    given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
