"""Are the samples a posterior? How often the truth lies inside their intervals, and whether their spread is the error.

Samples of the true posterior cover it exactly as often as their intervals say. Beyond the paper.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments import shared
from experiments.figures import save
from experiments.shared import CELEBA, SEED, Figure, Settings
from experiments.tables import Column, Line, Table
from experiments.toy import study as toy
from experiments.toy.problem import ExactField
from firm import load, restore
from firm._util.checks import require
from firm._util.seeds import generator_for
from firm._util.terminal import progress_bar
from firm.data.images import Images
from firm.metrics import coverage
from firm.restoration.calibration import missing, quantile_scale
from firm.tasks import Task, tables

STEPS, QUICK_STEPS = (2, 4, 10, 25), (2, 4)
IMAGES, QUICK_IMAGES = 20, 2
SAMPLES, QUICK_SAMPLES = 64, 20  # with fewer than 19, a 90 % interval ends outside of the samples
TASKS, QUICK_TASKS = tables(), ("denoising", "box-inpainting")
TOY_STEPS = (1, 2, 4, 10, 25, 50)  # in the table; the figure has more
LEVELS = (0.5, 0.8, 0.9, 0.95)
REQUIRED = ("denoising", "box-inpainting")  # of these the 90 % interval should cover what follows
LOW, HIGH = 0.80, 0.97
EDGES = torch.logspace(-4, 0, 25, dtype=torch.float64)  # of the bins of predicted standard deviations
LEAST = 0.001  # bins with a smaller share of the pixels are not drawn: a handful of pixels says nothing


def _bins() -> Tensor:
    return torch.zeros(len(EDGES) - 1, dtype=torch.float64)


@dataclass
class Tally:
    """What is known of the pixels of a task, or of a part of them, at one N; images are added one by one."""

    covered: dict[float, list[float]] = field(default_factory=dict)  # level -> share of the pixels of each image
    count: Tensor = field(default_factory=_bins)  # in each bin
    errors: Tensor = field(default_factory=_bins)  # squared, summed
    variances: Tensor = field(default_factory=_bins)  # summed
    ratios: list[Tensor] = field(default_factory=list)  # |x - mean| / std

    def add(self, samples: Tensor, truth: Tensor) -> None:
        """Samples (S, n) of the pixels `truth` (n,) of one image."""
        for level in shown_levels(len(samples)):
            self.covered.setdefault(level, []).append(float(coverage(samples[:, None], truth[None], level)))
        error, std = (truth - samples.mean(0)).double().cpu(), samples.std(0).double().cpu()
        bins = torch.bucketize(std, EDGES).clamp(1, len(EDGES) - 1) - 1  # the outermost take what lies beyond them
        for total, values in ((self.count, torch.ones_like(std)), (self.errors, error**2), (self.variances, std**2)):
            total.index_add_(0, bins, values)
        self.ratios.append((error.abs() / std.clamp(min=1e-12)).float())

    def summary(self) -> dict[str, Any]:
        """Coverage by level, mean spread and error, the scale that `firm calibrate` would find; bins with pixels."""
        n, seen = float(self.count.sum()), self.count > 0
        spread, error = (total[seen] / self.count[seen] for total in (self.variances, self.errors))
        return {
            "coverage": {f"{100 * level:.0f}": sum(v) / len(v) for level, v in self.covered.items()},
            "std": float(self.variances.sum() / n) ** 0.5,
            "rmse": float(self.errors.sum() / n) ** 0.5,
            "scale": quantile_scale(torch.cat(self.ratios)),
            "bins": [
                {"std": float(s) ** 0.5, "rmse": float(e) ** 0.5, "share": float(c) / n}
                for s, e, c in zip(spread, error, self.count[seen], strict=True)
            ],
        }


Found = dict[str, dict[int, dict[str, Any]]]  # task or part -> N -> summary


def shown_levels(samples: int) -> list[float]:
    """The levels whose interval lies within the range of so many samples: beyond it, nothing could be left out."""
    return [level for level in LEVELS if level <= (samples - 1) / (samples + 1)]


def study(settings: Settings, name: str) -> dict[str, Any]:
    """Sample every face, count, and write the table and two figures; an option of its own: `S`, the samples."""
    quick = settings.quick
    S = settings.extra.get("S", QUICK_SAMPLES if quick else SAMPLES)
    require(0.9 in shown_levels(S), f"--samples {S}: a 90 % interval needs 19 samples or more")
    steps = settings.steps or (QUICK_STEPS if quick else STEPS)
    images = shared.test_images(settings, CELEBA, settings.images(IMAGES, QUICK_IMAGES))
    found = count_all(settings, images, QUICK_TASKS if quick else TASKS, steps, S)
    distances = {
        what: {N: toy.summary(x, 1.5)["w1"] for N, x in toy.sweep(model, 0).items()}
        for what, model in (("learned", load("toy")), ("exact field", ExactField()))
    }
    required = {task: requirement(task, found[task]) for task in REQUIRED if task in found}
    out = settings.folder(name)
    coverage_figure(found, distances, out / "coverage.png")
    error_figure(found, out / "error.png")
    figures = [
        Figure("coverage.png", "share of the truth inside the samples' intervals; last, W1 on the toy problem", True),
        Figure("error.png", "error against predicted standard deviation; calibrated samples lie on the line", True),
    ]
    return shared.record(
        settings, name, images=len(images), model=settings.model or CELEBA.model, figures=figures,
        tables=[table(found, S), toy_table(distances)], notes=[sentence(t, r, S) for t, r in required.items()],
        numbers={"samples": S, "calibration": found, "requirement": required, "toy": distances},
    )  # fmt: skip


def count_all(settings: Settings, images: Images, tasks: Sequence[str], steps: Sequence[int], S: int) -> Found:
    """For every task and N: what `Tally` counts; of box inpainting also inside and outside of the box.

    Only the samples of one image are in memory.
    """
    model = shared.firm_model(settings, CELEBA)
    tallies: dict[tuple[str, int], Tally] = {}
    work = [(kind, N, i) for kind in tasks for N in steps for i in range(len(images))]
    for kind, N, i in progress_bar(work, unit="image"):
        task, x = Task(kind, CELEBA.size), images.batch(range(i, i + 1)).to(settings.device)
        op, y = task.measure(x, SEED, i)
        start = generator_for(SEED, i, "method").initial_seed()
        samples, hole = restore(model, op, y, N, S, start, sigma=task.sigma).samples, missing(op, x)
        parts = {kind: torch.ones_like(hole)}
        if kind == "box-inpainting":
            parts |= {f"{kind}, inside": hole, f"{kind}, outside": ~hole}
        for part, chosen in parts.items():
            tallies.setdefault((part, N), Tally()).add(samples[:, chosen], x[chosen])
    found: Found = {}
    for (part, N), tally in tallies.items():
        found.setdefault(part, {})[N] = tally.summary()
    return found


def best(by_steps: dict[int, dict[str, Any]]) -> int:
    """The N whose 90 % interval covers nearest to 90 %."""
    return min(by_steps, key=lambda N: abs(by_steps[N]["coverage"]["90"] - 0.9))


def requirement(task: str, by_steps: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Whether the 90 % interval at the best N covers 80 % to 97 % of the pixels, and by how much it misses that."""
    N = best(by_steps)
    covered = by_steps[N]["coverage"]["90"]
    misses = max(LOW - covered, covered - HIGH, 0.0)
    return {"N": N, "coverage": covered, "met": misses == 0, "misses by": misses, "scale": by_steps[N]["scale"]}


def sentence(task: str, found: dict[str, Any], S: int) -> str:
    """The requirement in words."""
    start = f"{task}: at the best N = {found['N']} the 90 % interval of {S} samples covers {found['coverage']:.1%}"
    if found["met"]:
        return f"{start}, within {LOW:.0%} to {HIGH:.0%}"
    return (
        f"{start}, which misses {LOW:.0%} to {HIGH:.0%} by {100 * found['misses by']:.1f} points; "
        f"`firm calibrate` fits what standard deviations should be multiplied by (here about {found['scale']:.1f})"
    )


def table(found: Found, S: int) -> Table:
    """A line for every task, part and N."""
    levels = [f"{100 * level:.0f}" for level in shown_levels(S)]
    columns = [Column(level, f"{level} %", digits=1) for level in levels]
    columns += [Column("best", "best N"), Column("scale", "scale needed", "spread")]  # the first of a group is printed
    columns += [Column("std", "std", "spread", digits=4), Column("rmse", "error", "spread", digits=4)]
    lines = []
    for part, by_steps in found.items():
        for N, values in by_steps.items():
            ours = {level: 100 * values["coverage"][level] for level in levels}
            ours |= {key: values[key] for key in ("std", "rmse", "scale")}
            lines.append(Line(f"{part}, N = {N}", ours | {"best": "*" if best(by_steps) == N else ""}))
    return Table(f"percentage of the truth inside the central intervals of {S} samples", columns, lines)


def toy_table(distances: dict[str, dict[int, float]]) -> Table:
    """W1 between samples and the exact posterior, against N."""
    columns = [Column(str(N), f"N = {N}") for N in TOY_STEPS]
    lines = [Line(what, {str(N): w1 for N, w1 in values.items()}) for what, values in distances.items()]
    return Table("W1 on the toy problem, where the posterior is known", columns, lines)


def coverage_figure(found: Found, distances: dict[str, dict[int, float]], path: Path) -> None:
    """Of every task: the share of the truth inside an interval against the interval's level; last, W1 on the toy."""
    figure, axes = _axes(len(found) + 1)
    for axis, (part, by_steps) in zip(axes, found.items(), strict=False):
        axis.plot([0, 1], [0, 1], color="0.6", lw=1, ls="--")
        for color, (N, values) in _colored(by_steps):
            levels = [int(level) / 100 for level in values["coverage"]]
            axis.plot([0, *levels], [0, *values["coverage"].values()], "o-", ms=4, color=color, label=f"N = {N}")
        axis.set(title=part, xlabel="level of the interval", ylabel="share inside", xlim=(0, 1), ylim=(0, 1))
    last = axes[len(found)]
    for what, style in (("learned", "o-"), ("exact field", "s--")):
        last.plot(list(distances[what]), list(distances[what].values()), style, ms=4, label=what)
    last.set(title="toy problem", xlabel="N", ylabel="W1 to the posterior", xscale="log", xticks=TOY_STEPS)
    last.set_xticklabels([str(N) for N in TOY_STEPS])
    last.minorticks_off()
    last.set_ylim(bottom=0)
    _finish(figure, axes, len(found) + 1, path)


def error_figure(found: Found, path: Path) -> None:
    """Of every task: the root mean squared error of the pixels against the standard deviation predicted for them."""
    figure, axes = _axes(len(found))
    shown = {
        part: {N: [b for b in values["bins"] if b["share"] >= LEAST] for N, values in by_steps.items()}
        for part, by_steps in found.items()
    }
    bins = [b for by_steps in shown.values() for some in by_steps.values() for b in some]
    every = [b[key] for b in bins for key in ("std", "rmse") if b[key] > 0]
    low, high = min(every) / 1.3, max(every) * 1.3  # all panels alike
    for axis, (part, by_steps) in zip(axes, shown.items(), strict=False):
        axis.plot([low, high], [low, high], color="0.6", lw=1, ls="--")
        for color, (N, some) in _colored(by_steps):
            axis.plot([b["std"] for b in some], [b["rmse"] for b in some], "o-", ms=4, color=color, label=f"N = {N}")
        axis.set(title=part, xlabel="predicted standard deviation", ylabel="error of the mean", xscale="log")
        axis.set(yscale="log", xlim=(low, high), ylim=(low, high))
    _finish(figure, axes, len(found), path)


def _axes(count: int) -> tuple[Any, list[Any]]:
    """Square panels in at most four columns."""
    import matplotlib.pyplot as plt

    columns = 3 if count in (5, 6) else min(4, count)
    rows = math.ceil(count / columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3.3 * columns, 3.3 * rows), layout="constrained", squeeze=False)
    return figure, list(axes.flat)


def _colored(by_steps: dict[int, Any]) -> list[tuple[Any, tuple[int, Any]]]:
    """Few steps dark, many bright."""
    import matplotlib

    shades = matplotlib.colormaps["viridis"]
    return [(shades(0.85 * i / max(1, len(by_steps) - 1)), item) for i, item in enumerate(by_steps.items())]


def _finish(figure: Any, axes: list[Any], used: int, path: Path) -> None:
    for axis in axes[:used]:
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
        axis.set_box_aspect(1)
    for axis in axes[used:]:
        axis.axis("off")
    save(figure, path)
