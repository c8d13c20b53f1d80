"""``firm reproduce``: every table and figure of the paper with one command each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Reproduce a table or figure of the paper.", no_args_is_help=True)


@app.callback()
def main() -> None:
    """Reproduce a table or figure of the paper."""


@app.command()
def toy(
    out: Annotated[Path, typer.Option(help="Folder for the figures, the numbers and the model.")] = Path("outputs/toy"),
    seed: Annotated[int, typer.Option(help="Seed of training and sampling.")] = 0,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Training steps (default: about two minutes' worth).")
    ] = None,
) -> None:
    """Posterior recovery on the Gaussian-mixture problem: train on the CPU, compare with the exact posterior."""
    from firm.reproduce import toy as experiment

    experiment.run(out, seed=seed, steps=steps or experiment.STEPS)


@app.command()
def portrait(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the numbers.")] = Path("outputs/portrait"),
    model: Annotated[str, typer.Option(help="A bundled model's name, or a .safetensors file.")] = "face-128",
    steps: Annotated[int, typer.Option(min=1, help="Euler steps N.")] = 2,
    samples: Annotated[int, typer.Option(min=2, help="Posterior samples for mean and standard deviation.")] = 8,
    seed: Annotated[int, typer.Option(help="Of measurements and starting noise.")] = 0,
) -> None:
    """Restore the bundled portrait in the paper's five tasks: one picture, one table."""
    from firm.reproduce import portrait as experiment

    experiment.run(out, model, steps, samples, seed)
