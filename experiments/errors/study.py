"""Where the restorations are wrong: error maps in the five tasks on CelebA, and the mean absolute error as a table."""

import statistics
from collections.abc import Sequence
from typing import Any

from experiments import shared
from experiments.figures import Panel, save_grid
from experiments.shared import CELEBA, SEED, Figure, Settings
from experiments.tables import Column, Line, Table
from firm._util.terminal import progress_bar
from firm.data.images import Images
from firm.evaluation import Evaluation, NamedMethod
from firm.evaluation.run import chunks, restore_chunk, score_images
from firm.tasks import BaseTask, Task, tables

IMAGES, QUICK_IMAGES = 100, 1
STEPS, QUICK_STEPS = (2, 25), (2, 10)
METHODS, QUICK_METHODS = "pnp-flow5,flower5", "pnp-flow1,flower1"

Mae = dict[str, dict[str, float]]  # task -> method -> mean absolute error, for pixels in [0, 1]


def study(settings: Settings, name: str) -> dict[str, Any]:
    """Draw one test image and the bundled portrait; make a table of the mean absolute error."""
    quick, out = settings.quick, settings.folder(name)
    names, missing = shared.baselines(settings, CELEBA, METHODS, QUICK_METHODS)
    tasks = [Task(task, CELEBA.size) for task in tables()]
    rows = shared.methods(settings, CELEBA, names, settings.steps or (QUICK_STEPS if quick else STEPS), tasks)
    images = shared.test_images(settings, CELEBA, settings.images(IMAGES, QUICK_IMAGES))
    found, shown = absolute_errors(settings, images, tasks, rows)
    free, shown_free = absolute_errors(settings, shared.free_images(CELEBA), tasks, rows)
    save_grid(out / "errors.png", shared.heads(rows), shown)
    save_grid(out / "portrait-errors.png", shared.heads(rows), shown_free)
    what = "restorations and their errors in five tasks, magma from 0 to 0.1; below: mean absolute error / PSNR"
    return shared.record(
        settings, name, images=len(images), model=settings.model or CELEBA.model,
        tables=[table(found, f"mean absolute error, pixels in [0, 1], {shared.of(images, CELEBA)}")],
        figures=[Figure("errors.png", f"CelebA: {what}"), Figure("portrait-errors.png", what, free=True)],
        notes=[*lowest(found), *shared.differences(settings, CELEBA), *missing],
        numbers={"mae": found, "portrait": free},
    )  # fmt: skip


def absolute_errors(
    settings: Settings, images: Images, tasks: Sequence[BaseTask], rows: Sequence[NamedMethod]
) -> tuple[Mae, list[tuple[str, list[Panel]]]]:
    """The mean absolute error of every task and method, and of the first image two rows of panels a task."""
    evaluation = Evaluation(images, tasks, "tables", SEED, device=settings.device)
    found: Mae = {}
    grid = []
    for task in progress_bar(tasks, unit="task"):
        found[task.name] = {}
        pictures, maps = [Panel(images.batch(range(1))[0])], [Panel(None)]
        for method in rows:
            settled = method.on(task)
            if settled is None:  # it does not do the task
                pictures, maps = [*pictures, Panel(None, shared.ABSENT)], [*maps, Panel(None)]
                continue
            means = list[float]()
            for chunk in chunks(evaluation, range(len(images)), settings.batch_size):
                restored = restore_chunk(evaluation, task, settled, chunk)
                errors = (restored.x - restored.truth).abs().mean(-3) / 2  # of pixels in [0, 1]
                means += errors.flatten(1).mean(1).tolist()
                if chunk.start == 0:
                    score = {"mae": means[0], **score_images(evaluation, task, settled, restored, slice(1))[0]}
                    pictures.append(Panel(restored.x[0]))
                    maps.append(Panel(errors[0], shared.label(score, ("mae", "psnr"))))
            found[task.name][method.label] = statistics.fmean(means)
        grid += [(task.name, pictures), ("error", maps)]
    return found, grid


def table(found: Mae, title: str) -> Table:
    """A line a method, a column a task."""
    columns = [Column(task, task, digits=4, better="low") for task in found]
    lines = []
    for method in dict.fromkeys(method for row in found.values() for method in row):
        ours = {task: row[method] for task, row in found.items() if method in row}
        lines.append(Line("Degraded" if method == "degraded" else method, ours))
    return Table(title, columns, lines)


def lowest(found: Mae) -> list[str]:
    """In how many tasks FIRM N=2 has the lowest error: in the paper's figure, in all."""
    if any("FIRM N=2" not in row for row in found.values()):
        return []
    first = sum(row["FIRM N=2"] == min(row.values()) for row in found.values())
    what = f"FIRM N=2 has the lowest mean absolute error in {first} of {len(found)} tasks"
    return [f"{what} (in the paper's figure, of one image, in all)"]
