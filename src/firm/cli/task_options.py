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


def with_task_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for every setting of the built-in tasks.

    The command gets them as keywords by the names of the settings, None if not given. The help names the tasks that
    have a setting, and lists those that real pictures have, too, before those of simulations only.
    """
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


def task_names() -> str:
    """The built-in tasks, for help texts."""
    return ", ".join(built_in())
