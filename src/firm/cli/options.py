"""What the commands share: options, what the shell offers for them when Tab is pressed, and errors as sentences.

A command annotates its parameters with `Device`, `Key` and the like, so that an option has the same words everywhere,
and most commands do their work inside `user_errors`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from firm._util.files import folder_lock, is_full
from firm._util.terminal import printable

# The library's, spelled out because it loads torch, which `firm reproduce list` and `firm bench` do without.
Precision = Literal["auto", "bf16", "float32"]


def SEED(value: int) -> int:
    """Refuse a seed that torch does not take."""
    from firm._util.checks import require_seed  # it loads torch

    return require_seed(value, typer.BadParameter)


def whole_number(least: int) -> Callable[[object], int]:
    """Return the parser of an option that takes whole numbers from `least` on, whose message does not speak of int."""

    def parse(value: object) -> int:
        if not (text := str(value)).isdecimal() or int(text) < least:
            raise typer.BadParameter(f"must be a whole number of at least {least}, got {value}")
        return int(text)

    return parse


Device = Annotated[
    str | None, typer.Option(help="cpu, cuda or cuda:N (the N-th GPU, from 0); default: the GPU if there is one.")
]
MaxMegapixels = Annotated[
    float, typer.Option(min=0, help="Larger pictures are refused before they are read: they may fill the memory.")
]
Iterations = Annotated[
    int | None,
    typer.Option(parser=whole_number(1), metavar="<int>", help=(
        "Iterations K in each step, a network call each (default: those of --quality, or else the model's own). The "
        "model's card names those it was trained for."
    )),
]  # fmt: skip
Quality = Annotated[
    Literal["fast", "faithful", "detailed"] | None,
    typer.Option(help=(
        "fast: a first look; faithful: least error for its time; detailed: looks more real, with more error and time. "
        "Each is a pair of steps and iterations that the model's card names; --steps and --iterations take its place."
    )),
]  # fmt: skip
Key = Annotated[str | None, typer.Option(help="Arrays: the name of the array to read, in files that hold several.")]

PICTURE = "What is wrong with the pictures"  # panels of the help of `firm restore`
SIMULATION = "Simulation: degrade clean pictures first"
ESTIMATED = dict.fromkeys(("blur", "peak", "gain", "read"), " Estimated if not given with --task.")


def completion(names: Sequence[str]) -> Callable[[str], list[str]]:
    """What the shell offers of these names when Tab is pressed."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def model_names(incomplete: str) -> list[str]:
    """Return the bundled models that begin so, and model files and folders where the path leads."""
    from firm._model import bundled

    start = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    places = sorted(start.iterdir()) if start.is_dir() else []
    found = [f"{place}/" if place.is_dir() else str(place) for place in places
             if place.is_dir() or place.suffix == ".safetensors"]  # fmt: skip
    return [name for name in [*bundled(), *found] if name.startswith(incomplete)]


def with_task_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for every setting that the built-in tasks declare, so that a new task brings its own.

    The command gets them as keywords by the names of the settings, None if not given. The help names the tasks that
    have a setting, and lists those that real pictures have, too, before those of simulations only.
    """
    from firm.tasks import built_in

    users: dict[str, list[str]] = {}
    found: dict[str, inspect.Parameter] = {}
    panels: dict[str, str] = {}
    for task in built_in().values():
        for setting in task.parameters.values():
            option = setting.option
            if not option or setting.name == "sigma":
                continue
            users.setdefault(option, []).append(task.name)
            if setting.picture is not None or option not in panels:
                panels[option] = SIMULATION if setting.picture is None else PICTURE
            about = f"{', '.join(users[option])}: {setting.about}.{ESTIMATED.get(option, '')}"
            typed = typer.Option(f"--{option}", help=about, rich_help_panel=panels[option])
            annotation: Any = Annotated[setting.kind | None, typed]
            kind = inspect.Parameter.KEYWORD_ONLY
            found[option] = inspect.Parameter(setting.name, kind, default=None, annotation=annotation)
    signature = inspect.signature(command, eval_str=True)
    fixed = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    command.__signature__ = signature.replace(parameters=[*fixed, *found.values()])  # type: ignore[attr-defined]
    return command


def sentence(error: BaseException) -> str:
    """Return an error as a sentence for the user, who also needs to know what to do about a full disk.

    It may quote names and contents of files, whose control characters must not reach the terminal.
    """
    if not is_full(error):
        return printable(str(error))
    return (
        "there is no room left on the disk for the results. What was written before is whole: "
        "make room, then give the same command again"
    )


@contextmanager
def user_errors(out: Path | None = None) -> Iterator[None]:
    """Turn errors that the user can mend into sentences without a traceback; hold the folder `out` meanwhile.

    Used as a decorator or in a with statement. Other errors are ours, and keep their traceback.
    """
    try:
        with folder_lock(out):
            yield
    except Exception as error:
        from firm._util.machine import lacks_memory

        if lacks_memory(error):
            message = "there is not enough memory for this: try smaller images or batches"
        elif isinstance(error, ValueError | OSError):
            message = sentence(error)
        else:
            raise
        raise typer.BadParameter(message) from error
