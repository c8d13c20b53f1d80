"""The command line: one sub-command per file, loaded when it is asked for. Heavy imports stay inside the commands.

To add a command, write a function of its name, or a Typer group called ``app``, in a file here, and enter the name and
the file in `COMMANDS`. Users read the docstring of the function in ``firm COMMAND --help``.
"""

import os
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from firm._util import terminal
from firm._util.files import LockedError, is_full
from firm.cli.options import sentence

COMMANDS = {  # name -> its file here
    "restore": "restore", "train": "train", "evaluate": "evaluate", "calibrate": "calibrate", "plot": "plot",
    "demo": "demo", "serve": "serve", "export": "export", "models": "info", "info": "info", "bench": "bench",
    "reproduce": "reproduce",
}  # fmt: skip
WITHOUT_TORCH = {("reproduce",), ("reproduce", "list"), ("reproduce", "report"), ("bench",)}  # are there at once


class _Commands(TyperGroup):
    """The commands by their names; the file of a command is loaded when the command is asked for."""

    def __init__(self, **settings: Any) -> None:
        """Know all names, and no command yet; `settings` are those of a Typer group."""
        super().__init__(**settings)
        self.commands: dict[str, Any] = dict.fromkeys(COMMANDS)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> Any:
        """Return a command: the function of that name in its file, or the group of commands called app."""
        if name in COMMANDS and self.commands[name] is None:
            module = import_module(f"firm.cli.{COMMANDS[name]}")
            group = getattr(module, "app", typer.Typer(add_completion=False))
            if not hasattr(module, "app"):
                group.command()(getattr(module, name))
            self.commands[name] = typer.main.get_command(group)
            self.commands[name].name = name
        return self.commands.get(name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command, and load torch for it: until that is done, Ctrl-C ends the process at once."""
        found = super().resolve_command(ctx, args)
        if not ctx.resilient_parsing:  # which is how the shell completes
            if tuple(args[:2]) not in WITHOUT_TORCH and "--help" not in args:
                # Threads that wait must not spin: on a busy machine they take the time of those that work.
                os.environ.setdefault("OMP_WAIT_POLICY", "passive")
                import torch  # noqa: F401
            terminal.loaded()
        return found

    def invoke(self, ctx: Any) -> Any:
        """Run a command; Ctrl-C, a folder that is in use and a full disk end any of them with a sentence."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            terminal.say_stopped()
            raise typer.Exit(terminal.CODE) from error
        except OSError as error:
            if isinstance(error, LockedError) or is_full(error):
                raise typer.BadParameter(sentence(error)) from error
            raise


app = typer.Typer(name="firm", cls=_Commands, no_args_is_help=True, pretty_exceptions_show_locals=False)


def _print_version(wanted: bool) -> None:
    """Print the version and end, if `wanted`."""
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
