"""The rows of a study's table: which baselines there are networks for, our numbers beside the paper's, what differs."""

from __future__ import annotations

from firm.baselines.catalog import baseline_names
from firm.baselines.weights import Networks, available
from firm.evaluation.methods import NamedMethod
from firm.reproduce.evaluations import Summary
from firm.reproduce.published import METRICS, Scores
from firm.reproduce.settings import Settings, Subject
from firm.reproduce.tables import Line, Table, Value, metric_columns
from firm.tasks import BaseTask

QUICK_METHODS = "pnp-hqs,ista-net,pnp-flow1"  # with ten faces on two cores, minutes


def baselines(
    settings: Settings, subject: Subject, usual: str, quick: str = QUICK_METHODS, must: bool = True
) -> tuple[str, list[str]]:
    """The baselines to run, and a note on those left out: usual ones where there are networks for them.

    Those asked for `must` be there (loading their networks says what is missing); else they are left out as well.
    """
    asked = settings.methods
    if asked in ("", "none"):
        return "", []
    if asked is not None and must:
        return asked, []
    names = baseline_names(asked or (quick if settings.quick else usual))
    there = available(names, Networks(settings.device, settings.precision, settings.weights, subject.networks))
    absent = [name for name in names if name not in there]
    note = f"no networks for {subject.title} here, so left out: {', '.join(absent)} (docs/baselines.md trains them)"
    return ",".join(there), [note] if absent else []


def require(rows: list[NamedMethod], tasks: list[BaseTask]) -> None:
    """Load every network: what is missing is said before any work."""
    for method in rows:
        for task in tasks:
            method.on(task)


def notes(settings: Settings, subject: Subject) -> list[str]:
    """What differs from the paper in all of these tables."""
    theirs = "the paper has one of 34.5 M or more for each task, trained for one to two days on 4 GPUs"
    ours = "our networks have 8 M parameters and minutes of training"
    return [
        f"the test images are the first ones of our part of {subject.title}, not the paper's: a guide, not an equality",
        f"{ours}, and FIRM's is one for all tasks (ISTA-Net's have the paper's size); {theirs}"
        if settings.model is None
        else f"FIRM's rows are those of {settings.model}; {theirs}",
        'metrics by the convention "tables" (docs/evaluation.md)',
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
