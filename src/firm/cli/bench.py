"""``firm bench``: how fast a configuration runs on this machine, as a table and JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Measure speed and memory on this machine.", no_args_is_help=True)


@app.callback()
def main() -> None:
    """Measure speed and memory on this machine."""


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="A training configuration.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings to change, key=value.")] = None,
    batches: Annotated[str, typer.Option(help="Batch sizes to try, comma-separated.")] = "32,64,128",
    naive: Annotated[bool, typer.Option(help="Also measure plain eager float32.")] = True,
    seconds: Annotated[float, typer.Option(help="Time for each measurement.")] = 5.0,
    out: Annotated[Path | None, typer.Option(help="Write the numbers as JSON.")] = None,
) -> None:
    """Images a second, milliseconds a step and peak memory of training, on random pictures."""
    from rich.console import Console

    from firm.training.bench import bench, bench_table

    try:
        sizes = [int(part) for part in batches.split(",")]
        results = bench(config, overrides or [], sizes, naive=naive, seconds=seconds, out=out)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    Console().print(bench_table(results))
