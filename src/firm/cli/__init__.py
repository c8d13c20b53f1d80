"""The command line: one sub-command per file, loaded when it is asked for. Heavy imports stay inside the commands."""

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from firm._util import interrupt
from firm._util.files import is_full
from firm._util.locks import LockedError
from firm.cli.checks import told

COMMANDS = {  # name -> its file here
    "restore": "restore", "train": "train", "evaluate": "evaluate", "calibrate": "calibrate", "plot": "plot",
    "demo": "demo", "models": "info", "info": "info", "bench": "bench", "reproduce": "reproduce",
}  # fmt: skip


class Commands(TyperGroup):
    """The commands; what may happen in any of them ends in a word, not in a traceback."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command, its file loaded now: a function of that name, or a group of commands called app."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"firm.cli.{COMMANDS[cmd_name]}")
        if cmd_name not in self.commands:
            group = getattr(module, "app", None) or typer.Typer(add_completion=False)
            if not hasattr(module, "app"):
                group.command()(getattr(module, cmd_name))
            self.commands[cmd_name] = typer.main.get_command(group)
            self.commands[cmd_name].name = cmd_name
        return self.commands[cmd_name]

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
