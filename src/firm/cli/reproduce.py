"""``firm reproduce``: every table and figure of the paper with one command each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from firm.cli.checks import SEED, Device, in_words
from firm.cli.choices import Precision

app = typer.Typer(help="Reproduce a table or figure of the paper.", no_args_is_help=True)


@app.callback()
def main() -> None:
    """Reproduce a table or figure of the paper."""


@app.command()
def toy(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the figures, the numbers and the model.")] = Path(
        "outputs/toy"
    ),
    seed: Annotated[int, typer.Option(help="Seed of training and sampling.", callback=SEED)] = 0,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Training steps (default: about two minutes' worth).")
    ] = None,
    device: Annotated[
        str, typer.Option(help="Where to train: cpu, cuda or cuda:N; the network is so small that the CPU is quick.")
    ] = "cpu",
) -> None:
    """Posterior recovery on the Gaussian-mixture problem: train a small network, compare with the exact posterior."""
    from firm._util.device import choose_device
    from firm.reproduce import toy as experiment

    with in_words(out):
        experiment.run(out, seed=seed, steps=steps or experiment.STEPS, device=choose_device(device))


@app.command()
def portrait(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the picture and the numbers.")] = Path(
        "outputs/portrait"
    ),
    model: Annotated[str, typer.Option(help="A bundled model's name, or a .safetensors file.")] = "face-128",
    steps: Annotated[int, typer.Option(min=1, help="Euler steps N.")] = 2,
    samples: Annotated[int, typer.Option(min=2, help="Posterior samples for mean and standard deviation.")] = 8,
    seed: Annotated[int, typer.Option(help="Seed of the measurements and of the starting noise.", callback=SEED)] = 0,
    device: Device = None,
) -> None:
    """Restore the bundled portrait in the paper's five tasks: one picture, one table."""
    from firm._util.device import choose_device
    from firm.reproduce import portrait as experiment

    with in_words(out):
        experiment.run(out, model, steps, samples, seed, choose_device(device))


Data = Annotated[Path, typer.Option(help="Folder of CelebA: img_align_celeba and list_eval_partition.txt.")]
Methods = Annotated[str, typer.Option(help="Baselines, comma-separated, or all.")]
Model = Annotated[str, typer.Option(help="A bundled model's name, or a .safetensors file.")]
Steps = Annotated[str, typer.Option(help="FIRM's numbers of Euler steps N.")]
Weights = Annotated[Path | None, typer.Option(help="Folder of the baselines' networks (default: the checkout's).")]


@app.command()
def celeba(
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the tables; continued if it has some.")] = Path(
        "outputs/celeba"
    ),
    methods: Methods = "all",
    model: Model = "face-128",
    steps: Steps = "2,4,10,25",
    limit: Annotated[int, typer.Option(min=1, help="How many of the test faces, from the first.")] = 100,
    batch: Annotated[int, typer.Option(min=1, help="Images restored at once on a GPU.")] = 50,
    precision: Annotated[
        Precision, typer.Option(help="Precision of networks that no gradient passes through.")
    ] = "auto",
    weights: Weights = None,
    images: Annotated[int, typer.Option(min=0, help="Save comparison pictures of the first faces.")] = 0,
    device: Device = None,
) -> None:
    """Table 1: all methods in five tasks on CelebA, our numbers next to the published ones (minutes on a GPU)."""
    from firm._util.device import choose_device
    from firm._util.text import numbers
    from firm.reproduce import celeba as experiment

    with in_words(out):
        experiment.run(
            out, data, methods=methods, model=model, steps=numbers(steps), limit=limit, batch=batch,
            precision=precision, weights=weights, pictures=images, device=choose_device(device),
        )  # fmt: skip


@app.command()
def cost(
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the table.")] = Path("outputs/cost"),
    methods: Methods = "all",
    model: Model = "face-128",
    steps: Steps = "2,4,10,25",
    images: Annotated[int, typer.Option(min=1, help="Images timed one by one.")] = 10,
    batches: Annotated[str, typer.Option(help="Batch sizes to try for the most images per second.")] = "10,100",
    modes: Annotated[
        str, typer.Option(help="plain: eager float32, as published code runs; fast: with CUDA graphs and bf16.")
    ] = ("plain,fast"),
    skip: Annotated[str, typer.Option(help="Baselines to leave out in plain mode.")] = "d-flow",
    weights: Weights = None,
    device: Device = None,
) -> None:
    """The efficiency table: seconds, memory and network calls of every method, CelebA deblurring, batch 1."""
    from firm._util.device import choose_device
    from firm._util.text import numbers
    from firm.reproduce import cost as experiment

    with in_words(out):
        experiment.run(
            out, data, methods=methods, model=model, steps=numbers(steps), images=images, batches=numbers(batches),
            modes=modes.split(","), skip=skip.split(","), weights=weights,
            device=choose_device(device),
        )  # fmt: skip


@app.command()
def pareto(
    table: Annotated[Path, typer.Option(help="Folder of `firm reproduce celeba`.")] = Path("outputs/celeba"),
    times: Annotated[Path, typer.Option(help="Folder of `firm reproduce cost`.")] = Path("outputs/cost"),
    out: Annotated[Path, typer.Option("--out", "-o", help="The picture.")] = Path("outputs/pareto.png"),
) -> None:
    """Quality against time: PSNR over seconds per image for all methods and all N, from the two tables."""
    from firm.reproduce import pareto as experiment

    with in_words():
        experiment.run(table, times, out)
