"""The two figures of the study of calibration."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from firm.reproduce.figures import save

LEAST = 0.001  # bins with a smaller share of the pixels are left out: a handful of pixels says nothing


def coverage_figure(found: dict[str, dict[int, Any]], distances: dict[str, dict[int, float]], path: Path) -> None:
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
    ticks = [1, 2, 4, 10, 25, 50]
    last.set(title="toy problem", xlabel="N", ylabel="W1 to the posterior", xscale="log", xticks=ticks)
    last.set_xticklabels([str(N) for N in ticks])
    last.minorticks_off()
    last.set_ylim(bottom=0)
    _finish(figure, axes, len(found) + 1, path)


def error_figure(found: dict[str, dict[int, Any]], path: Path) -> None:
    """Of every task: the root mean squared error of the pixels against the standard deviation predicted for them."""
    figure, axes = _axes(len(found))
    shown = {
        part: {N: [b for b in values["bins"] if b["share"] >= LEAST] for N, values in by_steps.items()}
        for part, by_steps in found.items()
    }
    every = [
        b[key]
        for by_steps in shown.values()
        for bins in by_steps.values()
        for b in bins
        for key in ("std", "rmse")
        if b[key] > 0
    ]
    low, high = min(every) / 1.3, max(every) * 1.3  # all panels alike
    for axis, (part, by_steps) in zip(axes, shown.items(), strict=False):
        axis.plot([low, high], [low, high], color="0.6", lw=1, ls="--")
        for color, (N, bins) in _colored(by_steps):
            axis.plot([b["std"] for b in bins], [b["rmse"] for b in bins], "o-", ms=4, color=color, label=f"N = {N}")
        axis.set(
            title=part, xlabel="predicted standard deviation", ylabel="error of the mean", xscale="log", yscale="log"
        )
        axis.set(xlim=(low, high), ylim=(low, high))
    _finish(figure, axes, len(found), path)


def _axes(count: int) -> tuple[Any, list[Any]]:
    """Square panels in at most four columns."""
    import matplotlib.pyplot as plt

    columns = min(4, count) if count != 5 and count != 6 else 3
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
