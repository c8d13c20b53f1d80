"""``firm restore``: degraded pictures and folders of them, or clean ones that are degraded first."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firm.cli.checks import Device, Key, MaxMegapixels, told, whole_number
from firm.cli.choices import Format, Precision
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
            help="Noise level: for pixels in [-1, 1], such as 0.2, or in grey levels of 255, such as 25/255 (which is "
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
            help="deblurring: the blur itself, instead of --blur: a small grey picture, or an array, of what became of "
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
            help="Arrays: low,high that stand for -1 and 1 (default: as the model was trained). Grey pictures of more "
            "than 8 bits: black,white (default: 0,65535; of floats 0,1)."
        ),
    ] = None,
    key: Key = None,
    steps: Annotated[
        int,
        typer.Option(
            parser=whole_number(1), metavar="<int>", help="Euler steps N: few for least error, more for detail."
        ),
    ] = 2,
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
    from firm._util.importing import code_digest, is_own
    from firm._util.text import image_size, noise_level
    from firm._util.text import settings as parse
    from firm.cli.models import channels_of, load_model, range_of
    from firm.cli.pictures import find_pictures
    from firm.cli.summary import print_results
    from firm.data.array_file import is_array_file
    from firm.restoration import ProblemError, measured_problem, picture_problem, simulated_problem, tiled
    from firm.restoration.degraded import check_picture_settings
    from firm.restoration.mask import mask_in
    from firm.restoration.names import shown
    from firm.restoration.run import Job, restore_files
    from firm.restoration.simulated import check_simulation
    from firm.tasks import task_class

    measured = task is not None and is_own(task)
    _refuse_mixtures(task, simulate, mask, keep_known, kernel, seed)
    _refuse_others_options(measured, simulate, own, size, mask, value_range)
    if calibration is not None and samples < 2:
        raise typer.BadParameter("--calibration is for standard deviations: give --samples 2 or more")

    def problem(path: Path, channels: int, values: tuple[float, float] | None) -> Problem:
        if task is not None and measured:
            return measured_problem(path, task, degradation, sides, channels, max_megapixels, key)
        values = values if value_range is not None or is_array_file(path) else None  # that of training is for arrays
        if task is not None:
            return picture_problem(
                path, task, sigma=level, mask=mask_of(path), keep_known=keep_known, kernel=kernel, channels=channels,
                value_range=values, max_megapixels=max_megapixels, key=key, **given(settings),
            )  # fmt: skip
        assert simulate is not None
        return simulated_problem(path, simulate, degradation, seed, channels, values, max_megapixels, key)

    def mask_of(path: Path) -> Path | None:
        if mask is None or not mask.is_dir():
            return mask
        return mask_in(mask, path, Path(os.path.abspath(path)).relative_to(root))

    def inputs(path: Path) -> list[Path]:
        found = [path] if kernel is None else [path, kernel]
        with suppress(ProblemError):  # no mask for this picture: told when its turn comes
            found += [file for file in [mask_of(path)] if file is not None]
        return found

    try:
        level = None if sigma is None else noise_level(sigma)
        sides = None if size is None else image_size(size)
        if task is not None and not measured:
            _refuse_simulated(task, settings)
            if mask is not None and not mask.exists():
                raise ValueError(f"--mask {mask}: no such file or folder")
            if kernel is not None and not kernel.is_file():
                raise ValueError(f"--kernel {kernel}: no such file")
            check_picture_settings(task, level, mask, keep_known, kernel, max_megapixels, **given(settings))
        if out.exists() and not out.is_dir():
            raise ValueError(f"--out {out} is a file; results need a folder")
        degradation = {**given({"sigma": level, **settings}), **parse(own or [])}
        named = task if measured else simulate  # the task whose class makes the operator
        if named is not None:
            check_simulation(named, degradation)
        found = find_pictures(pictures, out, [place for place in (mask, kernel) if place is not None])
        files, root = found.files, found.root
        with ranks(device) as r:
            chosen = load_model(model, network, r.device, precision)
            arrays = [file for file in files if is_array_file(file)]
            reads = (channels_of(chosen), range_of(value_range, chosen.card, arrays[0] if arrays else files[0]))
            about = {
                "model": chosen.fingerprint(), "task": task, "simulate": simulate, "degradation": degradation,
                "keep_known": keep_known if task == "inpainting" else False, "value_range": reads[1], "steps": steps,
                "samples": samples, "seed": seed, "format": kind, "tile": tile, "overlap": overlap,
                "precision": precision,
            }  # fmt: skip
            about |= {} if sides is None else {"size": sides}
            about |= {} if key is None else {"key": key}
            about |= {"surroundings": "unknown"} if task == "deblurring" else {}  # once they were mirrored
            kind_of_task = str(task) if named is None else task_class(named).name
            scale = None if calibration is None else _scale(calibration, kind_of_task, model, network, steps, samples)
            about |= {} if scale is None else {"calibration": scale.scale}
            code = "" if named is None else code_digest(task_class(named))
            about |= {"code": code} if code else {}  # of the library's tasks nothing: earlier results count as done
            job = Job(
                tiled(chosen, tile, overlap), lambda path: problem(path, *reads), steps, samples, seed, out, kind,
                settings=about, inputs=inputs, force=force, calibration=scale,
            )  # fmt: skip
            rows = restore_files(job, files, root, r)
    except (ProblemError, ValueError, OSError) as error:
        raise typer.BadParameter(shown(told(error))) from error
    if not r.main:
        return
    if len(pictures) == 1 and not pictures[0].is_dir() and "error" in rows[0]:
        raise typer.BadParameter(shown(rows[0]["error"]))
    print_results(rows, out, found.notes())
    if any("error" in row for row in rows):
        raise typer.Exit(1)


def _refuse_mixtures(
    task: str | None, simulate: str | None, mask: Path | None, keep_known: bool | None, kernel: Path | None, seed: int
) -> None:
    """Options that do not go together."""
    if (task is None) == (simulate is None):
        raise typer.BadParameter("give either --task (the picture is degraded) or --simulate (it is clean)")
    if simulate is not None and mask is not None:
        raise typer.BadParameter(
            "--mask belongs to --task inpainting; --simulate draws its own (--missing, --box, --strokes)"
        )
    if keep_known is not None and task != "inpainting":
        raise typer.BadParameter("--keep-known belongs to --task inpainting: other tasks know no pixel exactly")
    if kernel is not None and task != "deblurring":
        raise typer.BadParameter("--kernel belongs to --task deblurring")
    if not -(2**63) <= seed < 2**63:
        raise typer.BadParameter(f"--seed must be a whole number of 64 bits, got {seed}")


def _refuse_others_options(
    measured: bool, simulate: str | None, own: list[str] | None, size: str | None, mask: Path | None,
    value_range: str | None,
) -> None:  # fmt: skip
    """Options of tasks of the user's own without one, and the other way round."""
    if own and simulate is None and not measured:
        raise typer.BadParameter("--set belongs to --simulate, and to --task with a task of your own, file.py:Class")
    if size is not None and not measured:
        raise typer.BadParameter("--size belongs to --task with a task of your own, file.py:Class")
    if mask is not None and measured:
        raise typer.BadParameter("--mask belongs to --task inpainting; what a task of your own measures, its code says")
    if value_range is not None and measured:
        raise typer.BadParameter(
            "--value-range is for arrays that are images; the measurements of a task of your own are taken as they "
            "are, for images in [-1, 1]"
        )


def _scale(file: Path, task: str, model: str, network: str | None, steps: int, samples: int) -> TaskScale:
    """What the standard deviations are multiplied by; an error where the file was made for something else."""
    from firm.cli.models import load_plain
    from firm.restoration.calibration import load, scales_for

    return scales_for(load(file), task, load_plain(model, network).fingerprint(), steps, samples)


def _refuse_simulated(task: str, settings: dict[str, Any]) -> None:
    """Settings that only a simulation has, such as the share of missing pixels: a real picture's mask is a file."""
    from firm.restoration.degraded import picture_tasks

    kinds = picture_tasks().get(task, [])
    fit = set() if task == "inpainting" else {key for kind in kinds for key in kind.parameters}
    simulated = {key for kind in picture_tasks()["inpainting"] for key in kind.parameters}
    wrong = [f"--{key}" for key in given(settings) if key not in fit and key in simulated]
    if wrong:
        raise ValueError(f"{', '.join(wrong)} belongs to --simulate; a real picture's mask is given with --mask")
