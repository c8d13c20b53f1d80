"""Every table and figure of the paper, and what goes beyond it: what each needs, how long it takes, and how to run it.

This file loads no torch, so that ``firm reproduce list`` is there at once.
"""

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from firm._util.checks import require
from firm._util.files import folder_lock, is_full

LAYOUTS = {
    "celeba": "CelebA, --data DIR: a folder with img_align_celeba/NNNNNN.jpg and list_eval_partition.txt",
    "afhq": "AFHQ, --afhq DIR: a folder with the pictures in train/cat, val/cat and test/cat",
}
DATA_OPTIONS = {"celeba": "--data", "afhq": "--afhq"}
RESULTS = "results.json"  # what every study writes to its folder
KEYS = {  # what is in it
    "study": str, "command": str, "quick": bool, "images": int | None, "model": str | None, "seed": int,
    "seconds": float | int, "machine": dict, "tables": list, "figures": list, "notes": list, "numbers": dict,
}  # fmt: skip


@dataclass(frozen=True)
class Study:
    """One item of ``firm reproduce``. Its file has a function ``study(settings, name)`` that runs it."""

    name: str
    paper: str  # which table or figure, by its printed number
    title: str
    file: str  # below experiments, as a module
    quick: float  # minutes with --quick, measured on two cores of an AMD EPYC
    full: float  # minutes in full on one H200
    data: tuple[str, ...] = ()  # the data sets it needs
    options: tuple[str, ...] = ()  # beyond those that all studies have
    after: tuple[str, ...] = ()  # studies whose results it reads
    trains: bool = False  # in full, networks of its own
    measured: str = ""  # where `full` was, beside other work: "H200", or "EPYC", two cores; "" for an estimate
    without: str = ""  # a method that is run in full, but not counted: nobody has timed it there

    def run(self, settings: Any) -> dict[str, Any]:
        """Run it with `experiments.shared.Settings`, alone in its folder."""
        with folder_lock(settings.folder(self.name)):
            study = import_module(f"experiments.{self.file}").study
            return study(replace(settings, started=time.perf_counter()), self.name)


ROWS = ("methods", "steps", "limit", "model", "weights", "batch_size", "precision")
PICTURES = ("methods", "steps", "model", "weights", "precision")  # one image a task
TIMES = ("methods", "steps", "model", "weights", "images", "batches", "modes", "skip")
TRAINED = ("limit", "batch_size", "precision")
SAMPLES = ("steps", "S", "limit", "model", "precision")
FACES, CATS, BOTH = ("celeba",), ("afhq",), ("celeba", "afhq")
TABLE, ABLATION = "celeba.study", "ablations.study"

STUDIES = (
    Study("celeba", "Table 1", "ten methods beside FIRM in five tasks, CelebA", TABLE, 5.9, 25, FACES, ROWS),
    Study("celeba-1000", "Table 11", "1000 faces, standard deviations", TABLE, 5.9, 22, FACES, ROWS),
    Study("afhq", "Table 2", "the comparison on AFHQ-Cat", TABLE, 3, 1, CATS, ROWS, measured="H200"),
    Study("afhq-400", "Table 12", "400 cats, with standard deviations", TABLE, 3, 5, CATS, ROWS),
    Study("cost", "Table 3", "seconds, memory, calls of every method", "cost.study", 0.8, 4.4, FACES, TIMES,
          without="D-Flow"),
    Study("pareto", "Figure 10", "quality against time", "cost.pareto", 0.1, 0.08, after=("celeba", "cost"),
          measured="EPYC"),
    Study("steps", "Figures 3, 7, 8, 11-13", "PSNR against LPIPS over the number of steps", "steps.study", 3.2, 5, BOTH,
          ("steps", "limit", "model", "batch_size", "precision")),
    Study("ablation-k", "Table 4", "iteration depth K = 3, 5, 7", ABLATION, 0.1, 5, FACES, TRAINED, (), True),
    Study("ablation-beta", "Table 8", "damping beta = 0.25 to 1", ABLATION, 0.1, 7, FACES, TRAINED, (), True),
    Study("ablation-solver", "Table 9", "one call or the solver", ABLATION, 0.1, 4, FACES, TRAINED, (), True),
    Study("mismatch", "Tables 5, 6, Figure 6", "other noise and other masks", "mismatch.study", 0.4, 1.8, FACES, ROWS,
          measured="H200"),
    Study("qualitative", "Figures 1, 2", "all methods side by side, with zooms", "qualitative.study", 0.9, 1.2, BOTH,
          PICTURES, without="D-Flow"),
    Study("errors", "Figure 9", "error maps in the five tasks", "errors.study", 1.7, 3.5, FACES, ROWS, measured="H200"),
    Study("posterior", "Figures 14, 15", "samples of one measurement, deviation", "posterior.study", 0.4, 0.2, FACES,
          SAMPLES),
    Study("trajectory", "Figure 16", "the solver's iterates in every step", "trajectory.study", 0.1, 0.03, FACES,
          ("N", "model", "precision"), measured="EPYC"),
    Study("fourier", "Table 13, Figure 17", "compressed sensing on AFHQ-Cat", "fourier.study", 0.3, 0.17, CATS, ROWS,
          measured="H200"),
    Study("toy", "Table 10, Figures 4, 5", "posterior recovery, known answer", "toy.study", 0.1, 3, (),
          ("seed", "training"), trains=True, measured="EPYC"),
    Study("toy-photons", "beyond", "the same with photon noise, known answer", "toy_photons.study", 0.1, 6, (),
          ("seed", "training"), trains=True),
    Study("calibration", "beyond", "how often samples cover the truth", "calibration.study", 0.9, 4.5, FACES, SAMPLES,
          measured="H200"),
    Study("collapse", "beyond", "weights of the times, and large N", "ablations.collapse", 0.1, 5, FACES, TRAINED, (),
          True),
    Study("portrait", "beyond", "five tasks on a picture that may be shown", "portrait.study", 0.2, 0.1, (),
          ("model", "N", "samples", "seed")),
    Study("blind-deblurring", "beyond", "unknown blur, estimated kernels", "blind_deblurring.study", 0.9, 3, (),
          ("pictures", "model", "N", "limit", "precision")),
)  # fmt: skip


def command(name: str, given: dict[str, Any]) -> list[str]:
    """Do what ``firm reproduce NAME`` should with the options given; return the names of the studies that failed."""
    if name == "list":
        overview(given["out"])
        return []
    if name == "report":
        from experiments.report import write_report

        write_report(given["out"], given["page"] or given["out"] / "report.html", given["free_only"])
        return []
    from experiments.shared import Settings

    settings = Settings.typed(given)
    studies = [study for study in STUDIES if name in (study.name, "all")]
    _require_data(studies, {"celeba": settings.celeba, "afhq": settings.afhq})
    _announce(studies, settings)
    if name == "all":
        return _run_all(studies, settings)
    studies[0].run(settings)
    return []


def _run_all(studies: Sequence[Study], settings: Any) -> list[str]:
    """Run the studies, then write the report; one that fails does not stop the others. Return those that failed."""
    from experiments.report import write_report

    console, failed = Console(highlight=False, markup=False), list[str]()
    for number, study in enumerate(studies, start=1):
        console.rule(f"{number} of {len(studies)}: {study.name}", align="left")
        try:
            study.run(settings)
        except (ValueError, OSError, RuntimeError) as error:
            if is_full(error):
                raise  # the others would find no room either
            console.print(f"{study.name} failed: {error}")
            failed.append(study.name)
    if len(failed) < len(studies):
        write_report(settings.out, settings.out / "report.html")
    if failed:
        console.print(f"failed: {', '.join(failed)}")
    return failed


def _require_data(studies: Sequence[Study], given: dict[str, Path | None]) -> None:
    """Check that the data sets were given and have the layout they should have; name all that is wrong at once."""
    wrong = []
    for dataset, layout in LAYOUTS.items():
        users, folder = [study.name for study in studies if dataset in study.data], given[dataset]
        if users and folder is None:
            wrong.append(f"{', '.join(users)} {'needs' if len(users) == 1 else 'need'} {layout}")
        elif users:
            from firm.data.sets import named_files

            try:
                named_files(dataset, folder, "test")
            except (ValueError, OSError) as error:
                wrong.append(f"{error} ({layout})")
    require(not wrong, "; ".join(wrong))


class DamagedError(ValueError):
    """The results of a study cannot be read."""


def _announce(studies: Sequence[Study], settings: Any) -> None:
    """Say what will be run and how long it should take: as it took here before, else as where it was measured."""
    console, total = Console(highlight=False, markup=False), 0.0
    for study in studies:
        took, source = study.quick if settings.quick else study.full, _elsewhere(study, settings.quick)
        with suppress(DamagedError):
            found = read_record(settings.folder(study.name))
            if found is not None and found["quick"] == settings.quick:
                took = found["seconds"] / 60
                source = f"took {minutes(took)} here before"
        total += took
        console.print(f"{study.name} ({study.paper}): {study.title}; {source}")
    if len(studies) > 1:
        console.print(f"{len(studies)} studies, about {minutes(total)} in all")


def _elsewhere(study: Study, quick: bool) -> str:
    if quick or study.measured:
        where = "two cores of an AMD EPYC" if quick or study.measured == "EPYC" else "one H200"
        return f"about {minutes(study.quick if quick else study.full)} on {where}"
    more = f", and {study.without}, which nobody has timed there" if study.without else ""
    return f"estimated at {minutes(study.full)} on one H200{more}"


def overview(out: Path) -> None:
    """Print every study: what it is in the paper, how long it takes, whether it was run in `out`, what it shows."""
    require(not out.exists() or out.is_dir(), f"{out} is a file, not the folder of the studies", NotADirectoryError)
    console = Console(highlight=False)
    rows = [("name", "in the paper", "--quick", "in full", "run here")]
    for s in STUDIES:
        try:
            found = read_record(out / s.name)
            run = "-" if found is None else state(found)
        except DamagedError:
            run = "damaged"
        rows.append((s.name, s.paper, minutes(s.quick), f"{'' if s.measured else '~'}{minutes(s.full)}", run))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    below = ["", *[f"    {study.title}{_needs(study)}" for study in STUDIES]]
    for (name, paper, *times, run), shown in zip(rows, below, strict=True):
        cells = [name.ljust(widths[0]), paper.ljust(widths[1]), *map(str.rjust, times, widths[2:4]), run]
        console.print(Text("  ".join(cells), "" if shown else "bold").append(shown and f"\n{shown}", "dim"))
    elsewhere = ", ".join(study.name for study in STUDIES if study.measured == "EPYC")
    console.print(
        "\n--quick: ten images, measured on two cores of an AMD EPYC. In full: for one H200, with trainings; ~ is an "
        f"estimate, the others were measured beside other work ({elsewhere} on the two cores). Studies marked + D-Flow "
        "take longer in full than the time shown, which does not include that method: it is slow, and was not timed in "
        "them. To leave it out, name the others with --methods."
    )
    for layout in LAYOUTS.values():
        console.print(layout)


def _needs(study: Study) -> str:
    needs = [DATA_OPTIONS[dataset] for dataset in study.data]
    needs += [f"the results of {' and '.join(study.after)}"] if study.after else []
    said = ["trains"] * study.trains + [f"needs {', '.join(needs)}"] * bool(needs)
    said += [f"+ {study.without}"] if study.without else []
    return f" ({'; '.join(said)})" if said else ""


def state(record: dict[str, Any]) -> str:
    """How a study was run, and how long it took."""
    return f"{'quick' if record['quick'] else 'full'}, {minutes(record['seconds'] / 60)}"


def minutes(value: float) -> str:
    """A time as people say it."""
    return f"{value * 60:.0f} s" if value < 0.95 else f"{value:.0f} min" if value < 90 else f"{value / 60:.1f} h"


def read_record(folder: Path) -> dict[str, Any] | None:
    """Read the results in a study's folder; None where it has not been run; a damaged file is an error that says so."""
    path, found = folder / RESULTS, None
    if not path.is_file():
        return None
    with suppress(ValueError):
        found = json.loads(path.read_bytes())
    whole = isinstance(found, dict) and all(isinstance(found.get(key, ...), kind) for key, kind in KEYS.items())
    require(whole, f"{path} is damaged, or of another version of firm: run the study again", DamagedError)
    return found
