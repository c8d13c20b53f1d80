"""The paper's comparison: every method in every task, ours beside the published; Tables 1 and 2, and the large ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from firm.baselines.methods import Networks, available, baseline_names
from firm.evaluation.methods import NamedMethod
from firm.reproduce import published
from firm.reproduce.evaluations import Summary, methods, scores, test_images
from firm.reproduce.pictures import counted
from firm.reproduce.published import METRICS, Scores
from firm.reproduce.record import Clock, record
from firm.reproduce.settings import AFHQ, CELEBA, Settings, Subject
from firm.reproduce.tables import Line, Table, Value, metric_columns
from firm.tasks import BaseTask, Task, tables

STEPS = (2, 4, 10, 25)
QUICK_METHODS = "pnp-hqs,ista-net,pnp-flow1"  # with ten faces on two cores, minutes
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
    table = beside(f"{counted(images)} of {subject.title}", summary, rows, chosen.paper(), chosen.deviations)
    return record(
        settings, name, clock, images=len(images), model=settings.model or subject.model, tables=[table],
        notes=[*notes(subject), *missing], numbers={"summary": summary},
    )  # fmt: skip


def baselines(settings: Settings, subject: Subject, usual: str, quick: str = QUICK_METHODS) -> tuple[str, list[str]]:
    """The baselines to run, and a note on those left out: asked for ones must be there, usual ones are if they can."""
    if settings.methods is not None:
        return "" if settings.methods == "none" else settings.methods, []
    names = baseline_names(quick if settings.quick else usual)
    there = available(names, Networks(settings.device, settings.precision, settings.weights, subject.networks))
    absent = [name for name in names if name not in there]
    note = f"no networks for {subject.title} here, so left out: {', '.join(absent)} (docs/baselines.md trains them)"
    return ",".join(there), [note] if absent else []


def require(rows: list[NamedMethod], tasks: list[BaseTask]) -> None:
    """Load every network: what is missing is said before any work."""
    for method in rows:
        for task in tasks:
            method.on(task)


def notes(subject: Subject) -> list[str]:
    """What differs from the paper in all of these tables."""
    return [
        f"the test images are the first ones of our part of {subject.title}, not the paper's: a guide, not an equality",
        "one network for all tasks, and baselines' networks of 8 M parameters, trained for minutes; "
        "the paper has one of 34.5 M or more for each task, trained for days",
    ]


def beside(title: str, summary: Summary, rows: list[NamedMethod], paper: Scores, deviations: bool = False) -> Table:
    """The table: one line a method, the three metrics of every task."""
    lines = []
    for method in rows:
        label = "Degraded" if method.label == "degraded" else method.label
        ours: dict[str, Value] = {}
        for task, found in summary.items():
            if method.label in found:
                values = found[method.label]
                for metric in METRICS:
                    mean = values[metric]
                    ours[f"{task} {metric}"] = (mean, values[f"{metric}_std"]) if deviations else mean
        theirs = {f"{task} {m}": value for task, row in paper.get(label, {}).items() for m, value in row.items()}
        lines.append(Line(label, ours, dict(theirs)))
    return Table(title, metric_columns(list(summary)), lines)
