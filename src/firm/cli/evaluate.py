"""``firm evaluate``: the paper's protocol on CelebA, AFHQ or a folder of your own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from firm.cli.choices import Convention, Dataset, Precision


def evaluate(
    method: Annotated[str, typer.Argument(help="A model (bundled name or file), or degraded, or data-consistency.")],
    data: Annotated[Path, typer.Option(help="Folder of the data set.")],
    dataset: Annotated[Dataset, typer.Option(help="Its layout.")] = "folder",
    tasks: Annotated[str, typer.Option(help="Comma-separated; 'all' are the five of the paper's tables.")] = "all",
    steps: Annotated[str, typer.Option(help="Numbers of Euler steps N, comma-separated.")] = "1,2,4,10,25",
    limit: Annotated[int, typer.Option(min=0, help="Evaluate the first images only; 0 takes all.")] = 100,
    size: Annotated[int | None, typer.Option(help="Image side (celeba 128, afhq 256, folder 128).")] = None,
    split: Annotated[str, typer.Option(help="train, val or test (celeba and afhq).")] = "test",
    convention: Annotated[Convention, typer.Option(help="See docs/evaluation.md.")] = "tables",
    mask: Annotated[
        str, typer.Option(help="Random masks: shared (the protocol's) or fresh for each image.")
    ] = "shared",
    out: Annotated[Path | None, typer.Option(help="Folder for the results; continued if it has some.")] = None,
    images: Annotated[int, typer.Option(min=0, help="Save comparison pictures of the first images.")] = 0,
    batch: Annotated[int, typer.Option(min=1, help="Images restored at once on a GPU.")] = 8,
    precision: Annotated[
        Precision, typer.Option(help="Of the network: float32, bf16, or auto, bf16 where the machine has it.")
    ] = "float32",
    seed: Annotated[int, typer.Option(help="Of measurements and starting noise.")] = 42,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Leave unreadable pictures out.")] = False,
) -> None:
    """Restore the images of a data set in every task; print a table per task, write images.csv and results.json."""
    from rich.console import Console

    from firm.evaluation.report import comparison, summarise, tables, write_results
    from firm.evaluation.run import Evaluation
    from firm.evaluation.run import evaluate as run

    start = time.perf_counter()
    try:
        methods, about = _methods(method, numbers(steps), precision)
        side = size or {"celeba": 128, "afhq": 256, "folder": 128}[dataset]
        chosen = _tasks(tasks, side, mask)
        pixels, names = _pictures(dataset, data, split, side, limit, skip_broken)
        about |= {"dataset": dataset, "split": None if dataset == "folder" else split}
        evaluation = Evaluation(pixels, names, chosen, convention, seed, about)
        folder = out or Path("outputs") / f"evaluate-{dataset}-{Path(method).stem}-{convention}"
        rows = run(evaluation, methods, folder, batch=batch)
    except (ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from error
    summary = summarise(rows)
    write_results(folder, summary, time.perf_counter() - start)
    console = Console()
    for table in tables(summary, convention):
        console.print(table)
    if images:
        for task in chosen:
            comparison(evaluation, task, methods, images, folder / f"{task.name}.png")
    console.print(f"{len(names)} images in {time.perf_counter() - start:.0f} s; results are in {folder}")


def _methods(name: str, steps: list[int], precision: Precision) -> tuple[list[Any], dict[str, Any]]:
    """The rows of the tables, and what to record of the model."""
    import hashlib

    import torch

    from firm._model import find, load
    from firm.acceleration._fast import fast
    from firm.evaluation.methods import baseline_methods, firm_method

    rows = baseline_methods()
    if name in [row.label for row in rows]:
        return rows, {"model": None}
    path = find(name)
    model = load(path).to("cuda" if torch.cuda.is_available() else "cpu")
    quick = fast(model, precision)
    rows += [firm_method(quick, N) for N in steps]
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return rows, {"model": {"name": name, "sha256": digest, "precision": precision}}


def numbers(text: str, option: str = "--steps") -> list[int]:
    """The values of an option that takes several whole numbers."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1 or len(set(found)) < len(found):
        raise ValueError(f"{option} takes different whole numbers of at least 1, such as 1,2,4, got {text!r}")
    return found


def _tasks(text: str, side: int, mask: str) -> list[Any]:
    from firm.tasks import PARAMETERS, TASKS, Task

    names = [name for part in text.split(",") for name in (TASKS if part == "all" else (part.strip(),))]
    if len(set(names)) < len(names):
        raise ValueError(f"--tasks names a task twice: {text!r}")
    unknown = [name for name in names if name not in PARAMETERS]
    if unknown:
        raise ValueError(f"--tasks: no task {', '.join(unknown)!r}; there are all, {', '.join(PARAMETERS)}")
    masks: Any = {name: mask for name in names if "mask" in PARAMETERS[name]}
    return [Task(name, side, mask=masks.get(name)) for name in names]  # type: ignore[arg-type]


def _pictures(dataset: Dataset, data: Path, split: Any, side: int, limit: int, skip: bool) -> tuple[Any, list[str]]:
    """Decoded images and their names relative to the data folder."""
    from firm.data import named_files, resident

    files, crop = named_files(dataset, data, split)
    pixels, kept = resident(files[: limit or None], side, crop=crop, broken="skip" if skip else "refuse")
    return pixels, [path.relative_to(data).as_posix() for path in kept]
