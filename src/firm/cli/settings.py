"""Options that follow from the tasks' declarations, so that a new task brings its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from firm.tasks import built_in

PICTURE = "What is wrong with the pictures"  # panels of the help
SIMULATION = "Simulation: degrade clean pictures first"
ESTIMATED = {"blur": " Estimated if not given with --task."}


def task_options() -> dict[str, tuple[str, type, str]]:
    """For every option of the built-in tasks: the setting's name, its type, and a help text that names its tasks."""
    users: dict[str, list[str]] = {}
    found: dict[str, tuple[str, type, str]] = {}
    for task in built_in().values():
        for parameter in task.parameters.values():
            if parameter.option and parameter.name != "sigma":
                users.setdefault(parameter.option, []).append(task.name)
                about = f"{', '.join(users[parameter.option])}: {parameter.about}.{ESTIMATED.get(parameter.option, '')}"
                found[parameter.option] = (parameter.name, parameter.kind, about)
    return found


def with_task_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for every setting of the built-in tasks; it gets them as keywords, None if not given."""
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    options = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None,
            annotation=Annotated[
                kind | None, typer.Option(f"--{option}", help=about, rich_help_panel=_panel(option))
            ],
        )
        for option, (name, kind, about) in task_options().items()
    ]  # fmt: skip
    command.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    return command


def _panel(option: str) -> str:
    """Where the help lists an option: holes are drawn in simulations only, real pictures have a mask."""
    tasks = [task for task in built_in().values() if option in [p.option for p in task.parameters.values()]]
    real = any(task.picture and task.picture != "inpainting" for task in tasks)
    return PICTURE if real else SIMULATION


def task_names() -> str:
    """The built-in tasks, for help texts."""
    return ", ".join(built_in())


def given(values: dict[str, Any]) -> dict[str, Any]:
    """The settings that were given."""
    return {key: value for key, value in values.items() if value is not None}
