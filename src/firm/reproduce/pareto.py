"""The paper's figure of quality against time: up and to the left is better."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from firm.reproduce.figures import label_points, save
from firm.reproduce.listing import RESULTS, read_record
from firm.reproduce.published import COST
from firm.reproduce.published import celeba as published
from firm.reproduce.record import Clock, Figure, record
from firm.reproduce.settings import Settings
from firm.tasks import tables

TIMED = "deblurring"


def study(settings: Settings, name: str) -> dict[str, Any]:
    """Draw PSNR against seconds per image, from the results of ``celeba`` and ``cost``.

    On the left deblurring, which every method does; on the right the mean of the five tasks, of those that do all.
    The paper's points (one RTX A6000) are hollow.
    """
    import matplotlib.pyplot as plt

    clock, folders = Clock(), (settings.folder("celeba"), settings.folder("cost"))
    quality, cost = (_record(folder) for folder in folders)
    try:
        ours, seconds = _psnrs(quality), _seconds(cost)
        machine = cost["machine"].get("gpu", cost["machine"]["cpu"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{folders[0]} or {folders[1]} lacks numbers: run the studies again") from error
    if quality["model"] != cost["model"]:
        raise ValueError(
            f"celeba was run with the model {quality['model']}, cost with {cost['model']}: run one of them again"
        )
    if not seconds:
        raise ValueError(f"{folders[1]} has no times of the mode fast: run `firm reproduce cost` with --modes fast")
    quick = settings.quick or quality["quick"] or cost["quick"]  # as quick as what it is drawn from
    theirs = {method: values[0] for method, values in COST.items()}
    paper = {m: {task: float(row[task]["psnr"]) for task in row} for m, row in published().items()}  # type: ignore[arg-type]
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    figure.suptitle(f"filled: ours, {machine}; hollow: the paper, RTX A6000", fontsize=10)
    for axis, mean in zip(axes, (False, True), strict=True):
        labels = []
        for scores, times, hollow in ((ours, seconds, False), (paper, theirs, True)):
            points = {m: (times[m], _psnr(row, mean)) for m, row in scores.items() if m in times}
            labels += _draw(axis, {m: (x, y) for m, (x, y) in points.items() if y is not None}, hollow)
        axis.margins(x=0.14)  # labels stand beside their points
        axis.set(xscale="log", xlabel="seconds per image, batch 1", ylabel="PSNR (dB)")
        axis.set_title("mean of the five tasks" if mean else TIMED)
        axis.grid(alpha=0.25)
        label_points(axis, labels)
    save(figure, settings.folder(name) / "pareto.png")
    return record(
        replace(settings, quick=quick), name, clock, images=quality["images"], model=quality["model"],
        figures=[Figure("pareto.png", "PSNR over seconds per image; up and to the left is better", free=True)],
        numbers={"seconds": seconds, "psnr": ours, "from": [quality["command"], cost["command"]]},
    )  # fmt: skip


def _record(folder: Path) -> dict[str, Any]:
    found = read_record(folder)
    if found is None:
        raise FileNotFoundError(
            f"there is no {folder / RESULTS}: run `firm reproduce celeba` and `firm reproduce cost` first"
        )
    return found


def _psnrs(found: dict[str, Any]) -> dict[str, dict[str, float]]:
    """PSNR of every method and task, out of the table of ``celeba``."""
    lines = [line for table in found["tables"] for line in table["lines"]]
    return {
        line["label"]: {
            task: float(line["ours"][f"{task} psnr"]) for task in tables() if f"{task} psnr" in line["ours"]
        }
        for line in lines
    }


def _seconds(found: dict[str, Any], mode: str = "fast") -> dict[str, float]:
    return {row["method"]: float(row["seconds"]) for row in found["numbers"]["rows"] if row["mode"] == mode}


def _psnr(row: dict[str, float], mean: bool) -> float | None:
    if not mean:
        return row.get(TIMED)
    return statistics.fmean(row[task] for task in tables()) if all(task in row for task in tables()) else None


def _draw(axis: Any, points: dict[str, tuple[float, float]], hollow: bool) -> list[tuple[str, float, float, str]]:
    """Draw the points, FIRM's joined by a line; return their labels."""
    style = dict(facecolors="none") if hollow else {}
    line = [point for method, point in points.items() if method.startswith("FIRM")]
    if line:
        axis.plot(*zip(*line, strict=True), color="tab:blue", alpha=0.3 if hollow else 1, zorder=1)
    for method, (x, y) in points.items():
        color = "tab:blue" if method.startswith("FIRM") else "tab:gray"
        axis.scatter([x], [y], edgecolors=color, color=None if hollow else color, zorder=2, s=28, **style)
    color = "0.6" if hollow else "black"
    return [(method.removeprefix("FIRM ").removesuffix("-OT"), x, y, color) for method, (x, y) in points.items()]
