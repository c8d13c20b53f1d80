"""Where a problem lies outside what a model was trained for: derived from its card and the tasks' declarations."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from firm._model import Firm
from firm._util.custom import is_custom
from firm.restoration.estimates import ROUNDING
from firm.restoration.problem import Problem
from firm.tasks import BaseTask, built_in, option_of


def advice(model: Firm | dict[str, Any], problem: Problem | BaseTask, options: bool = False) -> list[str]:
    """Say in sentences where a problem is not what a model was trained for; none if it is, or nothing is known.

    >>> import firm
    >>> firm.advice(firm.load("face-128"), firm.Task("denoising", sigma=0.8))
    ['sigma 0.8 is not what the model was trained for, 0.05 to 0.4']

    Parameters
    ----------
    model
        A model, or its card. One that was trained for a mixture knows the problem if one entry of its card has all the
        settings.
    problem
        A task, or a picture's problem (`firm.restoration.Problem`).
    options
        Call settings by their options on the command line, and name those that help.
    """
    card = model.card if isinstance(model, Firm) else model
    if not isinstance(card, dict):
        raise TypeError(f"advice: a model (firm.load) or its card, not {type(model).__name__}")
    if not isinstance(problem, Problem | BaseTask):
        raise TypeError(f"advice: a task, such as firm.Task('denoising'), or a problem, not {type(problem).__name__}")
    if isinstance(problem, Problem):
        settings, factor = problem.settings, problem.noise_factor
    else:
        own = built_in().get(problem.name) is not type(problem)  # whose cards name its class
        settings, factor = {"task": type(problem).__name__ if own else problem.name, **problem.settings()}, 1.0
    name = str(settings["task"]).rpartition(":")[2]  # file.py:Class may lie elsewhere now: its class tells it
    trained = card.get("trained_for")
    entries = [e for e in trained if isinstance(e, dict) and _serves(str(e.get("name")), name)] if trained else []
    if not entries:
        return [f"the model was not trained for {name}"] if isinstance(trained, list) and trained else []
    out = []
    if name == "inpainting" and not any(e["name"] == "stroke-inpainting" for e in entries):
        out.append("the model was trained for single missing pixels and a centered box; other holes may show")
    if settings.get("boundary") == "circular" and all(e.get("boundary") == "valid" for e in entries):
        instead = "; --set boundary=valid gives such a blur" if options else ""
        out.append(f"the model was trained for blurs with unknown surroundings, and this one is periodic{instead}")
    size = int(card.get("size", 128))
    keys = ["sigma"] if name == "inpainting" else list(settings)  # a real mask has no parameters
    if isinstance(problem, Problem) and problem.known is not None and settings["sigma"] <= ROUNDING:
        keys = []  # the pixels are kept: that there is no noise is no matter
    values = {key: settings[key] for key in keys}
    gaps = [_gaps(entry, values, size, factor) for entry in entries]
    # Together, the entries may have each setting and none of them all: the nearest one tells what is new.
    nearest = min(gaps, key=lambda outside: (len(outside), sum(gap for gap, _ in outside.values())))
    for key, (_, trained_with) in nearest.items():
        value = values[key] if isinstance(values[key], str) else f"{values[key]:.3g}"
        elsewhere = " with these other settings" if any(key not in outside for outside in gaps) else ""
        hint = _options(problem) if options and key == "sigma" and isinstance(problem, Problem) else ""
        called = option_of(key) if options and not is_custom(str(settings["task"])) else key  # own ones have --set
        known = f", {trained_with}" if trained_with else ""  # a text may be empty
        out.append(f"{called} {value}{elsewhere} is not what the model was trained for{known}{hint}")
    return out


def _gaps(entry: dict[str, Any], values: dict[str, Any], size: int, factor: float) -> dict[str, tuple[float, str]]:
    """Find the settings that lie outside an entry of the card: how far, from 0 to 1 or so, and what it has in words.

    `factor` is what the noise of a gray picture is multiplied by for the network: noise is told as the picture's own.
    """
    found = {}
    for key, value in values.items():
        known = _trained(entry, key, size)
        if known is None:
            continue
        if isinstance(value, str):
            if known not in (value, "random"):  # of mosaics: every pattern
                found[key] = (1.0, str(known))
            continue
        span = _span(known)
        if span is None:
            continue
        scale, whose = (factor, " for gray pictures") if key == "sigma" and factor != 1 else (1.0, "")
        low, high = (end / scale for end in span)
        if not low * 0.99 <= value <= high * 1.01:
            end = low if value < low else high
            words = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
            found[key] = (abs(value - end) / max(abs(value), abs(end)), words + whose)
    return found


def _span(known: Any) -> tuple[float, float] | None:
    """Return a number or a range as a range; None if it is neither. YAML, which wrote the card, takes 1e-3 for text."""
    with suppress(TypeError, ValueError):
        low, high = (float(v) for v in (known if isinstance(known, list | tuple) else (known, known)))
        return low, high
    return None


def _options(problem: Problem) -> str:
    """Say what to do about a noise level that was estimated around the holes of a picture that may be clean."""
    if problem.settings["task"] != "inpainting" or not problem.settings["estimated"]:
        return ""
    keep = ", and --keep-known leaves the pixels outside the mask as they are" if problem.known is None else ""
    return f"; it was estimated, and fine texture reads as noise: --sigma gives another{keep}"


def _trained(entry: dict[str, Any], key: str, size: int) -> Any:
    """Return the value or range that an entry of the card was trained with: as it says, or the paper's; else None."""
    task: type[BaseTask] | None = built_in().get(str(entry["name"]))
    parameter = task.parameters.get(key) if task is not None else None  # a card must not run a user's own task
    if parameter is None or key in entry:
        return entry.get(key) if parameter is None or parameter.option else None  # no option: no degradation
    return parameter.paper((size, size)) if parameter.option else None


def _serves(trained: str, wanted: str) -> bool:
    """Whether training for one task helps in the other: the same, or pictures of its kind."""
    task = built_in().get(trained)
    return trained.rpartition(":")[2] == wanted or (task is not None and task.picture == wanted)
