"""The command line: one sub-command a file. Heavy imports stay inside the commands, so that --help is quick."""

from typing import Annotated

import typer

from firm._util.interrupts import raise_again
from firm.cli import bench, evaluate, info, plot, reproduce, restore, train

app = typer.Typer(
    name="firm",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from firm import __version__

        typer.echo(f"firm {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """FIRM: restore images from y = A x + noise with a flow that solves with A in every step."""
    raise_again()


app.command()(restore.restore)
app.command()(train.train)
app.command()(evaluate.evaluate)
app.command()(plot.plot)
app.command()(info.models)
app.command()(info.info)
app.add_typer(bench.app, name="bench")
app.add_typer(reproduce.app, name="reproduce")
