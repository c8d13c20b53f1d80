"""The paper's comparison: every method in every task, ours beside the published; Tables 1 and 2, and the large ones."""

from typing import Any, NamedTuple

from experiments import published, shared
from experiments.shared import AFHQ, CELEBA, Settings, Subject
from firm.tasks import Task, tables

STEPS = (2, 4, 10, 25)
LARGE_METHODS = "ot-ode,pnp-flow,flower"  # of the paper's large tables


class Comparison(NamedTuple):
    """One of the paper's four tables."""

    subject: Subject
    images: int
    paper: published.Scores
    methods: str
    deviations: bool = False
    quick: tuple[int, ...] = (2, 10)  # FIRM's N


TABLES = {
    "celeba": Comparison(CELEBA, 100, published.CELEBA, "all"),
    "celeba-1000": Comparison(CELEBA, 1000, published.CELEBA_1000, LARGE_METHODS, deviations=True),
    "afhq": Comparison(AFHQ, 100, published.AFHQ, "all", quick=(2, 4)),
    "afhq-400": Comparison(AFHQ, 400, published.AFHQ_400, LARGE_METHODS, deviations=True, quick=(2, 4)),
}


def study(settings: Settings, name: str) -> dict[str, Any]:
    """Evaluate what is not there yet; write and print the table."""
    subject, count, paper, usual, deviations, quick = TABLES[name]
    steps = settings.steps or (quick if settings.quick else STEPS)
    names, missing = shared.baselines(settings, subject, usual)
    tasks = [Task(task, subject.size) for task in tables()]
    rows = shared.methods(settings, subject, names, steps, tasks)
    images = shared.test_images(settings, subject, settings.images(count))
    summary = shared.scores(settings, subject, tasks, rows, images)
    table = shared.beside(shared.of(images, subject), summary, rows, paper, deviations)
    return shared.record(
        settings, name, images=len(images), model=settings.model or subject.model, tables=[table],
        notes=[*shared.differences(settings, subject), *missing], numbers={"summary": summary},
    )  # fmt: skip
