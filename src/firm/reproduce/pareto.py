"""The paper's figure of quality against time: up and to the left is better."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

from firm._util.files import check_file
from firm.reproduce.published import COST, Scores
from firm.reproduce.published import celeba as published
from firm.tasks import tables

TIMED = "deblurring"


def run(table: Path, times: Path, out: Path, mode: str = "fast") -> Path:
    """Draw PSNR against seconds per image, from the results of ``celeba`` and ``cost``.

    On the left deblurring, which every method does; on the right the mean of the five tasks, of those that do all.
    The paper's points (one RTX A6000) are hollow.
    """
    import matplotlib.pyplot as plt

    check_file(out)

    cost = _read(times / "cost.json")
    try:
        ours: Scores = _read(table / "results.json")["ours"]
        seconds = {row["method"]: float(row["seconds"]) for row in cost["rows"] if row["mode"] == mode}
        for row in ours.values():
            _psnr(row, False), _psnr(row, True)
        machine = cost["machine"].get("gpu", cost["machine"]["cpu"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{table} or {times} lacks numbers: run the commands that wrote them again") from error
    theirs = {method: values[0] for method, values in COST.items()}
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    for axis, mean in zip(axes, (False, True), strict=True):
        for scores, clock, hollow in ((ours, seconds, False), (published(), theirs, True)):
            points = {m: (clock[m], _psnr(row, mean)) for m, row in scores.items() if m in clock}
            _draw(axis, {m: (x, y) for m, (x, y) in points.items() if y is not None}, hollow)
        axis.set(xscale="log", xlabel="seconds per image, batch 1", ylabel="PSNR (dB)")
        axis.set_title("mean of the five tasks" if mean else TIMED)
        axis.grid(alpha=0.25)
    figure.suptitle(f"filled: ours, {machine}; hollow: the paper, RTX A6000", fontsize=10)
    figure.savefig(out, dpi=130)
    plt.close(figure)
    print(f"the picture is {out}")
    return out


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: run `firm reproduce celeba` and `firm reproduce cost` first")
    try:
        found = json.loads(path.read_bytes())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged: run the command that wrote it again")
    return found


def _psnr(row: dict[str, dict[str, float]], mean: bool) -> float | None:
    if not mean:
        return row[TIMED]["psnr"] if TIMED in row else None
    return statistics.fmean(row[task]["psnr"] for task in tables()) if all(task in row for task in tables()) else None


def _draw(axis: Any, points: dict[str, tuple[float, float]], hollow: bool) -> None:
    """FIRM's points joined by a line and labelled on their left, the others on their right, lower if one is near."""
    style = dict(facecolors="none") if hollow else {}
    line = [point for method, point in points.items() if method.startswith("FIRM")]
    if line:
        axis.plot(*zip(*line, strict=True), color="tab:blue", alpha=0.3 if hollow else 1, zorder=1)
    labelled: list[tuple[float, float]] = []
    for method, (x, y) in points.items():
        color = "tab:blue" if method.startswith("FIRM") else "tab:grey"
        axis.scatter([x], [y], edgecolors=color, color=None if hollow else color, zorder=2, s=28, **style)
        text = dict(textcoords="offset points", fontsize=7.5, color="0.6" if hollow else "black")
        if method.startswith("FIRM"):
            axis.annotate(method.removeprefix("FIRM "), (x, y), (-5, -4), ha="right", **text)
            continue
        near = any(abs(math.log10(x / a)) < 0.5 and abs(y - b) < 0.2 for a, b in labelled)
        labelled.append((x, y))
        axis.annotate(method.removesuffix("-OT"), (x, y), (4, -10 if near else 3), **text)
