"""``firm reproduce``: every table and figure of the paper with one command each, all of them, or a report of them."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from firm.cli.checks import SEED, Device, in_words
from firm.cli.choices import Precision
from firm.reproduce.catalog import STUDIES, Study, require_data

app = typer.Typer(add_completion=False, help="Reproduce a table or figure of the paper.", no_args_is_help=True)

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for all studies: each writes to OUT/NAME.")]
Data = Annotated[Path, typer.Option(help="Folder of CelebA: img_align_celeba and list_eval_partition.txt.")]
Afhq = Annotated[Path, typer.Option(help="Folder of AFHQ: train/cat, val/cat, test/cat.")]
Quick = Annotated[bool, typer.Option("--quick", help="Ten images, bundled models, nothing is trained.")]
Batch = Annotated[int, typer.Option(min=1, help="Images restored at once on a GPU.")]
HowPrecise = Annotated[Precision, typer.Option(help="Precision of networks that no gradient passes through.")]
Weights = Annotated[Path | None, typer.Option(help="Folder of the baselines' networks (default: the checkout's).")]

# The options that studies have beyond --out, --quick, --device and the data: type, help and checks, and default.
OPTIONS: dict[str, tuple[Any, Any]] = {
    "batch": (Batch, 50),
    "precision": (HowPrecise, "auto"),
    "weights": (Weights, None),
    "methods": (Annotated[str | None, typer.Option(help="Baselines, comma-separated, all or none.")], None),
    "steps": (Annotated[str | None, typer.Option(help="FIRM's numbers of Euler steps N, comma-separated.")], None),
    "limit": (Annotated[int | None, typer.Option(min=1, help="How many of the test images, from the first.")], None),
    "model": (Annotated[str | None, typer.Option(help="A model's file or name, instead of ours.")], None),
    "images": (Annotated[int | None, typer.Option(min=1, help="Images timed one by one.")], None),
    "batches": (Annotated[str | None, typer.Option(help="Batch sizes to try for the most images per second.")], None),
    "modes": (Annotated[str | None, typer.Option(help="plain: eager float32; fast: CUDA graphs, bf16.")], None),
    "skip": (Annotated[str | None, typer.Option(help="Baselines to leave out in plain mode, or none.")], None),
    "seed": (Annotated[int, typer.Option(help="Seed of training, measurements and sampling.", callback=SEED)], 0),
    "training": (Annotated[int | None, typer.Option(min=1, help="Training steps.")], None),
    "N": (Annotated[int, typer.Option("--steps", min=1, help="Euler steps N.")], 2),
    "samples": (Annotated[int, typer.Option(min=2, help="Posterior samples of a measurement.")], 8),
    "S": (Annotated[int | None, typer.Option("--samples", min=2, help="Posterior samples of a measurement.")], None),
}  # fmt: skip


def _names(text: str) -> list[str]:
    """The parts of a comma-separated list; none for "none"."""
    return [part.strip() for part in text.split(",") if part.strip() not in ("", "none")]


LISTS: dict[str, Callable[[str], Any]] = {"modes": _names, "skip": _names}


def _settings(given: dict[str, Any]) -> Any:
    """`firm.reproduce.settings.Settings` from what was typed."""
    from dataclasses import fields

    from firm._util.machine import choose_device
    from firm._util.text import numbers
    from firm.reproduce.settings import Settings

    values = dict(given)
    values["device"] = choose_device(values.pop("device", None))
    values["celeba"] = values.pop("data", None)
    for key in ("steps", "batches"):
        if values.get(key) is not None:
            values[key] = numbers(values[key], f"--{key}")
    values |= {key: read(values[key]) for key, read in LISTS.items() if values.get(key) is not None}
    known = {field.name for field in fields(Settings)}
    own = {key: value for key, value in values.items() if key not in known}
    command = shlex.join(["firm", *sys.argv[1:]])
    return Settings(**{k: v for k, v in values.items() if k in known}, own=own, command=command)


def _command(study: Study) -> Callable[..., None]:
    """The command of a study, with the options that it has and no others."""

    def run(**given: Any) -> None:
        from firm.reproduce.running import announce

        with in_words():
            settings = _settings(given)
            require_data([study], {"celeba": settings.celeba, "afhq": settings.afhq})
        announce([study], settings)
        with in_words():
            study.run(settings)

    options: dict[str, tuple[Any, Any]] = {
        **({"data": (Data, ...)} if "celeba" in study.data else {}),
        **({"afhq": (Afhq, ...)} if "afhq" in study.data else {}),
        "out": (Out, Path("outputs")),
        "quick": (Quick, False),
        **{name: OPTIONS[name] for name in study.options},
        "device": (Device, None),
    }
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(
            name, keyword, annotation=kind, default=inspect.Parameter.empty if default is ... else default
        )
        for name, (kind, default) in options.items()
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {name: kind for name, (kind, _) in options.items()}
    run.__doc__ = f"{study.paper[0].upper()}{study.paper[1:]}: {study.title}."
    return run


@app.command("list")
def list_(out: Out = Path("outputs")) -> None:
    """Every table and figure of the paper: what it needs, how long it takes, whether it has been run here."""
    from firm.reproduce.listing import overview

    with in_words():
        overview(out)


@app.command("all")
def all_(
    data: Annotated[Path | None, typer.Option(help="Folder of CelebA.")] = None,
    afhq: Annotated[Path | None, typer.Option(help="Folder of AFHQ.")] = None,
    out: Out = Path("outputs"),
    quick: Quick = False,
    batch: Batch = 50,
    precision: HowPrecise = "auto",
    weights: Weights = None,
    device: Device = None,
) -> None:
    """Run all of them, one after the other, and build the report; what has been run is continued, not repeated."""
    from firm.reproduce.running import run_all

    with in_words(out):
        given = dict(data=data, afhq=afhq, out=out, quick=quick, batch=batch, precision=precision, weights=weights)
        failed = run_all(_settings({**given, "device": device}))
    raise typer.Exit(1 if failed else 0)


@app.command()
def report(
    out: Out = Path("outputs"),
    page: Annotated[Path | None, typer.Option(help="The page (default: OUT/report.html).")] = None,
    free_only: Annotated[
        bool, typer.Option("--free-only", help="Leave out pictures of data sets, so that the page may be published.")
    ] = False,
) -> None:
    """One page of all that has been run: our tables beside the paper's, figures, machine, commands."""
    from firm.reproduce.report import write_report

    with in_words():
        write_report(out, page or out / "report.html", free_only)


for _study in STUDIES:
    app.command(_study.name)(_command(_study))
