"""All methods side by side, one image a task: the paper's figures "Qualitative reconstructions"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from firm._util.terminal import progress_bar
from firm.data.images import Images
from firm.evaluation.methods import NamedMethod
from firm.reproduce.evaluations import methods, test_images
from firm.reproduce.figures import save_grid
from firm.reproduce.pictures import free_images, heads, panels
from firm.reproduce.record import Clock, Figure, record
from firm.reproduce.rows import QUICK_METHODS, baselines, notes, require
from firm.reproduce.settings import AFHQ, CELEBA, Settings, Subject
from firm.tasks import BaseTask, Task, tables

STEPS = (2, 10)


@dataclass(frozen=True)
class Part:
    """A figure: its data set, its tasks, and the baselines where it is to be quick."""

    subject: Subject
    tasks: tuple[str, ...]
    quick: str


PARTS = (
    Part(CELEBA, tuple(tables()), QUICK_METHODS),
    Part(AFHQ, ("denoising", "deblurring"), "pnp-hqs"),  # PnP-Flow makes 500 calls for a cat: over a minute
)


def study(settings: Settings, name: str) -> dict[str, Any]:
    """A figure a data set; the k-th task shows the k-th test image."""
    clock, figures, said = Clock(), list[Figure](), list[str]()
    below = "below: PSNR / SSIM / LPIPS"
    ready = []
    for part in PARTS:
        faces = part.subject is CELEBA  # what is asked for must be there for faces; cats have fewer networks
        names, missing = baselines(settings, part.subject, "all", part.quick, must=faces)
        rows = methods(settings, part.subject, names, settings.steps or STEPS)
        tasks = [Task(task, part.subject.size) for task in part.tasks]
        require(rows, tasks)
        ready.append((rows, tasks, test_images(settings, part.subject, len(tasks))))
        said += [*notes(settings, part.subject), *missing]
    for part, (rows, tasks, images) in zip(PARTS, ready, strict=True):
        file = f"{part.subject.dataset}.png"
        draw(settings, name, file, rows, tasks, images)
        figures.append(Figure(file, f"all methods on {part.subject.title}; {below}"))
    for part, (rows, tasks, _) in zip(PARTS, ready, strict=True) if not settings.quick else ():
        images = free_images(part.subject)
        file = f"{images.names[0]}-qualitative.png"
        draw(settings, name, file, rows, tasks, images)
        figures.append(Figure(file, f"all methods on the bundled {images.names[0]}; {below}", free=True))
    return record(
        settings, name, clock, model=settings.model or ", ".join(part.subject.model for part in PARTS),
        figures=figures, notes=list(dict.fromkeys(said)),
    )  # fmt: skip


def draw(
    settings: Settings, name: str, file: str, rows: Sequence[NamedMethod], tasks: Sequence[BaseTask], images: Images
) -> None:
    """A row a task: truth, measurement, every method, each with a zoom."""
    grid = [
        (task.name, panels(settings, images, task, rows, number % len(images)))
        for number, task in enumerate(progress_bar(tasks, desc=file, unit="task"))
    ]
    save_grid(settings.folder(name) / file, heads(rows), grid, zoom=True)
