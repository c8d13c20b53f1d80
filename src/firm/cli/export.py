"""``firm export``: a model's file for other runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from firm.cli.options import Iterations, Quality, model_names, user_errors, whole_number


@user_errors()
def export(
    model: Annotated[str, typer.Argument(help="A bundled model, or a file.", autocompletion=model_names)],
    path: Annotated[Path, typer.Argument(help="The file to write: .onnx, or .pt2 for torch.export.")],
    task: Annotated[
        Literal["denoising", "inpainting", "deblurring", "super-resolution"] | None,
        typer.Option(help="All steps of the sampler for this task; without it, the network alone."),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            parser=whole_number(1), metavar="<int>", help="Steps N, fixed in the file (default: the quality's)."
        ),
    ] = None,
    iterations: Iterations = None,
    quality: Quality = None,
    scale: Annotated[int, typer.Option(min=2, max=16, help="super-resolution: how many times larger.")] = 2,
    filter: Annotated[
        Literal["bicubic", "bilinear", "box", "stride"], typer.Option(help="super-resolution: how it was made small.")
    ] = "bicubic",
    compiled: Annotated[
        bool, typer.Option("--compiled", help="Compile the .pt2 file for this machine (AOTInductor, a C++ compiler).")
    ] = False,
) -> None:
    """Write a file that runs without FIRM, and compare what it computes with torch; pip install -e ".\\[export]" first.

    Batch, height and width are free in the file; docs/export.md says what it takes and gives.
    """
    from firm.cli.models import load_plain
    from firm.scale.export import TOLERANCE, export_model

    try:
        done = export_model(
            load_plain(model), path, task, steps=steps, iterations=iterations, quality=quality, scale=scale,
            filter=filter, compiled=compiled,
        )  # fmt: skip
    except RuntimeError as error:
        raise typer.BadParameter(str(error)) from error
    for name, shape in done.inputs.items():
        typer.echo(f"{name:9} {shape}")
    typer.echo(
        f"{done.path}: {done.megabytes:.1f} MB; it computes what torch does within {done.difference:.1e} "
        f"(at most {TOLERANCE:.0e} is allowed)"
    )
