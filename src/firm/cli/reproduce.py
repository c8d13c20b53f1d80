"""``firm reproduce``: every table and figure of the paper with one command each, from a checkout's ``experiments``.

Beside list, all and report, the commands are the studies in experiments/catalog.py, each of which names those of the
`OPTIONS` that it takes.
"""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Annotated, Any

import typer

from firm.cli.options import SEED, Device, Precision, user_errors

STUDIES = Path(__file__).parents[3] / "experiments"
OPTIONS: dict[str, tuple[Any, Any]] = {  # of all commands: type, help and checks, and default
    "celeba": (Annotated[Path | None, typer.Option("--data", help="CelebA: img_align_celeba, its partition.")], None),
    "afhq": (Annotated[Path | None, typer.Option(help="Folder of AFHQ: train/cat, val/cat, test/cat.")], None),
    "out": (Annotated[Path, typer.Option("--out", "-o", help="Each study writes to OUT/NAME.")], Path("outputs")),
    "quick": (Annotated[bool, typer.Option("--quick", help="Ten images, bundled models, nothing is trained.")], False),
    "device": (Device, None),
    "batch_size": (Annotated[int, typer.Option(min=1, help="Images restored at once on a GPU.")], 50),
    "precision": (Annotated[Precision, typer.Option(help="Of networks that no gradient passes through.")], "auto"),
    "weights": (Annotated[Path | None, typer.Option(help="Folder of the baselines' networks.")], None),
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
    "pictures": (Annotated[Path | None, typer.Option(help="Folder of photographs, instead of the bundled two.")], None),
    "page": (Annotated[Path | None, typer.Option(help="The page (default: OUT/report.html).")], None),
    "free_only": (Annotated[bool, typer.Option("--free-only", help="Leave out the data sets' pictures.")], False),
}  # fmt: skip

app = typer.Typer(add_completion=False, help="Reproduce a table or figure of the paper.", no_args_is_help=True)


def _add(name: str, about: str, options: list[str]) -> None:
    """Add the command `name` with these options and no others; `experiments.catalog.command` does its work."""

    def run(**given: Any) -> None:
        """Run the study and end; code 1 says that one of several has failed."""
        with user_errors(given["out"] if name == "all" else None):
            failed = import_module("experiments.catalog").command(name, given)
        raise typer.Exit(1 if failed else 0)

    run.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
        for key, (kind, default) in OPTIONS.items() if key in options
    ])  # fmt: skip
    run.__annotations__ = {key: kind for key, (kind, _) in OPTIONS.items() if key in options}
    app.command(name, help=about)(run)


if (STUDIES / "catalog.py").is_file():
    if "experiments" not in sys.modules:  # by its path: any folder could be called experiments
        found: Any = spec_from_file_location("experiments", STUDIES / "__init__.py")
        sys.modules["experiments"] = module_from_spec(found)
    common = ["out", "quick", "device"]
    every = [*common, "celeba", "afhq", "batch_size", "precision", "weights"]
    _add("list", "Every table and figure: what it needs, how long it takes, whether it has been run here.", ["out"])
    _add("all", "Run all, one after the other, and build the report; what was run is continued, not repeated.", every)
    _add("report", "One page of all that was run: tables beside the paper's, figures.", ["out", "page", "free_only"])
    for study in import_module("experiments.catalog").STUDIES:
        about = f"{study.paper[0].upper()}{study.paper[1:]}: {study.title}."
        _add(study.name, about, [*common, *study.data, *study.options])
else:

    @app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
    def absent() -> None:
        """Reproduce a table or figure of the paper; the studies come with a checkout of the repository."""
        raise typer.BadParameter("the studies come with a checkout of the repository, and none lie beside this package")
