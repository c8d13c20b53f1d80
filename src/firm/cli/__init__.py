"""The command line: one sub-command per file, loaded when it is asked for. Heavy imports stay inside the commands."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from firm._util import terminal
from firm._util.files import is_full
from firm._util.locks import LockedError
from firm.cli.checks import told

COMMANDS = {  # name -> its file here
    "restore": "restore", "train": "train", "evaluate": "evaluate", "calibrate": "calibrate", "plot": "plot",
    "demo": "demo", "models": "info", "info": "info", "bench": "bench", "reproduce": "reproduce",
}  # fmt: skip
WITHOUT_TORCH = {("reproduce",), ("reproduce", "list"), ("reproduce", "report"), ("bench",)}  # are there at once


class Files(Mapping[str, Any]):
    """The commands by their names; a command's file is loaded when the command is asked for."""

    def __init__(self) -> None:
        self.loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """A command: the function of that name in its file, or the group of commands called app."""
        if name not in self.loaded:
            module = import_module(f"firm.cli.{COMMANDS[name]}")
            group = getattr(module, "app", None)
            if group is None:
                group = typer.Typer(add_completion=False)
                group.command()(getattr(module, name))
            self.loaded[name] = typer.main.get_command(group)
            self.loaded[name].name = name
        return self.loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Commands(TyperGroup):
    """The commands; what may happen in any of them ends in a word, not in a traceback."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = Files()

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names, in the order of the help."""
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command, and load torch for it: until that is done, Ctrl-C ends the process at once."""
        found = super().resolve_command(ctx, args)
        if not ctx.resilient_parsing:  # which is how the shell completes
            if tuple(args[:2]) not in WITHOUT_TORCH and "--help" not in args:
                import torch  # noqa: F401
            terminal.loaded()
        return found

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            terminal.say_stopped()
            raise typer.Exit(terminal.CODE) from error
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
