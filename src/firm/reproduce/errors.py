"""Where the restorations are wrong: error maps in the five tasks on CelebA, and the mean absolute error as a table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from firm._util.terminal import progress_bar
from firm._util.text import counted
from firm.data.images import Images
from firm.evaluation import Evaluation
from firm.evaluation.methods import NamedMethod
from firm.evaluation.run import restore_chunk, score_image
from firm.reproduce.evaluations import methods, test_images
from firm.reproduce.figures import Panel, error_map, save_grid
from firm.reproduce.pictures import ABSENT, free_images, heads, label
from firm.reproduce.record import Clock, Figure, record
from firm.reproduce.rows import baselines, notes, require
from firm.reproduce.settings import CELEBA, SEED, Settings
from firm.reproduce.tables import Column, Line, Table, Value
from firm.tasks import BaseTask, Task, tables

IMAGES, QUICK_IMAGES = 100, 1
STEPS, QUICK_STEPS = (2, 25), (2, 10)
METHODS, QUICK_METHODS = "pnp-flow5,flower5", "pnp-flow1,flower1"

Mae = dict[str, dict[str, float]]  # task -> method -> mean absolute error, for pixels in [0, 1]
Rows = list[tuple[str, list[Panel]]]


def study(settings: Settings, name: str) -> dict[str, Any]:
    """The figure of one test image and of the bundled portrait, and a table of the mean absolute error."""
    clock, quick, out = Clock(), settings.quick, settings.folder(name)
    names, missing = baselines(settings, CELEBA, METHODS, QUICK_METHODS)
    rows = methods(settings, CELEBA, names, settings.steps or (QUICK_STEPS if quick else STEPS))
    tasks = [Task(task, CELEBA.size) for task in tables()]
    require(rows, tasks)
    images = test_images(settings, CELEBA, settings.limit or (QUICK_IMAGES if quick else IMAGES))
    found, shown = absolute_errors(settings, images, tasks, rows)
    free, shown_free = absolute_errors(settings, free_images(CELEBA), tasks, rows)
    save_grid(out / "errors.png", heads(rows), shown)
    save_grid(out / "portrait-errors.png", heads(rows), shown_free)
    what = "restorations and their errors in five tasks, magma from 0 to 0.1; below: mean absolute error / PSNR"
    return record(
        settings, name, clock, images=len(images), model=settings.model or CELEBA.model,
        tables=[table(found, f"mean absolute error, pixels in [0, 1], {counted(len(images))} of CelebA")],
        figures=[Figure("errors.png", f"CelebA: {what}"), Figure("portrait-errors.png", what, free=True)],
        notes=[*lowest(found), *notes(settings, CELEBA), *missing], numbers={"mae": found, "portrait": free},
    )  # fmt: skip


def absolute_errors(
    settings: Settings, images: Images, tasks: Sequence[BaseTask], rows: Sequence[NamedMethod]
) -> tuple[Mae, Rows]:
    """The mean absolute error of every task and method, and of the first image two rows of panels a task."""
    evaluation = Evaluation(images, tasks, "tables", SEED, device=settings.device)
    batch = settings.batch if settings.device.type == "cuda" else 1  # as in the tables
    found: Mae = {}
    grid: Rows = []
    for task in progress_bar(tasks, unit="task"):
        found[task.name] = {}
        pictures, maps = [Panel(images.batch(range(1))[0])], [Panel(None)]
        for method in rows:
            settled = method.on(task)
            if settled is None:  # it does not do the task
                pictures, maps = [*pictures, Panel(None, ABSENT)], [*maps, Panel(None)]
                continue
            found[task.name][method.label], picture, map_ = errors_of(evaluation, task, settled, batch)
            pictures, maps = [*pictures, picture], [*maps, map_]
        grid += [(task.name, pictures), ("error", maps)]
    return found, grid


def errors_of(evaluation: Evaluation, task: BaseTask, method: NamedMethod, batch: int) -> tuple[float, Panel, Panel]:
    """The mean absolute error over all images; the first one restored, and its error map with the numbers below."""
    means, shown, count = list[float](), list[Panel](), len(evaluation.files)
    for start in range(0, count, batch):
        restored = restore_chunk(evaluation, task, method, range(start, min(start + batch, count)))
        errors = error_map(restored.x, restored.truth)
        means += errors.flatten(1).mean(1).tolist()
        if start == 0:
            score = {"mae": means[0], **score_image(evaluation, task, method, restored, 0)}
            shown = [Panel(restored.x[0]), Panel(errors[0], label(score, ("mae", "psnr")))]
    return statistics.fmean(means), shown[0], shown[1]


def table(found: Mae, title: str) -> Table:
    """A line a method, a column a task."""
    columns = [Column(task, task, digits=4, better="low") for task in found]
    lines = []
    for method in dict.fromkeys(method for row in found.values() for method in row):
        ours: dict[str, Value] = {task: row[method] for task, row in found.items() if method in row}
        lines.append(Line("Degraded" if method == "degraded" else method, ours))
    return Table(title, columns, lines)


def lowest(found: Mae) -> list[str]:
    """In how many tasks FIRM N=2 has the lowest error: in the paper's figure, in all."""
    if any("FIRM N=2" not in row for row in found.values()):
        return []
    first = [task for task, row in found.items() if min(row, key=lambda method: row[method]) == "FIRM N=2"]
    return [
        f"FIRM N=2 has the lowest mean absolute error in {len(first)} of {len(found)} tasks "
        "(in the paper's figure, of one image, in all)"
    ]
