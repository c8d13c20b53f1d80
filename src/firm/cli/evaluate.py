"""``firm evaluate``: the paper's protocol on CelebA, AFHQ or a folder of your own."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firm._sampling import Integrator
from firm._util.terminal import printable
from firm.cli.options import SEED, Device, Iterations, Key, MaxMegapixels, Precision, Quality, user_errors
from firm.data.load import ImageSet
from firm.data.sets import Split
from firm.metrics import Convention
from firm.tasks import built_in

if TYPE_CHECKING:
    from firm.data import Images
    from firm.evaluation import Methods

STEPS = "1,2,4,10,25"  # the paper's


# fmt: off
Tasks = Annotated[str, typer.Option(
    help=f"Comma-separated: {', '.join(built_in())}; 'all' means the paper's five; file.py:Class for your own."
)]
Assignments = Annotated[list[str] | None, typer.Option(
    "--set", help="A setting, key=value, of every task that has it; may be repeated."
)]
Side = Annotated[int | None, typer.Option(
    min=1, help="Side of the images (default: celeba 128, afhq 256, otherwise the model's)."
)]
Network = Annotated[str | None, typer.Option(
    help="The network class, file.py:Class, if the model was trained with your own."
)]
Seed = Annotated[int, typer.Option(help="Seed of the measurements and of the starting noise.", callback=SEED)]


@user_errors()
def evaluate(
    names: Annotated[list[str], typer.Argument(metavar="METHOD...", help=(
        "Models (bundled name, file, or folder of a training run), baselines (pnp-flow, flower, ot-ode, ...: "
        "docs/baselines.md), functions of your own (file.py:function), degraded, data-consistency; separate several "
        "with spaces or commas."
    ))],
    data: Annotated[Path, typer.Option(help="Folder of the data set, or a file of arrays.")],
    dataset: Annotated[ImageSet, typer.Option(help="Layout of the data set.")] = "folder",
    tasks: Tasks = "all",
    assignments: Assignments = None,
    quality: Quality = None,
    steps: Annotated[str | None, typer.Option(
        help=f"Models: numbers of steps N, comma-separated (default: {STEPS}, or the quality's)."
    )] = None,
    iterations: Iterations = None,
    integrator: Annotated[Integrator, typer.Option(
        help="Of the models' steps: the paper's euler; midpoint and heun evaluate the velocity twice in each, churn "
        "draws noise afresh."
    )] = "euler",
    methods: Annotated[str, typer.Option(
        help="Baselines and functions (file.py:function) to evaluate as well, comma-separated; all: every baseline."
    )] = "",
    weights: Annotated[Path | None, typer.Option(
        help="Folder of the baselines' networks (default: weights of the checkout)."
    )] = None,
    limit: Annotated[int, typer.Option(min=0, help="Evaluate only the first images; 0 means all.")] = 100,
    size: Side = None,
    split: Annotated[Split, typer.Option(help="Which part of celeba or afhq.")] = "test",
    convention: Annotated[Convention, typer.Option(help="How metrics are computed: docs/evaluation.md.")] = "tables",
    out: Annotated[Path | None, typer.Option(
        "--out", "-o", help="Folder for the results; continued if it has some."
    )] = None,
    images: Annotated[int, typer.Option(min=0, help="Save comparison pictures of the first images.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="Images restored at once on a GPU.")] = 8,
    value_range: Annotated[str | None, typer.Option(
        help="Arrays: the values low,high that become -1 and 1 (default: as in training)."
    )] = None,
    key: Key = None,
    network: Network = None,
    precision: Annotated[Precision, typer.Option(
        help="Precision of the network; auto is bf16 where the machine supports it."
    )] = "float32",
    seed: Seed = 42,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Skip pictures that cannot be read.")] = False,
    max_megapixels: MaxMegapixels = 64,
    device: Device = None,
) -> None:
    # fmt: on
    """Restore the images of a data set in every task; print a table for each, write images.csv and results.json.

    Under torchrun, the images are shared among the processes.
    """
    from rich.console import Console

    from firm._util.checks import counted, numbers, settings
    from firm._util.files import folder_lock, write_atomically
    from firm._util.machine import describe_machine, ranks
    from firm.acceleration import fast
    from firm.baselines.weights import Networks
    from firm.cli.models import form_of_images, load_plain, noted
    from firm.evaluation import Evaluation, methods_for
    from firm.evaluation import evaluate as run
    from firm.evaluation.report import comparison, summarize, tables

    start = time.perf_counter()
    with ranks(device) as r:
        main, given = r.main, settings(assignments or [])
        counts = None if steps is None and quality is not None else numbers(STEPS if steps is None else steps)
        classes = task_classes(tasks, given)  # before anything is read
        words = [name.strip() for text in (*names, methods) for name in text.split(",") if name.strip()]
        chosen = noted(lambda: methods_for(
            words, counts, integrator=integrator, iterations=iterations, quality=quality,
            networks=Networks(r.device, precision, weights, "cat" if dataset == "afhq" else "face"),
            load=lambda name: fast(load_plain(name, network, strict=len(words) == 1).to(r.device), precision),
        ))  # fmt: skip
        if integrator != "euler" and not chosen.models:
            raise ValueError(f"--integrator {integrator} is for models, and none is named; baselines have --methods")
        side, channels, values = form_of_images(
            chosen.models, data, dataset=dataset, size=size, value_range=value_range
        )
        todo: list[Any] = []
        if side is not None:
            _require_memory(side)
            todo = [task_for(kind, (side, side), given) for kind in classes]
            for task, row in itertools.product(todo, chosen.rows):
                row.on(task)  # loads networks: what is missing is said first
        folder = out or Path("outputs") / f"evaluate-{dataset}-{chosen.stem}-{convention}"
        with folder_lock(folder if main else None):
            pictures, notes = _load(
                dataset, data, split, size=side, channels=channels, limit=limit,
                broken="skip" if skip_broken else "refuse", value_range=values, key=key, max_megapixels=max_megapixels,
                progress=main,
            )  # fmt: skip
            todo = todo or [task_for(kind, pictures.shape[1:], given) for kind in classes]
            notes += _advice(chosen, todo)
            if not chosen.models:
                given_for_models = {"--steps": steps, "--quality": quality, "--iterations": iterations}
                notes += [
                    f"{option} is for models, and had no effect here: other methods have their own, or none"
                    for option, value in given_for_models.items() if value is not None
                ]  # fmt: skip
            if weights is not None and all(row.settle is None for row in chosen.rows):
                notes.append("--weights is for baselines, and had no effect here")
            for note in notes if main else ():
                typer.echo(f"note: {printable(note)}", err=True)
            about: dict[str, Any] = {"dataset": dataset, "split": split if dataset in ("celeba", "afhq") else None}
            evaluation = Evaluation(pictures, todo, convention, seed, about, r.device)
            rows = run(evaluation, chosen.rows, folder, batch_size=batch_size, ranks=r)
            if not main:
                return
            summary, console = summarize(rows), Console()
            results = {
                "config": json.loads((folder / "config.json").read_text()),
                "methods": {row.label: row.fingerprint for row in chosen.rows},
                "summary": summary, "notes": notes, "seconds": round(time.perf_counter() - start, 1),
                "machine": describe_machine(r.device),
            }  # fmt: skip
            write_atomically(folder / "results.json", json.dumps(results, indent=1))
            for table in tables(summary, convention):
                console.print(table)
            for row in chosen.rows:
                if absent := [task.name for task in todo if row.label not in summary.get(task.name, {})]:
                    console.print(f"{row.label} does not do {', '.join(absent)}: no row there")
            for task in todo if images else ():
                comparison(evaluation, task, chosen.rows, images, folder / f"{task.name}.png", batch_size=batch_size)
        took = f"{counted(len(pictures))} in {time.perf_counter() - start:.0f} s"
        console.print(printable(f"{took}; results are in {folder}"), soft_wrap=True)


def _advice(chosen: Methods, tasks: list[Any]) -> list[str]:
    """Return one sentence for each task that is not what a model was trained for."""
    from firm.restoration.advice import advice

    several = len(chosen.models) > 1
    found = [(task, name, advice(model, task)) for task in tasks for name, model in chosen.models.items()]
    return [f"{task.name}{f' with {name}' * several}: {'; '.join(told)}" for task, name, told in found if told]


def _load(
    dataset: ImageSet, data: Path, split: Split, *, broken: Any, size: int | None, limit: int, **reading: Any
) -> tuple[Images, list[str]]:
    """Return the images, and notes for readers of the scores: that there are more of them, or that some are small.

    The arguments are those of `firm.data.load_images`.
    """
    from firm._util.checks import counted
    from firm.data import PictureError, load_images, named_files
    from firm.data.array_file import is_array_file
    from firm.data.picture import side_of

    try:
        pictures = load_images(dataset, data, split, size=size, broken=broken, limit=limit, **reading)
    except PictureError as error:
        hint = "; --skip-broken leaves it out" if broken == "refuse" else ""
        raise ValueError(f"{error}{hint}") from error
    # Arrays are never resized, and not counted before they are read.
    whole = dataset == "folder" and is_array_file(pictures.names[0])
    if dataset == "arrays" or dataset == "volumes" or dataset == "shards" or whole:
        more = limit and len(pictures) == limit
        return pictures, [f"only the first {counted(limit)} are evaluated; --limit 0 takes all"] if more else []
    files, crop = named_files(dataset, data, split)
    small = sum(side_of(data / name, crop) < (size or 0) for name in pictures.names)
    notes = []
    if 0 < limit < len(files):
        notes.append(f"only the first {limit} of {len(files):,} pictures are evaluated; --limit 0 takes all")
    if small:
        enlarged = f"{small} of {counted(len(pictures), 'picture')} had to be enlarged to {size}x{size}"
        notes.append(f"{enlarged}, so the scores are too good; --size gives another side")
    return pictures, notes


def _require_memory(side: int) -> None:
    """Refuse images that this machine could not hold, before anything is read."""
    from firm._util.machine import free_memory

    need, free = 10 * 4 * 3 * side**2, free_memory()  # about ten copies in float32, without the network's features
    if free is not None and need > free:
        needs = f"an image of {side}x{side} needs at least {need / 2**30:,.1f} GB of memory to be restored"
        raise ValueError(f"--size {side}: {needs}, and {free / 2**30:,.1f} GB are free: choose a smaller size")


def task_classes(text: str, settings: dict[str, Any]) -> list[Any]:
    """Return the classes of the tasks that --tasks names; each setting of --set must belong to one of them at least."""
    from firm._util.checks import did_you_mean
    from firm.tasks import tables, task_class

    names = [name for part in text.split(",") for name in (tables() if part.strip() == "all" else (part.strip(),))]
    if len(set(names)) < len(names):
        raise ValueError(f"--tasks names a task twice: {text!r}")
    classes = [task_class(name) for name in names]
    known = {key for kind in classes for key in kind.parameters}
    if unknown := [key for key in settings if key not in known]:
        near = did_you_mean(unknown[0], known)
        raise ValueError(f"--set: none of these tasks has a setting {', '.join(unknown)}{near}")
    return classes


def task_for(kind: Any, shape: tuple[int, int], settings: dict[str, Any]) -> Any:
    """Return a task of a class for images of one size.

    Parameters
    ----------
    kind, shape
        The class of the task, from `task_classes`, and the height and width of the images in pixels.
    settings
        What --set gives; the settings that the class does not have are passed over, and a range is refused.
    """
    chosen = {key: value for key, value in settings.items() if key in kind.parameters}
    side = shape[0] if shape[0] == shape[1] else shape
    task = kind(side, **chosen)
    task.require_values()
    return task
