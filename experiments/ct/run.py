"""Sparse-view CT: back-projection, Tikhonov, total variation and `photo`, untrained: ``run.py TUNE REPORT...``.

Data are folders of DICOM files, whose slices are measured here, or a measured sinogram of the Helsinki challenge, whose
reconstruction from all views is the truth. Settings of `photo` are chosen on slices of one person and reported on those
of others; weights of the classical methods are chosen with the truth, for their benefit.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
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
from experiments.ct.total_variation import objective, total_variation
from firm.data.sinogram import read_sinogram
from firm.instruments.ct import CtScan
from firm.metrics import psnr, ssim
from firm.noise import Attenuation, Gaussian, Noise
from firm.operators import Radon, data_consistency, filtered_back_projection
from firm.operators.scale import Scaled

SIDE, VIEWS, PHOTONS = 256, 60, 1e4
TIKHONOV = [1, 3, 10, 30, 100]
TV = [0.5, 1, 2, 5, 12, 30]
ITERATIONS = 250  # of total variation
OTHERS: list[dict[str, Any]] = [{"final_solve": True}, {"rho": 0.003}, {"rho": 0.03}, {"steps": 2}, {"samples": 4}]


def problems(folder: Path, count: int) -> Iterator[tuple[Tensor, Any, Tensor, Noise]]:
    """Slices of a person, spread evenly, each measured: images, operator of norm 1, measurements and their noise."""
    files = series(folder)
    angles = torch.arange(VIEWS, dtype=torch.float64) * torch.pi / VIEWS
    radon = Radon(angles, SIDE)
    op = Scaled(radon, 1 / radon.largest[None])
    op.cg_tol = 1e-5
    for i in range(count):
        x, pixel = attenuation(files[(2 * i + 1) * len(files) // (2 * count)], SIDE)
        noise = Attenuation(PHOTONS, float(1 / (radon.largest * WATER * pixel)))  # x + 1 is 1 for water
        clean = op.A(x)
        noise = noise.on(op, clean, x)
        yield x, op, noise.draw(clean, firm.tasks.generator_for(7, i, "noise")), noise


def helsinki(path: Path) -> Iterator[tuple[Tensor, Any, Tensor, Noise]]:
    """The measured sinogram at some of its views; the truth is back-projected from all, with pixels half as large."""
    scan = CtScan.open(path, views=VIEWS, side=SIDE)
    read, g = read_sinogram(path), scan.geometry
    every = dataclasses.replace(
        g, angles=torch.from_numpy(read.angles), image_size=(2 * SIDE, 2 * SIDE), pixel=g.pixel / 2
    )
    p = torch.from_numpy(read.values).float()[:, None]
    truth = F.avg_pool2d(filtered_back_projection(every, p), 2)
    s = scan.slice(0)
    x = (2 * truth / scan.white - 1).clamp(-1, 1)
    radon: Any = s.op
    op, c = Scaled(radon, 1 / radon.largest[None]), 1 / radon.largest
    assert isinstance(s.noise, Gaussian)
    noise = s.noise.scaled(c[None]).on(op, c * s.y, x)
    yield x, op, c * s.y, noise


def in_the_field_of_view(x: Tensor) -> Tensor:
    """Take the corners, which few views see, for air."""
    place = torch.linspace(-1, 1, SIDE)
    return torch.where(place.square() + place[:, None].square() < 1, x, -1)


def back_projection(op: Any, y: Tensor, smooth: bool) -> Tensor:
    """Filtered back-projection of a measurement of x + 1."""
    radon, c = op.op, float(op.factor)
    return (filtered_back_projection(radon, (y + op.A(torch.ones(1, 1, SIDE, SIDE))) / c, smooth=smooth) - 1).clamp(
        -1, 1
    )


def classical() -> dict[str, Callable[..., Tensor]]:
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
        return total_variation(op, y, 1 / noise.std(y), weight, back_projection(op, y, True), ITERATIONS)

    for w in TIKHONOV:
        methods[f"Tikhonov {w:g}"] = lambda op, y, noise, w=w: tikhonov(op, y, noise, w)
    for w in TV:
        methods[f"TV {w:g}"] = lambda op, y, noise, w=w: tv(op, y, noise, w)
    return methods


def with_photo(settings: list[dict[str, Any]]) -> dict[str, Callable[..., Tensor]]:
    """`photo` by the settings of `firm.restore`, and two more.

    "noise_as" is the map of every ray, its root mean square ("level"), or its harmonic mean, the level that weighs as
    much as the map; "rho" the coupling of the data-consistency step.
    """
    photo = firm.load("photo")

    def restored(op: Any, y: Tensor, noise: Noise, noise_as: str, rho: float, **settings: Any) -> Tensor:
        std = noise.std(y)
        harmonic = float(std.square().reciprocal().mean().rsqrt())
        sigma = {"map": Gaussian(std), "level": float(noise.level(y)), "harmonic": harmonic}[noise_as]
        model = copy.copy(photo)
        model.solver = dataclasses.replace(photo.solver, rho=rho)
        return firm.restore(model, op, y, seed=3, sigma=sigma, **settings).mean.clamp(-1, 1)

    return {
        "photo " + json.dumps(s): lambda op, y, noise, s=s: restored(op, y, noise, **{"rho": 0.01, **s})
        for s in settings
    }  # fmt: skip


Scores = dict[str, list[list[float]]]  # of every method, and of every slice PSNR, SSIM and seconds


def measure(
    data: Path, count: int, methods: dict[str, Callable[..., Tensor]], rows: Scores, keep: Callable[[Scores], None]
) -> Scores:
    """Try all methods on some slices; `rows` are those that are known already, `keep` is called with each new one."""
    for i, (x, op, y, noise) in enumerate(problems(data, count) if data.is_dir() else helsinki(data)):
        for name, method in methods.items():
            if len(rows.setdefault(name, [])) > i:
                continue
            start = time.perf_counter()
            found = method(op, y, noise)
            seconds = time.perf_counter() - start
            found, x = (v if data.is_dir() else in_the_field_of_view(v) for v in (found, x))
            rows[name].append([round(float(psnr(found, x)), 2), round(float(ssim(found, x)), 4), round(seconds, 1)])
            print(f"{data.name} {i} {name:40s} {rows[name][-1]}", flush=True)
            keep(rows)
    return rows


def best(rows: Scores, kind: str) -> str:
    """The method whose name begins so with the largest mean PSNR."""
    return max((name for name in rows if name.startswith(kind)), key=lambda n: statistics.mean(r[0] for r in rows[n]))


def check_total_variation(data: Path, weight: float) -> dict[str, Any]:
    """Compare the iterations that are made with many, on one slice."""
    x, op, y, noise = next(problems(data, 1))
    found = {}
    for iterations in (ITERATIONS, 5 * ITERATIONS):
        z = total_variation(op, y, 1 / noise.std(y), weight, back_projection(op, y, True), iterations)
        value = objective(op, y, 1 / noise.std(y), weight, z)
        found[str(iterations)] = {"objective": round(value, 2), "psnr": round(float(psnr(z, x)), 3)}
    return found


def main() -> None:
    """Tune on one person, report on others and on a measured sinogram."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tune", type=Path, help="a folder of DICOM files")
    parser.add_argument("report", type=Path, nargs="+", help="folders of other people, or .mat files")
    parser.add_argument("--count", type=int, default=3, help="slices of each")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    result: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}  # goes on where it ended
    tuned = f"tuned on {given.tune.name}"

    def keep(part: str, value: Any) -> None:
        result.update({"views": VIEWS, "photons": PHOTONS, "side": SIDE, "iterations of TV": ITERATIONS, part: value})
        given.out.write_text(json.dumps(result, indent=1) + "\n")

    ways = with_photo([{"noise_as": kind} for kind in ("map", "level", "harmonic")])
    rows = measure(given.tune, 1, ways, result.get(tuned, {}), lambda rows: keep(tuned, rows))
    chosen = json.loads(best(rows, "photo ").removeprefix("photo "))
    for data in given.report:
        methods = classical() | with_photo([chosen])
        name = data.name
        rows = measure(data, given.count, methods, result.get(name, {}), lambda rows, name=name: keep(name, rows))  # type: ignore[misc]
        print(name, *(best(rows, kind) for kind in ("FBP", "Tikhonov", "TV", "photo")), flush=True)
    if "TV" not in result:
        keep("TV", check_total_variation(given.tune, 5))
    others = with_photo([{**chosen, **change} for change in OTHERS])
    measure(given.tune, 1, others, result[tuned], lambda rows: keep(tuned, rows))


if __name__ == "__main__":
    main()
