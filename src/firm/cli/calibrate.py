"""``firm calibrate``: how much wider a model's standard deviations should be, for ``firm restore``."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from firm.cli.evaluate import Assignments, Network, Seed, Side, Tasks, task_classes, task_for
from firm.cli.options import Device, Iterations, Key, Precision, Quality, user_errors, whole_number
from firm.data.load import ImageSet

if TYPE_CHECKING:
    from firm.restoration.calibration import Calibration


# fmt: off
def calibrate(
    model: Annotated[str, typer.Argument(
        help="A bundled model's name, a .safetensors file, or the folder of a training run."
    )],
    data: Annotated[Path, typer.Option(help="Folder of the data set.")],
    out: Annotated[Path | None, typer.Option(
        "--out", "-o", help="File for the scales, such as calibration.json, for --calibration of firm restore."
    )] = None,
    attach: Annotated[bool, typer.Option(
        "--attach", help="Write the scales into the model's own file, in place of those that it had: firm restore and "
        "the page take them by themselves."
    )] = False,
    dataset: Annotated[ImageSet, typer.Option(
        help="Layout of the data set; of celeba and afhq the validation pictures are taken."
    )] = "folder",
    tasks: Tasks = "all",
    assignments: Assignments = None,
    quality: Quality = None,
    steps: Annotated[int | None, typer.Option(
        parser=whole_number(1), metavar="<int>",
        help="Euler steps N: a scale holds for one N and K (default: all qualities, each with its pair)."
    )] = None,
    iterations: Iterations = None,
    samples: Annotated[int, typer.Option(
        parser=whole_number(2), metavar="<int>", help="Posterior samples of each picture; fewer have their scales too."
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
    """Fit a scale for each task, with which mean ± 1.645 scale std holds 90 % of the pixels, and keep it."""
    from firm._model import find
    from firm._model_file import attach_to_card
    from firm._sampling import Quality as Qualities
    from firm._util.checks import require, settings
    from firm._util.machine import choose_device
    from firm.cli.models import form_of_images, listed, load_plain, noted
    from firm.data import load_images
    from firm.restoration.calibration import fit, in_card, save

    with user_errors():
        nowhere = "give --out for a file of the scales, or --attach to keep them in the model's own file"
        require(attach or out is not None, nowhere)
        if out is not None:
            _refuse_to_replace(out)
        own, where, given = find(listed(model)), choose_device(device), settings(assignments or [])
        require(not attach or os.access(own, os.W_OK), f"--attach: {own} cannot be written: give --out")
        kinds = task_classes(tasks, given)
        saved = load_plain(model, network).to(where)
        side, channels, values = form_of_images({model: saved}, data, dataset=dataset, size=size)
        pictures = load_images(
            dataset, data, "val", size=side, channels=channels, limit=limit, value_range=values, key=key
        )
        wanted = [task_for(kind, pictures.shape[1:], given) for kind in kinds]
        one = (steps, iterations, quality) != (None, None, None)
        asked = (quality,) if one else (None, *get_args(Qualities))  # None is what firm restore takes by itself
        at = noted(lambda: [saved.at(q, steps, iterations) for q in asked])
        pairs = {(chosen.solver.K, N): chosen for chosen, N in at}  # two qualities may be the same
        found = [
            fit(chosen, pictures, wanted, N, samples, seed, precision=precision) for (_, N), chosen in pairs.items()
        ]
        if out is not None:
            save(out, found, shlex.join(["firm", *sys.argv[1:]]), where)
        if attach:
            attach_to_card(own, {"calibrations": in_card(found)})
    _print(found, model, out)


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


def _print(found: Sequence[Calibration], model: str, out: Path | None) -> None:
    """Print a table of the scales, and how to use them."""
    from rich.console import Console
    from rich.table import Table

    from firm.restoration.calibration import in_words

    table = Table(title="share of the pixels inside the 90 % interval", title_justify="left")
    for column in ("task", "N", "K"):
        table.add_column(column)
    for column in ("before", "scale", "after"):
        table.add_column(column, justify="right")
    for each in found:
        for name, task in each.tasks.items():
            shares = f"{100 * task.before:.0f} %", in_words(task.scale), f"{100 * task.after:.0f} %"
            table.add_row(name, str(each.steps), str(each.iterations), *shares)
    console = Console()
    console.print(table)
    if out is None:
        use = f"the file of {model} has them now: firm restore … --model {model} --samples 8"
    else:
        pair = f"--steps {found[0].steps} --iterations {found[0].iterations}"
        use = f"use them with: firm restore … --model {model} {pair} --samples {found[0].samples} --calibration {out}"
    console.print(f"{found[0].images} pictures; {use}", highlight=False, soft_wrap=True)
