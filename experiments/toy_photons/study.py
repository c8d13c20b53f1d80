"""Posterior recovery with photon noise: W1 at several N against the exact posterior, for three counts.

Trains the estimator of the toy problem with Algorithm 1, whose data-consistency step solves for the Poisson likelihood.
"""

from typing import Any

import torch
from torch import Generator

from experiments import shared
from experiments.shared import Settings
from experiments.tables import Column, Line, Table
from experiments.toy.study import BATCH, RATE, STEPS, train
from experiments.toy_photons import problem as toy
from firm import Solver, sample
from firm._util.checks import require

SAMPLES = 4000
K = 2  # iterations of Algorithm 3: the solver is exact here, and a step of training takes half as long as with five
COUNTS = (3, 5, 9)  # photons: most likely dark, open, most likely bright
TABLE_STEPS = (1, 4, 50)

COLUMNS = tuple(Column(f"{c} {k}", f"W1({c}), {k} photons", better="low") for k in COUNTS for c in "uv")


def study(settings: Settings, name: str) -> dict[str, Any]:
    """Train (with --quick: a hundredth of the steps), evaluate; write the model and the numbers.

    Options of its own: `seed`, and `training` steps.
    """
    extra = settings.extra
    require(not (settings.quick and "training" in extra), "--quick trains little: leave out --training, or --quick")
    seed, steps = extra.get("seed", 0), extra.get("training", STEPS // 100 if settings.quick else STEPS)
    model = train(seed, steps, settings.device, toy, Solver(K=K)).cpu()
    trained = settings.seconds()
    about = {"K": K, "steps": steps, "batch": BATCH, "rate": RATE, "seed": seed, "samples": SAMPLES}
    model.card = {"trained_for": "toy with photons", "settings": about}
    model.save(settings.folder(name) / "toy-photons.safetensors")
    rows = {which: {N: distances(m, N, seed) for N in TABLE_STEPS}
            for which, m in (("learned", model), ("exact", toy.ExactField()))}  # fmt: skip
    floor = {f"{c} {k}": exact_samples(k, i, seed) for k in COUNTS for i, c in enumerate("uv")}
    lines = [Line(f"N = {N}{which}", {key: round(value, 4) for key, value in rows[kind][N].items()})
             for N in TABLE_STEPS for kind, which in (("learned", ""), ("exact", ", exact field"))]  # fmt: skip
    lines.append(Line("exact samples", {key: round(value, 4) for key, value in floor.items()}))
    table = Table(f"posterior recovery with photon noise ({SAMPLES} samples)", COLUMNS, lines)
    numbers = {"settings": about, **rows, "exact samples": floor, "seconds of training": trained}
    return shared.record(settings, name, model="toy-photons", tables=[table], numbers=numbers, seed=seed,
                         notes=["`exact samples` are as many samples of the posterior itself"])  # fmt: skip


def distances(model: Any, N: int, seed: int) -> dict[str, float]:
    """W1 of both coordinates for every count, with N steps."""
    found = {}
    for k in COUNTS:
        y = toy.measurement(k)
        x = sample(
            model, toy.operator(), y.expand(SAMPLES, 2), N, sigma=toy.NOISE, generator=Generator().manual_seed(seed)
        )
        found |= {f"{c} {k}": toy.wasserstein(x[:, i], y, i) for i, c in enumerate("uv")}
    return found


def exact_samples(k: int, coordinate: int, seed: int) -> float:
    """W1 of samples of the exact posterior: what the number of samples alone makes of it."""
    y = toy.measurement(k)
    weight = toy.log_posterior(y, coordinate).softmax(-1).flatten()
    drawn = torch.multinomial(weight, SAMPLES, replacement=True, generator=Generator().manual_seed(seed))
    return toy.wasserstein(toy.LINE[drawn], y, coordinate)
