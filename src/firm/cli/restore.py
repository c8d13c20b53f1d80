"""``firm restore``: degraded pictures and folders of them, or clean ones that are degraded first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firm.cli.checks import Device, Key, MaxMegapixels, told, whole_number
from firm.cli.choices import Format, Integrator, Precision
from firm.cli.complete import model_names, picture_tasks, simulated_tasks
from firm.cli.settings import PICTURE, SIMULATION, given, task_names, with_task_options

if TYPE_CHECKING:
    from firm.restoration import Problem
    from firm.restoration.calibration import TaskScale


@with_task_options
def restore(
    pictures: Annotated[
        list[Path],
        typer.Argument(
            metavar="PICTURE|FOLDER...",
            help="Pictures or array files (.npy, ...), or folders of them; several at once.",
        ),
    ],
    task: Annotated[
        str | None,
        typer.Option(
            help=f"What to undo in pictures that are degraded: {', '.join(picture_tasks(''))}; or a task of your own, "
            "file.py:Class, that these files (pictures, or arrays y = A x + noise) are measurements of.",
            rich_help_panel=PICTURE,
            autocompletion=picture_tasks,
        ),
    ] = None,
    simulate: Annotated[
        str | None,
        typer.Option(
            help="Degrade clean pictures first, then restore and score them: "
            f"{task_names()}; or a task of your own, file.py:Class.",
            rich_help_panel=SIMULATION,
            autocompletion=simulated_tasks,
        ),
    ] = None,
    sigma: Annotated[
        str | None,
        typer.Option(
            metavar="S|G/255",
            help="Noise level: for pixels in [-1, 1], such as 0.2, or in gray levels of 255, such as 25/255 (which is "
            "0.196). Estimated if not given; a simulation has the paper's, a task of your own its default.",
            rich_help_panel=PICTURE,
        ),
    ] = None,
    mask: Annotated[
        Path | None,
        typer.Option(
            help="inpainting: a picture, white = missing; or a folder with one of the same name each, of any ending.",
            rich_help_panel=PICTURE,
        ),
    ] = None,
    keep_known: Annotated[
        bool | None,
        typer.Option(
            "--keep-known/--no-keep-known",
            help="inpainting: leave all pixels outside the mask exactly as they are, or remove their noise too. "
            "They are left where there is no noise (--sigma 0, or an estimate of 0.002).",
            show_default=False,
            rich_help_panel=PICTURE,
        ),
    ] = None,
    kernel: Annotated[
        Path | None,
        typer.Option(
            help="deblurring: the blur itself, instead of --blur: a small gray picture, or an array, of what became of "
            "a point of light in its middle.",
            rich_help_panel=PICTURE,
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="N|WIDTHxHEIGHT",
            help="A task of your own: the image's size, where it does not follow from the measurement.",
            rich_help_panel=PICTURE,
        ),
    ] = None,
    own: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A setting of your own task, key=value, also with --task; may be repeated.",
            rich_help_panel=SIMULATION,
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help="A bundled model's name, a .safetensors file, or the folder of a training run.",
            autocompletion=model_names,
        ),
    ] = "photo",
    network: Annotated[
        str | None, typer.Option(help="The network class, file.py:Class, of a model that has one of your own.")
    ] = None,
    value_range: Annotated[
        str | None,
        typer.Option(
            help="Arrays: low,high that stand for -1 and 1 (default: as the model was trained). Gray pictures of more "
            "than 8 bits: black,white (default: 0,65535; of floats 0,1)."
        ),
    ] = None,
    key: Key = None,
    steps: Annotated[
        int,
        typer.Option(parser=whole_number(1), metavar="<int>", help="Steps N: few for least error, more for detail."),
    ] = 2,
    integrator: Annotated[
        Integrator,
        typer.Option(help="The paper's euler; midpoint and heun evaluate the velocity twice in each step."),
    ] = "euler",
    samples: Annotated[
        int,
        typer.Option(
            parser=whole_number(1),
            metavar="<int>",
            help="Posterior samples; with 2 or more also their mean and standard deviation.",
        ),
    ] = 1,
    calibration: Annotated[
        Path | None, typer.Option(help="What `firm calibrate` wrote: its scale multiplies the standard deviations.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the starting noise, and of simulated measurements.")] = 0,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the results; a run that was stopped goes on there.")
    ] = Path("outputs/restore"),
    force: Annotated[
        bool, typer.Option("--force", help="Replace results of an earlier run that are in the way.")
    ] = False,
    kind: Annotated[
        Format, typer.Option("--format", help="Of pictures: png (8 bits), png16, or npy (float32 in [0, 1]).")
    ] = "png",
    max_megapixels: MaxMegapixels = 64,
    tile: Annotated[int, typer.Option(help="Largest side of the tiles that go through the network.")] = 256,
    overlap: Annotated[int, typer.Option(help="Pixels that tiles share.")] = 32,
    precision: Annotated[
        Precision, typer.Option(help="Of the network; auto is bf16 where the machine has it.")
    ] = "auto",
    device: Device = None,
    **settings: Any,
) -> None:
    """Restore pictures: each gets NAME_restored.png and NAME_compare.png, and the folder a restore.json.

    Under torchrun, the pictures are shared among the processes.
    """  # fmt: skip
    from firm._util.distributed import ranks
    from firm._util.text import image_size, noise_level
    from firm._util.text import settings as parse
    from firm.cli.degradation import Degradation, refuse_mixtures, refuse_others_options
    from firm.cli.models import channels_of, load_model
    from firm.cli.pictures import find_pictures
    from firm.cli.summary import print_results
    from firm.data.array_file import is_array_file
    from firm.restoration import ProblemError, tiled
    from firm.restoration.names import shown
    from firm.restoration.run import Job, restore_files

    refuse_mixtures(task, simulate, mask, keep_known, kernel, seed)
    refuse_others_options(task, simulate, own, size, mask, value_range)
    if calibration is not None and samples < 2:
        raise typer.BadParameter("--calibration is for standard deviations: give --samples 2 or more")
    if calibration is not None and integrator != "euler":
        raise typer.BadParameter(
            "--calibration holds for Euler steps, with which it was fitted: leave --integrator out"
        )
    try:
        what = Degradation(
            task, simulate, None if sigma is None else noise_level(sigma), mask, keep_known, kernel,
            None if size is None else image_size(size), given(settings), parse(own or []), seed, max_megapixels,
            key,
        )  # fmt: skip
        what.check()
        if out.exists() and not out.is_dir():
            raise ValueError(f"--out {out} is a file; results need a folder")
        found = find_pictures(pictures, out, [place for place in (mask, kernel) if place is not None])
        if key is not None and not any(is_array_file(file) for file in found.files):
            raise ValueError("--key is for files that hold several arrays, and these are pictures: leave it out")
        with ranks(device) as r:
            chosen = load_model(model, network, r.device, precision)
            channels, values = channels_of(chosen), _range(value_range, chosen.card, found.files)
            scale = None if calibration is None else _scale(calibration, what.kind, model, network, steps, samples)
            about = {
                **what.about(), "model": chosen.fingerprint(), "value_range": values, "steps": steps,
                "samples": samples, "format": kind, "tile": tile, "overlap": overlap, "precision": precision,
                **given({"calibration": None if scale is None else scale.scale}),
                # of Euler's nothing: earlier results count as done
                **({} if integrator == "euler" else {"integrator": integrator}),
            }  # fmt: skip

            def problem(path: Path) -> Problem:
                ranged = value_range is not None or is_array_file(path)  # that of training is for arrays
                return what.problem(path, found.root, channels, values if ranged else None)

            job = Job(
                tiled(chosen, tile, overlap), problem, steps, samples, seed, out, kind, settings=about,
                inputs=lambda path: what.inputs(path, found.root), force=force, calibration=scale,
                integrator=integrator,
            )  # fmt: skip
            rows = restore_files(job, found.files, found.root, r)
    except (ProblemError, ValueError, OSError) as error:
        raise typer.BadParameter(shown(told(error))) from error
    if not r.main:
        return
    if len(pictures) == 1 and not pictures[0].is_dir() and "error" in rows[0]:
        raise typer.BadParameter(shown(rows[0]["error"]))
    print_results(rows, out, found.notes())
    if any("error" in row for row in rows):
        raise typer.Exit(1)


def _scale(file: Path, task: str, model: str, network: str | None, steps: int, samples: int) -> TaskScale:
    """What the standard deviations are multiplied by; an error where the file was made for something else."""
    from firm.cli.models import load_plain
    from firm.restoration.calibration import load, scales_for

    return scales_for(load(file), task, load_plain(model, network).fingerprint(), steps, samples)


def _range(text: str | None, card: dict[str, Any], files: list[Path]) -> tuple[float, float] | None:
    """What stands for -1 and 1 in the arrays among the files, or with --value-range in all of them."""
    from firm.cli.models import range_of
    from firm.data.array_file import is_array_file

    return range_of(text, card, next((file for file in files if is_array_file(file)), files[0]))
