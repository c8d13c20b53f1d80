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
    paper: str  # which table or figure, by its printed number
    title: str
    module: str  # in firm.reproduce
    quick: float  # minutes with --quick, measured on two cores of an AMD EPYC
    full: float  # minutes in full on one H200
    data: tuple[str, ...] = ()  # the data sets it needs
    options: tuple[str, ...] = ()  # beyond those that all studies have
    after: tuple[str, ...] = ()  # studies whose results it reads
    trains: bool = False  # in full, networks of its own
    measured: str = ""  # where `full` was, beside other work: "H200", or "EPYC", two cores; "" for an estimate
    without: str = ""  # a method that is run in full, but not counted: nobody has timed it there

    def run(self, settings: Any) -> dict[str, Any]:
        """Run it with `firm.reproduce.settings.Settings`; a missing data set is said before any work."""
        from firm._util.locks import folder_lock

        require_data([self], {"celeba": settings.celeba, "afhq": settings.afhq})
        with folder_lock(settings.folder(self.name)):
            results: dict[str, Any] = import_module(f"firm.reproduce.{self.module}").study(settings, self.name)
        return results


ROWS = ("methods", "steps", "limit", "model", "weights", "batch", "precision")
PICTURES = ("methods", "steps", "model", "weights", "precision")  # one image a task
TIMES = ("methods", "steps", "model", "weights", "images", "batches", "modes", "skip")
TRAINED = ("limit", "batch", "precision")
SAMPLES = ("steps", "S", "limit", "model", "precision")
FACES, CATS, BOTH = ("celeba",), ("afhq",), ("celeba", "afhq")

STUDIES = (
    Study("celeba", "Table 1", "ten methods beside FIRM in five tasks, CelebA", "comparison", 5.9, 25, FACES, ROWS),
    Study("celeba-1000", "Table 11", "1000 faces, standard deviations", "comparison", 5.9, 22, FACES, ROWS),
    Study("afhq", "Table 2", "the comparison on AFHQ-Cat", "comparison", 3, 1, CATS, ROWS, measured="H200"),
    Study("afhq-400", "Table 12", "400 cats, with standard deviations", "comparison", 3, 5, CATS, ROWS),
    Study("cost", "Table 3", "seconds, memory, calls of every method", "cost", 0.8, 4.4, FACES, TIMES,
          without="D-Flow"),
    Study("pareto", "Figure 10", "quality against time", "pareto", 0.1, 0.08, after=("celeba", "cost"),
          measured="EPYC"),
    Study("steps", "Figures 3, 7, 8, 11-13", "PSNR against LPIPS over the number of steps", "steps", 3.2, 5, BOTH,
          ("steps", "limit", "model", "batch", "precision")),
    Study("ablation-k", "Table 4", "iteration depth K = 3, 5, 7", "ablation", 0.1, 5, FACES, TRAINED, (), True),
    Study("ablation-beta", "Table 8", "damping beta = 0.25 to 1", "ablation", 0.1, 7, FACES, TRAINED, (), True),
    Study("ablation-solver", "Table 9", "one call or the solver", "ablation", 0.1, 4, FACES, TRAINED, (), True),
    Study("mismatch", "Tables 5, 6, Figure 6", "other noise and other masks", "mismatch", 0.4, 1.8, FACES, ROWS,
          measured="H200"),
    Study("qualitative", "Figures 1, 2", "all methods side by side, with zooms", "qualitative", 0.9, 1.2, BOTH,
          PICTURES, without="D-Flow"),
    Study("errors", "Figure 9", "error maps in the five tasks", "errors", 1.7, 3.5, FACES, ROWS, measured="H200"),
    Study("posterior", "Figures 14, 15", "samples of one measurement, deviation", "posterior", 0.4, 0.2, FACES,
          SAMPLES),
    Study("trajectory", "Figure 16", "the solver's iterates in every step", "trajectory", 0.1, 0.03, FACES,
          ("N", "model", "precision"), measured="EPYC"),
    Study("fourier", "Table 13, Figure 17", "compressed sensing on AFHQ-Cat", "fourier", 0.3, 0.17, CATS, ROWS,
          measured="H200"),
    Study("toy", "Table 10, Figures 4, 5", "posterior recovery, known answer", "toy", 0.1, 3, (), ("seed", "training"),
          trains=True, measured="EPYC"),
    Study("calibration", "beyond", "how often samples cover the truth", "calibration", 0.9, 4.5, FACES, SAMPLES,
          measured="H200"),
    Study("collapse", "beyond", "weights of the times, and large N", "collapse", 0.1, 5, FACES, TRAINED, (), True),
    Study("portrait", "beyond", "five tasks on a picture that may be shown", "portrait", 0.2, 0.1, (),
          ("model", "N", "samples", "seed")),
)  # fmt: skip


def find(name: str) -> Study:
    """A study by its name."""
    return next(study for study in STUDIES if study.name == name)


def require_data(studies: list[Study], given: dict[str, Path | None]) -> None:
    """Whether the data sets were given, and are there in the layout they should have; else all that is wrong."""
    wrong = []
    for dataset, layout in LAYOUTS.items():
        users, folder = [study.name for study in studies if dataset in study.data], given[dataset]
        if not users:
            continue
        if folder is None:
            wrong.append(f"{', '.join(users)} {'needs' if len(users) == 1 else 'need'} {layout}")
            continue
        from firm.data.sets import named_files

        known: Any = dataset
        try:
            named_files(known, folder, "test")
        except (ValueError, OSError) as error:
            wrong.append(f"{error} ({layout})")
    if wrong:
        raise ValueError("; ".join(wrong))
