"""The paper's figure of quality against time: up and to the left is better."""

import statistics
from dataclasses import replace
from typing import Any

from experiments import shared
from experiments.catalog import read_record
from experiments.figures import label_points, save
from experiments.published import CELEBA, COST
from firm._util.checks import require
from firm.tasks import tables

TIMED = "deblurring"


def study(settings: shared.Settings, name: str) -> dict[str, Any]:
    """Draw PSNR against seconds per image, from the results of ``celeba`` and ``cost``.

    On the left deblurring, which every method does; on the right the mean of the five tasks, of those that do all.
    The paper's points (one RTX A6000) are hollow.
    """
    import matplotlib.pyplot as plt

    folders = (settings.folder("celeba"), settings.folder("cost"))
    quality, cost = (read_record(folder) for folder in folders)
    first = f"{folders[0]} or {folders[1]} has no results: run `firm reproduce celeba` and `firm reproduce cost` first"
    require(quality and cost, first, FileNotFoundError)
    try:
        ours = {line["label"]: _psnrs(line["ours"]) for table in quality["tables"] for line in table["lines"]}
        seconds = {r["method"]: float(r["seconds"]) for r in cost["numbers"]["rows"] if r["mode"] == "fast"}
        machine = cost["machine"].get("gpu", cost["machine"]["cpu"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{folders[0]} or {folders[1]} lacks numbers: run the studies again") from error
    models = f"celeba was run with the model {quality['model']}, cost with {cost['model']}"
    require(quality["model"] == cost["model"], f"{models}: run one of them again")
    require(seconds, f"{folders[1]} has no times of the mode fast: run `firm reproduce cost` with --modes fast")
    theirs = {method: values[0] for method, values in COST.items()}
    paper = {m: {task: float(scores["psnr"]) for task, scores in row.items()} for m, row in CELEBA.items()}
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    figure.suptitle(f"filled: ours, {machine}; hollow: the paper, RTX A6000", fontsize=10)
    for axis, mean in zip(axes, (False, True), strict=True):
        labels = []
        for scores, times, hollow in ((ours, seconds, False), (paper, theirs, True)):
            shown = tuple(tables()) if mean else (TIMED,)
            points = {
                m: (times[m], statistics.fmean(row[task] for task in shown))
                for m, row in scores.items()
                if m in times and set(shown) <= row.keys()
            }
            labels += _draw(axis, points, hollow)
        axis.margins(x=0.14)  # labels stand beside their points
        axis.set(xscale="log", xlabel="seconds per image, batch 1", ylabel="PSNR (dB)")
        axis.set_title("mean of the five tasks" if mean else TIMED)
        axis.grid(alpha=0.25)
        label_points(axis, labels)
    save(figure, settings.folder(name) / "pareto.png")
    quick = settings.quick or quality["quick"] or cost["quick"]  # as quick as what it is drawn from
    title = "PSNR over seconds per image; up and to the left is better"
    return shared.record(
        replace(settings, quick=quick), name, images=quality["images"], model=quality["model"],
        figures=[shared.Figure("pareto.png", title, free=True)],
        numbers={"seconds": seconds, "psnr": ours, "from": [quality["command"], cost["command"]]},
    )  # fmt: skip


def _psnrs(line: dict[str, Any]) -> dict[str, float]:
    return {task: float(line[f"{task} psnr"]) for task in tables() if f"{task} psnr" in line}


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
