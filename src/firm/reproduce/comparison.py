"""The paper's comparison: every method in every task, ours beside the published; Tables 1 and 2, and the large ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from firm._util.text import counted
from firm.reproduce import published
from firm.reproduce.evaluations import methods, scores, test_images
from firm.reproduce.published import Scores
from firm.reproduce.record import Clock, record
from firm.reproduce.rows import baselines, beside, notes, require
from firm.reproduce.settings import AFHQ, CELEBA, Settings, Subject
from firm.tasks import Task, tables

STEPS = (2, 4, 10, 25)
LARGE_METHODS = "ot-ode,pnp-flow,flower"  # of the paper's large tables


@dataclass(frozen=True)
class Comparison:
    """One of the paper's four tables."""

    subject: Subject
    images: int
    paper: Callable[[], Scores]
    methods: str
    deviations: bool = False
    quick: tuple[int, ...] = (2, 10)  # FIRM's N


TABLES = {
    "celeba": Comparison(CELEBA, 100, published.celeba, "all"),
    "celeba-1000": Comparison(CELEBA, 1000, published.celeba_1000, LARGE_METHODS, deviations=True),
    "afhq": Comparison(AFHQ, 100, published.afhq, "all", quick=(2, 4)),
    "afhq-400": Comparison(AFHQ, 400, published.afhq_400, LARGE_METHODS, deviations=True, quick=(2, 4)),
}


def study(settings: Settings, name: str) -> dict[str, Any]:
    """Evaluate what is not there yet; write and print the table."""
    clock, chosen = Clock(), TABLES[name]
    subject = chosen.subject
    names, missing = baselines(settings, subject, chosen.methods)
    rows = methods(settings, subject, names, settings.steps or (chosen.quick if settings.quick else STEPS))
    tasks = [Task(task, subject.size) for task in tables()]
    require(rows, tasks)
    images = test_images(settings, subject, settings.images(chosen.images))
    summary = scores(settings, subject, tasks, rows, images)
    table = beside(f"{counted(len(images))} of {subject.title}", summary, rows, chosen.paper(), chosen.deviations)
    return record(
        settings, name, clock, images=len(images), model=settings.model or subject.model, tables=[table],
        notes=[*notes(settings, subject), *missing], numbers={"summary": summary},
    )  # fmt: skip
