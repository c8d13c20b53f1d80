"""``firm restore``: a degraded picture or a folder of them, or a clean one that is degraded first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firm.cli.checks import Device, told
from firm.cli.choices import Format, Precision
from firm.cli.settings import given, task_names, with_task_options

if TYPE_CHECKING:
    from firm.restoration.run import Row


@with_task_options
def restore(
    pictures: Annotated[
        Path,
        typer.Argument(metavar="IMAGE|FOLDER", help="A picture or an array file (.npy, ...), or a folder of them."),
    ],
    task: Annotated[
        str | None,
        typer.Option(
            help="What to undo in pictures that are degraded: denoising, deblurring, super-resolution, inpainting."
        ),
    ] = None,
    simulate: Annotated[
        str | None,
        typer.Option(
            help="Degrade clean pictures first, then restore and score them: "
            f"{task_names()}; or a task of your own, file.py:Class."
        ),
    ] = None,
    sigma: Annotated[
        float | None,
        typer.Option(help="Noise level, for pixels in [-1, 1] (2/255 of that in 0..255). Estimated if not given."),
    ] = None,
    mask: Annotated[
        Path | None,
        typer.Option(help="inpainting: a picture, white = missing; or a folder with one of the same name each."),
    ] = None,
    own: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of your own task, key=value; may be repeated.")
    ] = None,
    model: Annotated[str, typer.Option(help="A bundled model's name, or a .safetensors file.")] = "face-128",
    network: Annotated[
        str | None, typer.Option(help="The network class, file.py:Class, of a model that has one of your own.")
    ] = None,
    value_range: Annotated[
        str | None, typer.Option(help="Arrays: low,high that stand for -1 and 1 (default: as the model was trained).")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Euler steps N: few for least error, more for detail.")] = 2,
    samples: Annotated[
        int, typer.Option(min=1, help="Posterior samples; with 2 or more also their mean and standard deviation.")
    ] = 1,
    seed: Annotated[int, typer.Option(help="Of the starting noise, and of simulated measurements.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("outputs/restore"),
    kind: Annotated[
        Format, typer.Option("--format", help="Of pictures: png (8 bits), png16, or npy (float32 in [0, 1]).")
    ] = "png",
    max_megapixels: Annotated[
        float, typer.Option(min=0, help="Larger pictures are refused before they are read: they may fill the memory.")
    ] = 64,
    tile: Annotated[int, typer.Option(help="Larger pictures go through the network in tiles of this side.")] = 256,
    overlap: Annotated[int, typer.Option(help="Pixels that tiles share.")] = 32,
    precision: Annotated[
        Precision, typer.Option(help="Of the network; auto is bf16 where the machine has it.")
    ] = "auto",
    device: Device = None,
    **settings: Any,
) -> None:
    """Restore pictures: each gets NAME_restored.png and NAME_compare.png, and the folder a restore.json.

    Under torchrun, the pictures of a folder are shared among the processes.
    """
    from rich.console import Console

    from firm._util.distributed import ranks
    from firm._util.text import settings as parse
    from firm.cli.models import channels_of, load_model, range_of
    from firm.restoration import Problem, ProblemError, picture_problem, simulated_problem, tiled
    from firm.restoration.names import shown
    from firm.restoration.run import Job, restore_files

    if (task is None) == (simulate is None):
        raise typer.BadParameter("give either --task (the picture is degraded) or --simulate (it is clean)")
    if simulate is not None and mask is not None:
        raise typer.BadParameter(
            "--mask belongs to --task inpainting; --simulate draws its own (--missing, --box, --strokes)"
        )
    if task is not None and own:
        raise typer.BadParameter("--set belongs to --simulate")
    if not -(2**63) <= seed < 2**63:
        raise typer.BadParameter(f"--seed must be a whole number of 64 bits, got {seed}")

    def problem(path: Path, channels: int, values: tuple[float, float] | None) -> Problem:
        if task is not None:
            holes = mask / path.relative_to(root) if mask is not None and mask.is_dir() else mask
            return picture_problem(
                path, task, sigma=sigma, mask=holes, channels=channels, value_range=values,
                max_megapixels=max_megapixels, **given(settings),
            )  # fmt: skip
        assert simulate is not None
        return simulated_problem(path, simulate, degradation, seed, channels, values, max_megapixels)

    root = pictures if pictures.is_dir() else pictures.parent
    try:
        if task is not None:
            _refuse_simulated(task, settings)
        if out.exists() and not out.is_dir():
            raise ValueError(f"--out {out} is a file; results need a folder")
        degradation = {**given({"sigma": sigma, **settings}), **parse(own or [])}
        files = _files(pictures, out)
        with ranks(device) as r:
            chosen = load_model(model, network, r.device, precision)
            reads = (channels_of(chosen), range_of(value_range, chosen.card, pictures))
            job = Job(tiled(chosen, tile, overlap), lambda path: problem(path, *reads), steps, samples, seed, out, kind)
            rows = restore_files(job, files, root, r)
    except (ProblemError, ValueError, OSError) as error:
        raise typer.BadParameter(shown(told(error))) from error
    if not r.main:
        return
    console = Console(markup=False)  # names may hold what looks like it
    if not pictures.is_dir() and "error" in rows[0]:
        raise typer.BadParameter(shown(rows[0]["error"]))
    console.print(_table(rows))
    for sentence in sorted({s for row in rows for s in row.get("advice", [])}):
        console.print(shown(f"note: {sentence}"))
    failed = [row for row in rows if "error" in row]
    for row in failed:
        console.print(shown(f"not restored: {row['error']}"))
    console.print(shown(f"results are in {out}"))
    if failed:
        raise typer.Exit(1)


def _refuse_simulated(task: str, settings: dict[str, Any]) -> None:
    """Settings that only a simulation has, such as the share of missing pixels: a real picture's mask is a file."""
    from firm.restoration.problem import picture_tasks

    kinds = picture_tasks().get(task, [])
    fit = set() if task == "inpainting" else {key for kind in kinds for key in kind.parameters}
    simulated = {key for kind in picture_tasks()["inpainting"] for key in kind.parameters}
    wrong = [f"--{key}" for key in given(settings) if key not in fit and key in simulated]
    if wrong:
        raise ValueError(f"{', '.join(wrong)} belongs to --simulate; a real picture's mask is given with --mask")


def _files(pictures: Path, out: Path) -> list[Path]:
    """The picture, or those of a folder (or its arrays, if it has no pictures), without results of another time."""
    from firm.data import array_files, folder_files

    if not pictures.is_dir():
        return [pictures]
    if out.resolve() == pictures.resolve():
        raise ValueError("--out is the folder of the pictures: choose another, so that nothing is overwritten")
    try:
        files = folder_files(pictures)
    except FileNotFoundError as error:
        try:
            files = array_files(pictures)
        except FileNotFoundError:
            raise error from None
    return [file for file in files if out.resolve() not in file.resolve().parents]


def _table(rows: list[Row]) -> Any:
    """One line a picture."""
    from rich.table import Table
    from rich.text import Text

    from firm.restoration.names import shown

    done = [row for row in rows if "error" not in row]
    table = Table()
    table.add_column("picture")
    columns = ["sigma", "nfe", "seconds"] + (["psnr", "ssim", "lpips"] if any("psnr" in row for row in done) else [])
    for column in columns:
        table.add_column(
            {"nfe": "NFE", "psnr": "PSNR", "ssim": "SSIM", "lpips": "LPIPS"}.get(column, column), justify="right"
        )
    digits = {"sigma": 4, "seconds": 2, "psnr": 2, "ssim": 3, "lpips": 3}
    for row in done:
        cells = [f"{row[c]:.{digits[c]}f}" if c in digits and c in row else str(row.get(c, "")) for c in columns]
        if row["estimated"]:
            cells[0] += " (est.)"
        table.add_row(Text(shown(Path(row["picture"]).name)), *cells)
    return table
