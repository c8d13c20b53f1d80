"""Restoration tasks: the protocol in `base`, then the tasks, by what they undo. A file added here brings its own."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from firm._util.checks import did_you_mean
from firm._util.checks import generator_for as generator_for
from firm._util.custom import is_custom, load_class
from firm.tasks.base import BaseTask as BaseTask
from firm.tasks.base import Rows as Rows
from firm.tasks.parameter import Parameter as Parameter


@cache
def built_in() -> dict[str, type[BaseTask]]:
    """Return the tasks of the library by name: those of the paper's tables in their order, then the others."""
    modules = [import_module(f"{__name__}.{about.name}") for about in iter_modules(__path__)]
    found: dict[str, type[BaseTask]] = {}
    for module in modules:
        for value in vars(module).values():
            own = isinstance(value, type) and issubclass(value, BaseTask) and value.__module__ == module.__name__
            if own and value is not BaseTask and not value.__name__.startswith("_"):
                found[value.name] = value
    return dict(sorted(found.items(), key=lambda item: (item[1].table or 99, item[0])))


def picture_tasks() -> dict[str, list[type[BaseTask]]]:
    """Return the kinds of degraded pictures by name, each with the tasks that train for it."""
    kinds: dict[str, list[type[BaseTask]]] = {}
    for task in built_in().values():
        if task.picture:
            kinds.setdefault(task.picture, []).append(task)
    return kinds


def tables() -> list[str]:
    """Return the names of the five tasks of the paper's tables."""
    return [name for name, task in built_in().items() if task.table is not None]


def task_class(name: str) -> type[BaseTask]:
    """Return a task's class: built in, or the user's, ``file.py:Class`` or ``package.module:Class``, which is run."""
    if is_custom(name):
        return load_class(name, BaseTask, "task")
    if name not in built_in():
        hint = did_you_mean(name, built_in())
        raise ValueError(f"no task {name!r}; there are {', '.join(built_in())}, and file.py:Class for your own{hint}")
    return built_in()[name]


def option_of(setting: str) -> str:
    """Return what the command line calls a built-in task's setting: `factor` is ``--scale``; others keep their name."""
    parameters = [task.parameters[setting] for task in built_in().values() if setting in task.parameters]
    return next((parameter.option for parameter in parameters if parameter.option), setting)


def Task(name: str, size: int | tuple[int, int] = 128, **settings: Any) -> BaseTask:
    """Make a task by its name.

    >>> Task("deblurring", 256).blur
    3.0

    Parameters
    ----------
    name
        One of `firm.tasks.built_in`, or a class of your own, ``file.py:Class`` or
        ``package.module:Class``, which is run.
    size
        Side of the images in pixels, or (height, width).
    settings
        Settings of the task by name; each class declares its own. What is not given has the paper's value for the size:
        the settings of 128 (CelebA) below 256, those of 256 (AFHQ) from there on, the box and the lines in proportion
        (Section 4 and Appendix E).
    """
    if not isinstance(name, str):
        raise TypeError(f"Task takes a task's name, got {name!r}; a class of your own is called itself: Class(size)")
    return task_class(name)(size, **settings)
