"""``firm calibrate``: how much wider a model's standard deviations should be, for ``firm restore --calibration``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from firm.cli.evaluate import Assignments, Network, Seed, Side, Tasks, task_classes, task_for
from firm.cli.options import Device, Iterations, Key, Precision, user_errors, whole_number
from firm.data.load import ImageSet

if TYPE_CHECKING:
    from firm.restoration.calibration import Calibration


# fmt: off
def calibrate(
    model: Annotated[str, typer.Argument(
        help="A bundled model's name, a .safetensors file, or the folder of a training run."
    )],
    data: Annotated[Path, typer.Option(help="Folder of the data set.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the scales, such as calibration.json.")],
    dataset: Annotated[ImageSet, typer.Option(
        help="Layout of the data set; of celeba and afhq the validation pictures are taken."
    )] = "folder",
    tasks: Tasks = "all",
    assignments: Assignments = None,
    steps: Annotated[int, typer.Option(
        parser=whole_number(1), metavar="<int>", help="Euler steps N: a scale holds for one N."
    )] = 2,
    iterations: Iterations = None,
    samples: Annotated[int, typer.Option(
        parser=whole_number(2), metavar="<int>", help="Posterior samples of each picture."
    )] = 16,
    limit: Annotated[int, typer.Option(min=2, help="How many pictures, from the first.")] = 20,
    size: Side = None,
    key: Key = None,
    network: Network = None,
    precision: Annotated[Precision, typer.Option(
        help="Of the network; auto is bf16 where the machine has it."
    )] = "auto",
    seed: Seed = 42,
    device: Device = None,
) -> None:
    # fmt: on
    """Fit a scale for each task, so that mean ± 1.645 scale std holds 90 % of the pixels; write them to a file."""
    from firm._util.checks import settings
    from firm._util.machine import choose_device
    from firm.cli.models import form_of_images, load_plain
    from firm.data import load_images
    from firm.restoration.calibration import fit

    with user_errors():
        _refuse_to_replace(out)
        where, given = choose_device(device), settings(assignments or [])
        kinds = task_classes(tasks, given)
        chosen = load_plain(model, network, iterations).to(where)
        side, channels, values = form_of_images({model: chosen}, data, dataset=dataset, size=size)
        pictures = load_images(
            dataset, data, "val", size=side, channels=channels, limit=limit, value_range=values, key=key
        )
        wanted = [task_for(kind, pictures.shape[1:], given) for kind in kinds]
        found = fit(chosen, pictures, wanted, steps, samples, seed, precision=precision)
        found.save(out, shlex.join(["firm", *sys.argv[1:]]), where)
    _print(found, model, iterations, out)


def _refuse_to_replace(out: Path) -> None:
    """Refuse a file that is there, but is no earlier calibration; make its folder."""
    from firm._util.files import check_file
    from firm.restoration.calibration import load

    if out.is_dir():
        raise ValueError(f"--out {out} is a folder: name a file, such as {out / 'calibration.json'}")
    if out.exists():
        try:
            load(out)
        except ValueError:
            raise ValueError(f"--out {out} is there and is no calibration: choose another name") from None
    check_file(out)


def _print(found: Calibration, model: str, iterations: int | None, out: Path) -> None:
    """Print a table of the scales, and the command that uses them."""
    from rich.console import Console
    from rich.table import Table

    from firm.restoration.calibration import in_words

    table = Table(title="share of the pixels inside the 90 % interval", title_justify="left")
    table.add_column("task")
    for column in ("before", "scale", "after"):
        table.add_column(column, justify="right")
    for name, task in found.tasks.items():
        table.add_row(name, f"{100 * task.before:.0f} %", in_words(task.scale), f"{100 * task.after:.0f} %")
    console = Console()
    console.print(table)
    depth = "" if iterations is None else f"--iterations {iterations} "
    use = f"--model {model} --steps {found.steps} {depth}--samples {found.samples} --calibration {out}"
    console.print(f"{found.images} pictures; use it with: firm restore … {use}", highlight=False, soft_wrap=True)
