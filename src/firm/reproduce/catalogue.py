"""Every table and figure of the paper, and what goes beyond it: what each needs, and how long it takes."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

LAYOUTS = {
    "celeba": "CelebA, --data DIR: a folder with img_align_celeba/NNNNNN.jpg and list_eval_partition.txt",
    "afhq": "AFHQ, --afhq DIR: a folder with the pictures in train/cat, val/cat and test/cat",
}


@dataclass(frozen=True)
class Study:
    """One item of ``firm reproduce``. Its module has a function ``study(settings, name)`` that runs it."""

    name: str
    paper: str  # which table or figure
    title: str
    module: str  # in firm.reproduce
    quick: float  # minutes with --quick, measured on two cores of an AMD EPYC
    full: float  # minutes in full, on one H200
    data: tuple[str, ...] = ()  # the data sets it needs
    options: tuple[str, ...] = ()  # beyond those that all studies have
    after: tuple[str, ...] = ()  # studies whose results it reads

    def run(self, settings: Any) -> dict[str, Any]:
        """Run it with `firm.reproduce.settings.Settings`; a missing data set is said before any work."""
        require_data([self], {"celeba": settings.celeba, "afhq": settings.afhq})
        results: dict[str, Any] = import_module(f"firm.reproduce.{self.module}").study(settings, self.name)
        return results


ROWS = ("methods", "steps", "limit", "model", "weights", "batch", "precision")
TIMES = ("methods", "steps", "model", "weights", "images", "batches", "modes", "skip")

STUDIES = (
    Study("celeba", "Table 1", "ten methods beside FIRM in five tasks, CelebA", "comparison", 6, 6, ("celeba",), ROWS),
    Study("celeba-1000", "large table", "1000 faces, standard deviations", "comparison", 6, 60, ("celeba",), ROWS),
    Study("afhq", "Table 2", "the comparison on AFHQ-Cat", "comparison", 6, 6, ("afhq",), ROWS),
    Study("afhq-400", "large table", "400 cats, with standard deviations", "comparison", 6, 60, ("afhq",), ROWS),
    Study("cost", "efficiency table", "seconds, memory, calls of every method", "cost", 1, 6, ("celeba",), TIMES),
    Study("pareto", "figure", "quality against time", "pareto", 0.1, 0.1, after=("celeba", "cost")),
    Study("toy", "toy table, 2 figures", "posterior recovery, known answer", "toy", 0.3, 3, (), ("seed", "training")),
    Study("portrait", "beyond", "five tasks on a picture that may be shown", "portrait", 0.3, 0.1, (),
          ("model", "N", "samples", "seed")),
    Study("posterior", "2 figures", "samples of one measurement, their deviation", "posterior", 0.7, 0.2, ("celeba",),
          ("steps", "S", "limit", "model", "precision")),
    Study("trajectory", "figure", "the solver's iterates in every step", "trajectory", 0.1, 0.1, ("celeba",),
          ("N", "model", "precision")),
    Study("calibration", "beyond", "are the samples a posterior: coverage", "calibration", 2.5, 6, ("celeba",),
          ("steps", "S", "limit", "model", "precision")),
)  # fmt: skip


def find(name: str) -> Study:
    """A study by its name."""
    return next(study for study in STUDIES if study.name == name)


def require_data(studies: list[Study], given: dict[str, Path | None]) -> None:
    """Whether the data sets were given, and are there in the layout they should have; else all that is missing."""
    missing = []
    for dataset, layout in LAYOUTS.items():
        users = [study.name for study in studies if dataset in study.data]
        if users and given[dataset] is None:
            missing.append(f"{', '.join(users)} {'needs' if len(users) == 1 else 'need'} {layout}")
        elif users:
            from firm.data.named import named_files

            known: Any = dataset
            named_files(known, given[dataset] or Path(), "test")  # says what is wrong with the folder
    if missing:
        raise ValueError("; ".join(missing))
