"""``firm restore``: a degraded picture or a folder of them, or a clean one that is degraded first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firm.cli.choices import Format, PictureTask, Precision, TaskName

if TYPE_CHECKING:
    from firm.restoration.run import Row


def restore(
    pictures: Annotated[Path, typer.Argument(metavar="IMAGE|FOLDER", help="A picture, or a folder of them.")],
    task: Annotated[PictureTask | None, typer.Option(help="What to undo in pictures that are degraded.")] = None,
    simulate: Annotated[
        TaskName | None, typer.Option(help="Degrade clean pictures first, then restore and score them.")
    ] = None,
    sigma: Annotated[
        float | None,
        typer.Option(help="Noise level, for pixels in [-1, 1] (2/255 of that in 0..255). Estimated if not given."),
    ] = None,
    mask: Annotated[
        Path | None,
        typer.Option(help="inpainting: a picture, white = missing; or a folder with one of the same name each."),
    ] = None,
    blur: Annotated[float | None, typer.Option(help="deblurring: standard deviation of the blur, in pixels.")] = None,
    scale: Annotated[int | None, typer.Option(help="super-resolution: factor of the sides, 2 if not given.")] = None,
    missing: Annotated[float | None, typer.Option(help="--simulate random-inpainting: share of pixels lost.")] = None,
    box: Annotated[int | None, typer.Option(help="--simulate box-inpainting: side of the hole.")] = None,
    lines: Annotated[int | None, typer.Option(help="--simulate fourier: k-space lines kept.")] = None,
    strokes: Annotated[int | None, typer.Option(help="--simulate stroke-inpainting: how many.")] = None,
    width: Annotated[float | None, typer.Option(help="--simulate stroke-inpainting: their width, in pixels.")] = None,
    model: Annotated[str, typer.Option(help="A bundled model's name, or a .safetensors file.")] = "face-128",
    steps: Annotated[int, typer.Option(min=1, help="Euler steps N: few for least error, more for detail.")] = 2,
    samples: Annotated[
        int, typer.Option(min=1, help="Posterior samples; with 2 or more also their mean and standard deviation.")
    ] = 1,
    seed: Annotated[int, typer.Option(help="Of the starting noise, and of simulated measurements.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("outputs/restore"),
    kind: Annotated[Format, typer.Option("--format", help="png (8 bits), png16, or npy (float32 in [0, 1]).")] = "png",
    tile: Annotated[int, typer.Option(help="Larger pictures go through the network in tiles of this side.")] = 256,
    overlap: Annotated[int, typer.Option(help="Pixels that tiles share.")] = 32,
    precision: Annotated[
        Precision, typer.Option(help="Of the network; auto is bf16 where the machine has it.")
    ] = "auto",
) -> None:
    """Restore pictures: each gets NAME_restored.png and NAME_compare.png, and the folder a restore.json.

    Under torchrun, the pictures of a folder are shared among the processes.
    """
    from rich.console import Console

    from firm._model import load
    from firm._util.distributed import ranks
    from firm.acceleration._fast import fast
    from firm.data import folder_files
    from firm.restoration import Problem, ProblemError, picture_problem, simulated_problem, tiled
    from firm.restoration.run import Job, restore_files

    if (task is None) == (simulate is None):
        raise typer.BadParameter("give either --task (the picture is degraded) or --simulate (it is clean)")
    simulated = {"missing": missing, "box": box, "lines": lines, "strokes": strokes, "width": width}
    if task is not None and any(v is not None for v in simulated.values()):
        wrong = ", ".join(f"--{key}" for key, v in simulated.items() if v is not None)
        raise typer.BadParameter(f"{wrong} belongs to --simulate; a real picture's mask is given with --mask")
    if simulate is not None and mask is not None:
        raise typer.BadParameter(
            "--mask belongs to --task inpainting; --simulate draws its own (--missing, --box, --strokes)"
        )

    def problem(path: Path) -> Problem:
        if task is not None:
            own = mask / path.relative_to(root) if mask is not None and mask.is_dir() else mask
            return picture_problem(path, task, sigma=sigma, mask=own, blur=blur, scale=scale)
        assert simulate is not None
        settings: dict[str, Any] = {"sigma": sigma, "blur": blur, "factor": scale, **simulated}
        given = {key: value for key, value in settings.items() if value is not None}
        return simulated_problem(path, simulate, given, seed)

    root = pictures if pictures.is_dir() else pictures.parent
    try:
        files = folder_files(pictures) if pictures.is_dir() else [pictures]
        if pictures.is_dir():
            if out.resolve() == pictures.resolve():
                raise ValueError("--out is the folder of the pictures: choose another, so that nothing is overwritten")
            files = [file for file in files if out.resolve() not in file.resolve().parents]  # results of another time
        with ranks() as r:
            network = fast(load(model).to(r.device), precision)
            config: dict[str, Any] = getattr(network.estimator, "config", {})
            if config.get("channels") != 3:
                raise ValueError(f"the model {model} does not restore pictures of three channels")
            job = Job(tiled(network, tile, overlap), problem, steps, samples, seed, out, kind)
            rows = restore_files(job, files, root, r)
    except (ProblemError, ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from error
    if not r.main:
        return
    console = Console()
    if not pictures.is_dir() and "error" in rows[0]:
        raise typer.BadParameter(rows[0]["error"])
    console.print(_table(rows))
    for sentence in sorted({s for row in rows for s in row.get("advice", [])}):
        console.print(f"note: {sentence}")
    failed = [row for row in rows if "error" in row]
    for row in failed:
        console.print(f"not restored: {row['error']}")
    console.print(f"results are in {out}")
    if failed:
        raise typer.Exit(1)


def _table(rows: list[Row]) -> Any:
    """One line a picture."""
    from rich.table import Table

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
        table.add_row(Path(row["picture"]).name, *cells)
    return table
