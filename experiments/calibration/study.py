"""Are the samples a posterior? How often the truth lies inside their intervals, and whether their spread is the error.

Samples of the true posterior cover it exactly as often as their intervals say. Beyond the paper.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
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
from firm._util.checks import generator_for, require
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


class Tally:
    """What is known of the pixels of a task, or of a part of them, at one N; images are added one by one."""

    def __init__(self) -> None:
        self.covered = defaultdict[float, list[float]](list)  # level -> share of the pixels of each image
        self.bins = torch.zeros(3, len(EDGES) - 1, dtype=torch.float64)  # pixels, squared errors and variances in each
        self.ratios = list[Tensor]()  # |x - mean| / std

    def add(self, samples: Tensor, truth: Tensor) -> None:
        """Samples (S, n) of the pixels `truth` (n,) of one image."""
        for level in _shown_levels(len(samples)):
            self.covered[level].append(float(coverage(samples[:, None], truth[None], level)))
        error, std = (truth - samples.mean(0)).double().cpu(), samples.std(0).double().cpu()
        bins = torch.bucketize(std, EDGES).clamp(1, len(EDGES) - 1) - 1  # the outermost take what lies beyond them
        for total, values in zip(self.bins, (torch.ones_like(std), error**2, std**2), strict=True):
            total.index_add_(0, bins, values)
        self.ratios.append((error.abs() / std.clamp(min=1e-12)).float())

    def summary(self) -> dict[str, Any]:
        """Coverage by level, mean spread and error, the scale that `firm calibrate` would find; bins with pixels."""
        n = float(self.bins[0].sum())
        rmse, std = (float(total.sum() / n) ** 0.5 for total in self.bins[1:])
        each = [
            (float(count), float(e / count) ** 0.5, float(s / count) ** 0.5) for count, e, s in self.bins.T if count
        ]
        return {
            "coverage": {f"{100 * level:.0f}": sum(v) / len(v) for level, v in self.covered.items()},
            "std": std, "rmse": rmse, "scale": quantile_scale(torch.cat(self.ratios)),
            "bins": [{"std": s, "rmse": e, "share": count / n} for count, e, s in each],
        }  # fmt: skip


Found = dict[str, dict[int, dict[str, Any]]]  # task or part -> N -> summary


def _shown_levels(samples: int) -> list[float]:
    """The levels whose interval lies within the range of so many samples: beyond it, nothing could be left out."""
    return [level for level in LEVELS if level <= (samples - 1) / (samples + 1)]


def study(settings: Settings, name: str) -> dict[str, Any]:
    """Sample every face, count, and write the table and two figures; an option of its own: `S`, the samples."""
    quick = settings.quick
    S, out = settings.extra.get("S", QUICK_SAMPLES if quick else SAMPLES), settings.folder(name)
    require(0.9 in _shown_levels(S), f"--samples {S}: a 90 % interval needs 19 samples or more")
    steps = settings.steps or (QUICK_STEPS if quick else STEPS)
    images = shared.test_images(settings, CELEBA, settings.images(IMAGES, QUICK_IMAGES))
    found = _count_all(settings, images, QUICK_TASKS if quick else TASKS, steps, S)
    distances = {
        what: {N: toy.summary(x, 1.5)["w1"] for N, x in toy.sweep(model, 0).items()}
        for what, model in (("learned", load("toy")), ("exact field", ExactField()))
    }
    required = {task: requirement(task, found[task]) for task in REQUIRED if task in found}
    _coverage_figure(found, distances, out / "coverage.png")
    _error_figure(found, out / "error.png")
    figures = [
        Figure("coverage.png", "share of the truth inside the samples' intervals; last, W1 on the toy problem", True),
        Figure("error.png", "error against predicted standard deviation; calibrated samples lie on the line", True),
    ]
    return shared.record(
        settings, name, images=len(images), model=settings.model or CELEBA.model, figures=figures,
        tables=[table(found, S), _toy_table(distances)], notes=[sentence(t, r, S) for t, r in required.items()],
        numbers={"samples": S, "calibration": found, "requirement": required, "toy": distances},
    )  # fmt: skip


def _count_all(settings: Settings, images: Images, tasks: Sequence[str], steps: Sequence[int], S: int) -> Found:
    """For every task and N, and inside and outside of a box, what `Tally` counts; one image's samples in memory."""
    model = shared.firm_model(settings, CELEBA)
    tallies = defaultdict[tuple[str, int], Tally](Tally)
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
            tallies[part, N].add(samples[:, chosen], x[chosen])
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
    columns = [Column(f"{100 * level:.0f}", f"{100 * level:.0f} %", digits=1) for level in _shown_levels(S)]
    columns += [Column("best", "best N"), Column("scale", "scale needed", "spread")]  # the first of a group is printed
    columns += [Column("std", "std", "spread", digits=4), Column("rmse", "error", "spread", digits=4)]
    lines = []
    for part, by_steps in found.items():
        for N, values in by_steps.items():
            ours = values | {level: 100 * share for level, share in values["coverage"].items()}
            ours = {column.key: ours[column.key] for column in columns if column.key in ours}
            lines.append(Line(f"{part}, N = {N}", ours | {"best": "*" if best(by_steps) == N else ""}))
    return Table(f"percentage of the truth inside the central intervals of {S} samples", columns, lines)


def _toy_table(distances: dict[str, dict[int, float]]) -> Table:
    """W1 between samples and the exact posterior, against N."""
    columns = [Column(str(N), f"N = {N}") for N in TOY_STEPS]
    lines = [Line(what, {str(N): w1 for N, w1 in values.items()}) for what, values in distances.items()]
    return Table("W1 on the toy problem, where the posterior is known", columns, lines)


def _coverage_figure(found: Found, distances: dict[str, dict[int, float]], path: Path) -> None:
    """Of every task: the share of the truth inside an interval against the interval's level; last, W1 on the toy."""
    figure, axes = _axes(len(found) + 1)
    for axis, (part, by_steps) in zip(axes, found.items(), strict=False):
        curves = {
            N: ([0, *(int(level) / 100 for level in v["coverage"])], [0, *v["coverage"].values()])
            for N, v in by_steps.items()
        }
        _draw(axis, part, curves, (0, 1), xlabel="level of the interval", ylabel="share inside")
    last = axes[len(found)]
    for what, style in (("learned", "o-"), ("exact field", "s--")):
        last.plot(list(distances[what]), list(distances[what].values()), style, ms=4, label=what)
    last.set(title="toy problem", xlabel="N", ylabel="W1 to the posterior", xscale="log", ylim=(0, None))
    last.set_xticks(TOY_STEPS, [str(N) for N in TOY_STEPS])
    last.minorticks_off()
    _finish(figure, axes, len(found) + 1, path)


def _error_figure(found: Found, path: Path) -> None:
    """Of every task: the root mean squared error of the pixels against the standard deviation predicted for them."""
    figure, axes = _axes(len(found))
    curves = {
        part: {
            N: tuple([b[key] for b in values["bins"] if b["share"] >= LEAST] for key in ("std", "rmse"))
            for N, values in by_steps.items()
        }
        for part, by_steps in found.items()
    }
    every = [v for by_steps in curves.values() for curve in by_steps.values() for v in (*curve[0], *curve[1]) if v > 0]
    ends, names = (min(every) / 1.3, max(every) * 1.3), dict(xlabel="predicted standard deviation")  # all panels alike
    for axis, (part, by_steps) in zip(axes, curves.items(), strict=False):
        _draw(axis, part, by_steps, ends, ylabel="error of the mean", xscale="log", yscale="log", **names)
    _finish(figure, axes, len(found), path)


def _axes(count: int) -> tuple[Any, list[Any]]:
    """Square panels in at most four columns."""
    import matplotlib.pyplot as plt

    columns = 3 if count in (5, 6) else min(4, count)
    rows = math.ceil(count / columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3.3 * columns, 3.3 * rows), layout="constrained", squeeze=False)
    return figure, list(axes.flat)


def _draw(axis: Any, title: str, curves: dict[int, Any], ends: tuple[float, float], **names: str) -> None:
    """The curves of every N over the diagonal, where the two numbers agree: few steps dark, many bright."""
    import matplotlib

    axis.plot(ends, ends, color="0.6", lw=1, ls="--")
    for i, (N, (x, y)) in enumerate(curves.items()):
        color = matplotlib.colormaps["viridis"](0.85 * i / max(1, len(curves) - 1))
        axis.plot(x, y, "o-", ms=4, color=color, label=f"N = {N}")
    axis.set(title=title, xlim=ends, ylim=ends, **names)


def _finish(figure: Any, axes: list[Any], used: int, path: Path) -> None:
    for axis in axes[:used]:
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
        axis.set_box_aspect(1)
    for axis in axes[used:]:
        axis.axis("off")
    save(figure, path)
