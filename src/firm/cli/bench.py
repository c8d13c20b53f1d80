"""``firm bench``: how fast a configuration runs on this machine, as a table and JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from firm.cli.options import Device, Iterations, Precision, Quality, user_errors

app = typer.Typer(add_completion=False, help="Measure speed and memory on this machine.", no_args_is_help=True)


@app.callback()
def main() -> None:
    """Measure speed and memory on this machine."""


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="A training configuration.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings to change, key=value.")] = None,
    batches: Annotated[str, typer.Option(help="Batch sizes to try, comma-separated.")] = "32,64,128",
    naive: Annotated[bool, typer.Option(help="Also measure plain eager float32.")] = True,
    seconds: Annotated[float, typer.Option(min=0, max=3600, help="Time for each measurement.")] = 5.0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the numbers as JSON.")] = None,
    device: Device = None,
) -> None:
    """Images per second, milliseconds per step and peak memory of training, on random pictures."""
    from rich.console import Console

    from firm._util.checks import numbers
    from firm._util.files import check_file
    from firm._util.machine import choose_device
    from firm.bench import table
    from firm.bench.training import COLUMNS, bench

    with user_errors():
        sizes, where = numbers(batches, "--batches"), choose_device(device)
        if out is not None:
            check_file(out)
        results = bench(config, overrides or [], sizes, naive=naive, seconds=seconds, out=out, device=where)
    Console().print(table(f"training, K = {results['K']}", COLUMNS, results))


@app.command()
def sample(
    model: Annotated[str, typer.Argument(help="A bundled model's name, or a .safetensors file.")] = "face-128",
    quality: Quality = None,
    steps: Annotated[
        str | None,
        typer.Option(help="Numbers of Euler steps N, comma-separated (default: 1,2,4,10,25, or the quality's)."),
    ] = None,
    iterations: Iterations = None,
    task: Annotated[str, typer.Option(help="What to restore.")] = "random-inpainting",
    precision: Annotated[Precision, typer.Option(help="Precision of the fast rows.")] = "auto",
    naive: Annotated[bool, typer.Option(help="Also measure plain eager float32.")] = True,
    seconds: Annotated[float, typer.Option(min=0, max=3600, help="Time for each measurement.")] = 3.0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the numbers as JSON.")] = None,
    device: Device = None,
) -> None:
    """Milliseconds per image, images per second, peak memory and NFE of restoring, at batch 1 and the best batch."""
    from rich.console import Console

    from firm._util.checks import numbers
    from firm._util.files import check_file
    from firm._util.machine import choose_device
    from firm.bench import table
    from firm.bench.sampling import COLUMNS, bench_sampling
    from firm.cli.models import load_plain, noted

    with user_errors():
        counts, where = None if steps is None else numbers(steps), choose_device(device)
        if out is not None:
            check_file(out)
        plain, N = noted(lambda: load_plain(model).at(quality, None, iterations))
        results = bench_sampling(
            plain, model, counts or ([1, 2, 4, 10, 25] if quality is None else [N]),
            task=task, precision=precision, naive=naive, seconds=seconds, out=out, device=where,
        )  # fmt: skip
    title = f"{results['model']}, {results['task']}, {results['size']}x{results['size']}"
    Console().print(table(title, COLUMNS, results))
