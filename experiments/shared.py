"""What the studies share: their settings, rows, scores and panels, and the record that each of them leaves."""

import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from experiments.catalog import LAYOUTS, RESULTS
from experiments.figures import Panel
from experiments.published import METRICS, Scores
from experiments.tables import Line, Table, latex, markdown, metric_columns, terminal
from firm import Firm, fast, load
from firm._util.checks import counted, numbers, require
from firm._util.files import write_atomically
from firm._util.machine import choose_device, default_device, describe_machine
from firm.baselines.catalog import baseline_names
from firm.baselines.weights import Networks, available
from firm.data import cat, load_images, portrait
from firm.data.images import Images
from firm.evaluation import Evaluation, NamedMethod, evaluate, methods_for
from firm.evaluation.report import summarize
from firm.evaluation.run import measure_chunk, restore_chunk, score_images
from firm.tasks import BaseTask

SEED = 42  # of the measurements and of the starting noise, as in the paper
QUICK_IMAGES = 10
QUICK_METHODS = "pnp-hqs,ista-net,pnp-flow1"  # with ten faces on two cores, minutes
ABSENT = "does not apply"  # a method that does not do a task
DIGITS = {"psnr": 2, "ssim": 3, "lpips": 3, "mae": 4}
Summary = dict[str, dict[str, dict[str, Any]]]  # task -> method -> numbers


@dataclass(frozen=True)
class Subject:
    """A data set of the paper: its name, the side of its images, our model for it, and its baselines' networks."""

    dataset: str
    size: int
    model: str
    networks: str  # the beginning of the names of its baselines' networks
    title: str


CELEBA = Subject("celeba", 128, "face-128", "face", "CelebA")
AFHQ = Subject("afhq", 256, "cat-256", "cat", "AFHQ-Cat")


@dataclass(frozen=True)
class Settings:
    """Given by the user, the same for every study. A study NAME writes to ``out/NAME``."""

    out: Path = Path("outputs")
    celeba: Path | None = None  # folder of CelebA
    afhq: Path | None = None  # folder of AFHQ
    quick: bool = False  # ten images, nothing is trained
    limit: int | None = None  # how many test images, where not the study's own number
    steps: Sequence[int] | None = None  # FIRM's N, where not the study's own
    methods: str | None = None  # baselines, where not the study's own
    model: str | None = None  # instead of the bundled one
    weights: Path | None = None  # folder of the baselines' networks
    batch_size: int = 50  # images at once on a GPU
    precision: Any = "auto"
    device: torch.device = field(default_factory=default_device)
    command: str = ""  # as it was typed
    extra: Mapping[str, Any] = field(default_factory=dict)  # options that only one study has
    started: float = field(default_factory=time.perf_counter)  # when the study began

    @classmethod
    def typed(cls, given: dict[str, Any]) -> "Settings":
        """The settings that the options of the command line ask for."""
        values = {key: value for key, value in given.items() if value is not None}
        values["device"] = choose_device(given["device"])
        for key in {"steps", "batches"} & values.keys():
            values[key] = numbers(values[key], f"--{key}")
        for key in {"modes", "skip"} & values.keys():
            values[key] = [part.strip() for part in values[key].split(",") if part.strip() not in ("", "none")]
        extra = {key: values.pop(key) for key in values.keys() - {f.name for f in fields(cls)}}
        return cls(**values, extra=extra, command=shlex.join(["firm", *sys.argv[1:]]))

    def folder(self, study: str) -> Path:
        """Where a study writes."""
        return self.out / study

    def seconds(self) -> float:
        """Seconds since the study began, to a tenth."""
        return round(time.perf_counter() - self.started, 1)

    def images(self, full: int, quick: int = QUICK_IMAGES) -> int:
        """How many test images: what was given, fewer where it is to be quick, else the study's own number."""
        return self.limit or (min(quick, full) if self.quick else full)

    def data(self, subject: Subject) -> Path:
        """The folder of a data set."""
        found = self.celeba if subject.dataset == "celeba" else self.afhq
        require(found is not None, f"this needs {LAYOUTS[subject.dataset]}")
        return found


def test_images(settings: Settings, subject: Subject, count: int) -> Images:
    """Load the first test images of a data set."""
    return load_images(subject.dataset, settings.data(subject), "test", size=subject.size, limit=count)


def free_images(subject: Subject) -> Images:
    """A picture like those of the data set that may be published: the bundled portrait, or the bundled cat."""
    return Images(*((portrait(), ["portrait"]) if subject.dataset == "celeba" else (cat(), ["cat"])))


def firm_model(settings: Settings, subject: Subject) -> Firm:
    """Our model for a data set, or the one given, made fast on the device."""
    return fast(load(settings.model or subject.model).to(settings.device), settings.precision)


def baselines(
    settings: Settings, subject: Subject, usual: str, quick: str = QUICK_METHODS, must: bool = True
) -> tuple[list[str], list[str]]:
    """Choose the baselines, and note those left out: usual ones are run where there are networks for them.

    Those asked for `must` be there (loading their networks says what is missing); else they are left out as well.
    """
    asked = settings.methods
    if asked in ("", "none") or not (asked or usual):
        return [], []
    if asked is not None and must:
        return asked.split(","), []
    names = baseline_names(asked or (quick if settings.quick else usual))
    there = available(names, Networks(settings.device, settings.precision, settings.weights, subject.networks))
    absent = [name for name in names if name not in there]
    note = f"no networks for {subject.title} here, so left out: {', '.join(absent)} (docs/baselines.md trains them)"
    return list(there), [note] if absent else []


def methods(
    settings: Settings, subject: Subject, names: Sequence[str], steps: Sequence[int], tasks: Sequence[BaseTask] = ()
) -> list[NamedMethod]:
    """The rows that ``firm evaluate`` has for these names: degraded, the baselines, FIRM with each N.

    All networks are loaded for the `tasks`: what is missing is said before any work.
    """
    rows = methods_for(
        [*names, settings.model or subject.model],
        steps,
        load=lambda name: fast(load(name, device=settings.device), settings.precision),
        networks=Networks(settings.device, settings.precision, settings.weights, subject.networks),
    ).rows
    for row in rows:
        for task in tasks:
            row.on(task)
    return [row for row in rows if row.label != "data-consistency"]


def scores(
    settings: Settings,
    subject: Subject,
    tasks: Sequence[BaseTask],
    rows: Sequence[NamedMethod],
    images: Images,
    variant: str = "",
) -> Summary:
    """Mean and deviation of every metric, summary[task][method]; only what is not there yet is computed.

    What one study has restored, the next finds in ``OUT/evaluations``. Tasks with settings other than the paper's have
    a folder there of their own, told apart by `variant`.
    """
    evaluation = Evaluation(images, tasks, "tables", SEED, {"dataset": subject.dataset}, settings.device)
    folder = "-".join(filter(None, (subject.dataset, str(len(images)), variant)))
    summary = summarize(
        evaluate(evaluation, rows, settings.folder("evaluations") / folder, batch_size=settings.batch_size)
    )
    return {task.name: summary[task.name] for task in tasks if task.name in summary}  # whatever was computed first


def beside(title: str, summary: Summary, rows: Sequence[NamedMethod], paper: Scores, deviations: bool = False) -> Table:
    """A table of one line a method with the three metrics of every task, the paper's beside ours."""
    lines = []
    for method in rows:
        label = "Degraded" if method.label == "degraded" else method.label
        ours = {
            f"{task} {metric}": (row[metric], row[f"{metric}_std"]) if deviations else row[metric]
            for task, found in summary.items() if (row := found.get(method.label)) for metric in METRICS
        }  # fmt: skip
        theirs = {f"{task} {m}": value for task, row in paper.get(label, {}).items() for m, value in row.items()}
        lines.append(Line(label, ours, theirs))
    return Table(title, metric_columns(list(summary)), lines)


def differences(settings: Settings, subject: Subject) -> list[str]:
    """What differs from the paper in all tables with its methods."""
    theirs = "the paper has one of 34.5 M or more for each task, trained for one to two days on 4 GPUs"
    ours = "our networks have 8 M parameters and minutes of training"
    return [
        f"the test images are the first ones of our part of {subject.title}, not the paper's: a guide, not an equality",
        f"{ours}, and FIRM's is one for all tasks (ISTA-Net's have the paper's size); {theirs}"
        if settings.model is None
        else f"FIRM's rows are those of {settings.model}; {theirs}",
        'metrics by the convention "tables" (docs/evaluation.md)',
    ]


def panels(
    settings: Settings,
    images: Images,
    task: BaseTask,
    rows: Sequence[NamedMethod],
    index: int = 0,
    metrics: Sequence[str] = METRICS,
) -> list[Panel]:
    """The truth, then what every method makes of it as in the tables, with its `metrics` below."""
    evaluation, chunk = Evaluation(images, [task], "tables", SEED, device=settings.device), range(index, index + 1)
    measured = measure_chunk(evaluation, task, chunk)
    found = [Panel(images.batch(chunk)[0])]
    for method in rows:
        settled = method.on(task)
        if settled is None:
            found.append(Panel(None, ABSENT))
            continue
        restored = restore_chunk(evaluation, task, settled, chunk, measured)
        (score,) = score_images(evaluation, task, settled, restored, slice(1))
        found.append(Panel(restored.x[0], label(score, metrics)))
    return found


def heads(rows: Sequence[NamedMethod]) -> list[str]:
    """The names over the columns that `panels` makes; the row "degraded" is the measurement."""
    return ["truth", *("measurement" if method.label == "degraded" else method.label for method in rows)]


def label(values: Mapping[str, float], metrics: Sequence[str]) -> str:
    """Numbers as they stand below a panel."""
    return " / ".join(f"{values[metric]:.{DIGITS[metric]}f}" for metric in metrics)


def of(images: Images, subject: Subject) -> str:
    """How many images of which data set, as titles say it."""
    return f"{counted(len(images))} of {subject.title}"


@dataclass(frozen=True)
class Figure:
    """A picture of a study, in its folder; whether it may be shown to others (faces and cats of data sets may not)."""

    file: str
    title: str
    free: bool = False


def record(
    settings: Settings,
    study: str,
    *,
    images: int | None = None,
    model: str | None = None,
    tables: Sequence[Table] = (),
    figures: Sequence[Figure] = (),
    notes: Sequence[str] = (),
    numbers: dict[str, Any] | None = None,
    seed: int = SEED,
    quick: bool | None = None,
) -> dict[str, Any]:
    """Write ``results.json``, ``table.md`` and ``table.tex`` to the study's folder, and print the tables.

    `notes` say what differs from the paper and why; `numbers` is whatever else was measured. `quick` is False in
    studies that do all they can with --quick too.
    """
    out = settings.folder(study)
    results: dict[str, Any] = {
        "study": study, "command": settings.command, "quick": settings.quick if quick is None else quick,
        "images": images, "model": model, "seed": seed, "seconds": settings.seconds(),
        "machine": describe_machine(settings.device), "tables": [asdict(table) for table in tables],
        "figures": [asdict(figure) for figure in figures], "notes": list(notes), "numbers": numbers or {},
    }  # fmt: skip
    if tables:
        text = [f"**{table.title}**\n\n{markdown(table)}" if len(tables) > 1 else markdown(table) for table in tables]
        write_atomically(out / "table.md", "\n".join(text))
        write_atomically(out / "table.tex", "\n".join(latex(table) for table in tables))
    write_atomically(out / RESULTS, json.dumps(results, indent=1))
    console = Console(highlight=False)
    for table in tables:
        console.print(terminal(table))
    for note in notes:
        console.print(f"* {note}", markup=False)
    kinds = [*(["table.md, table.tex"] if tables else []), *[figure.file for figure in figures], RESULTS]
    console.print(f"{study}: {settings.seconds():.0f} s; {', '.join(kinds)} in {out}", markup=False)
    return results
