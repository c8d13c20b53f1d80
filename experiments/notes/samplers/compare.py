"""Ways to take the steps of Algorithm 2, one evaluation each: Euler, second order from two steps, fresh noise.

    python experiments/notes/samplers/compare.py CELEBA 16 --steps 2,4,10

prints PSNR and LPIPS of `face-128` on validation faces, from the 101st on, for each way.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable

import torch
from torch import Tensor

import firm
from firm.data import celeba_files, read_picture
from firm.metrics import lpips, psnr

TASKS = "deblurring", "random-inpainting", "super-resolution"


@torch.no_grad()
def flow(estimate: Callable[[Tensor, float], Tensor], x: Tensor, N: int, how: str, source: torch.Generator) -> Tensor:
    """From noise `x` at t = 0 to an image at t = 1, in N steps with one ``z = estimate(x, t)`` each.

    With z held, x_s = s z + (1 - s) e with the noise e = (x_t - t z) / (1 - t) is Euler's step, exactly. "logit" and
    "linear" extrapolate z from the last two steps, in log(t / (1 - t)) as DPM-Solver++(2M) does, or in t;
    "adams-bashforth" does so with the velocity; "fresh ETA" replaces a part of e by new noise, the same in every step,
    and "churn KAPPA" a part that follows from the step, as the integrator of this name does.
    """
    before: tuple[float, Tensor, Tensor] | None = None
    for i in range(N):
        t, s = i / N, (i + 1) / N
        z = estimate(x, t)
        v = (z - x) / (1 - t)
        ahead, e = z, (x - t * z) / (1 - t)
        if before is not None and s < 1 and how in ("logit", "linear"):
            place = (lambda u: math.log(u / (1 - u))) if how == "logit" else (lambda u: u)
            if how == "linear" or before[0] > 0:
                ahead = z + (place(s) - place(t)) / (2 * (place(t) - place(before[0]))) * (z - before[1])
                e = (x - t * ahead) / (1 - t)
        if how.startswith(("fresh", "churn")) and s < 1:
            eta = float(how.split()[1])
            if how.startswith("churn"):
                eta *= math.sqrt(1 - ((1 - s) * t / (s * (1 - t))) ** 2)
            e = math.sqrt(1 - eta**2) * e + eta * torch.randn(x.shape, generator=source)
        if how == "adams-bashforth" and before is not None:
            x_next = x + (s - t) * (1.5 * v - 0.5 * before[2])
        else:
            x_next = s * ahead + (1 - s) * e
        before, x = (t, z, v), x_next
    return x


def main() -> None:
    """Print one line of JSON for each task, number of steps and way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("celeba")
    parser.add_argument("images", type=int)
    parser.add_argument("--steps", default="2,4,10")
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = firm.fast(firm.load("face-128"))
    files = celeba_files(given.celeba, "val")[100 : 100 + given.images]
    faces = torch.stack([read_picture(file, 128) for file in files])
    ways = [
        "euler",
        "logit",
        "linear",
        "adams-bashforth",
        "fresh 0.5",
        "fresh 1",
        "churn 0.4",
        "churn 0.6",
        "churn 0.8",
    ]
    for task in (firm.Task(name) for name in TASKS):
        for N in map(int, given.steps.split(",")):
            for how in ways:
                found = []
                for i in range(0, len(faces), 8):
                    x_1 = faces[i : i + 8]
                    op, y = task.measure(x_1, seed=7, index=i)
                    sigma = torch.full((len(x_1),), task.sigma)
                    x_0 = torch.randn(x_1.shape, generator=torch.Generator().manual_seed(100 + i))

                    def estimate(x: Tensor, t: float, op: object = op, y: Tensor = y, sigma: Tensor = sigma) -> Tensor:
                        return model.posterior_mean(op, x, t, y, sigma=sigma)

                    x = flow(estimate, x_0, N, how, torch.Generator().manual_seed(1 + i))
                    found.append(torch.stack([psnr(x, x_1), lpips(x, x_1)]))
                db, distance = torch.cat(found, 1).mean(1).tolist()
                row = {"task": task.name, "N": N, "how": how, "psnr": round(db, 3), "lpips": round(distance, 4)}
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
