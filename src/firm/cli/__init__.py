"""The command line: one sub-command per file. Heavy imports stay inside the commands, so that --help is quick."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from firm._util import interrupt
from firm._util.files import is_full
from firm._util.locks import LockedError
from firm.cli import bench, demo, evaluate, info, plot, reproduce, restore, train
from firm.cli.checks import told


class Commands(TyperGroup):
    """The commands; what may happen in any of them ends in a word, not in a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        interrupt.loaded()
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            interrupt.say_stopped()
            raise typer.Exit(interrupt.CODE) from error
        except LockedError as error:
            raise typer.BadParameter(str(error)) from error
        except OSError as error:
            if not is_full(error):
                raise
            raise typer.BadParameter(told(error)) from error


app = typer.Typer(
    name="firm",
    cls=Commands,
    no_args_is_help=True,
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


app.command()(restore.restore)
app.command()(train.train)
app.command()(evaluate.evaluate)
app.command()(plot.plot)
app.command()(demo.demo)
app.command()(info.models)
app.command()(info.info)
app.add_typer(bench.app, name="bench")
app.add_typer(reproduce.app, name="reproduce")
