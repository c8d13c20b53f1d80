"""A clean picture or array, degraded as in one of the tasks: an inverse problem whose truth is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from firm._util.custom import custom_code
from firm.data.picture import Range
from firm.data.picture_file import MAX_MEGAPIXELS
from firm.operators import Blur
from firm.restoration.problem import Problem, ProblemError, check_sigma, fitted, named, posed
from firm.restoration.reading import read
from firm.tasks import task_class


def simulated_problem(
    path: Path,
    name: str,
    settings: Mapping[str, Any],
    seed: int = 0,
    channels: int = 3,
    value_range: Range | None = None,
    max_megapixels: float = MAX_MEGAPIXELS,
    key: str | None = None,
) -> Problem:
    """A clean picture or array, degraded as in the task `name`, of any size; `settings` change the task's own.

    `name` may be a task of your own, ``file.py:Class``: its code is run. `key` names the array in a file with several.
    """
    reading = read(path, channels, value_range, max_megapixels, key)
    truth = reading.image
    with named(path):
        kind = task_class(name)
        if kind.color and channels != 3:
            raise ValueError(f"{kind.name} makes a picture in color: it takes a model for color")
        with custom_code(task=kind):
            task = kind((int(truth.shape[-2]), int(truth.shape[-1])), **settings)
        task.require_values()
        if task.settings().get("factor", 1) > max(task.shape):
            raise ValueError(f"a factor of {task.settings()['factor']} is larger than the picture's sides")
        check_sigma(task.sigma)
        op, y = task.measure(truth[:, :1] if reading.gray and not kind.color else truth, seed)
        problem = posed(name, task, op, y, reading)
    problem = _without_rim(replace(problem, truth=truth, value_range=value_range))
    return problem if kind.color else fitted(problem, reading, channels)


def check_simulation(name: str, settings: Mapping[str, Any]) -> None:
    """Raise `ProblemError` for settings that `simulated_problem` and `measured_problem` refuse for any picture."""
    try:
        kind = task_class(name)
        kind.check_names(settings)
        single = {key: value for key, value in settings.items() if not isinstance(value, list | tuple)}
        values = {key: kind.parameters[key].checked(kind.name, value) for key, value in single.items()}
    except ValueError as error:
        raise ProblemError(str(error)) from error
    check_sigma(values.get("sigma"))


def _without_rim(problem: Problem) -> Problem:
    """Cut off what a blur with unknown surroundings does not measure: a photograph would not show it either."""
    if not isinstance(problem.op, Blur) or problem.op.boundary != "valid" or problem.truth is None:
        return problem
    margin = (problem.truth.shape[-1] - problem.y.shape[-1]) // 2
    inside = (..., slice(margin, -margin or None), slice(margin, -margin or None))
    alpha = None if problem.alpha is None else problem.alpha[inside]
    return replace(problem, margin=margin, truth=problem.truth[inside], alpha=alpha)
