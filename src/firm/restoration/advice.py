"""Where a problem lies outside what a model was trained for: derived from its card and the tasks' declarations."""

from __future__ import annotations

from typing import Any

from firm.restoration.problem import Problem
from firm.tasks import BaseTask, built_in


def advice(card: dict[str, Any], problem: Problem, options: bool = False) -> list[str]:
    """Sentences on where the problem is not what the model was trained for; empty if it is, or nothing is known.

    With `options` they name those of the command line that help.
    """
    name = _last(str(problem.settings["task"]))
    trained = card.get("trained_for")
    entries = [e for e in trained if isinstance(e, dict) and _serves(str(e.get("name")), name)] if trained else []
    if not entries:
        return [f"the model was not trained for {name}"] if isinstance(trained, list) and trained else []
    out = []
    if name == "inpainting" and not any(e["name"] == "stroke-inpainting" for e in entries):
        out.append("the model was trained for single missing pixels and a centred box; other holes may show")
    size = int(card.get("size", 128))
    for key in ("sigma",) if name == "inpainting" else list(problem.settings):  # a real mask has no parameters
        value = problem.settings[key]
        known = [v for v in (_trained(e, key, size) for e in entries) if v is not None]
        if not known:
            continue
        if isinstance(value, str):
            if value not in known:
                out.append(f"{key} {value} is not what the model was trained for, {' or '.join(sorted(set(known)))}")
            continue
        ranges = [v if isinstance(v, list | tuple) else (v, v) for v in known]
        low, high = min(r[0] for r in ranges), max(r[1] for r in ranges)
        whose = ""
        if key == "sigma" and problem.noise_factor != 1:  # in the user's terms: the picture's own noise
            low, high, whose = low / problem.noise_factor, high / problem.noise_factor, " for grey pictures"
        if not low * 0.99 <= value <= high * 1.01:
            span = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
            hint = _options(problem) if options and key == "sigma" else ""
            out.append(f"{key} {value:.3g} is not what the model was trained for, {span}{whose}{hint}")
    return out


def _options(problem: Problem) -> str:
    """What to do about a noise level that was estimated in the rest of a picture with holes, which may be clean."""
    if problem.settings["task"] != "inpainting" or not problem.settings["estimated"]:
        return ""
    keep = ", and --keep-known leaves the pixels outside the mask as they are" if problem.known is None else ""
    return f"; it was estimated, and fine texture reads as noise: --sigma gives another{keep}"


def _trained(entry: dict[str, Any], key: str, size: int) -> Any:
    """The value or range that an entry of the card was trained with: as it says, or the paper's; None if unknown."""
    task: type[BaseTask] | None = built_in().get(str(entry["name"]))
    parameter = task.parameters.get(key) if task is not None else None
    if parameter is not None and not parameter.option:
        return None  # a setting that is no degradation
    if key in entry:
        return entry[key]
    return None if parameter is None else parameter.paper((size, size))  # a card must not run a user's own task


def _serves(trained: str, wanted: str) -> bool:
    """Whether training for one task helps in the other: the same, or pictures of its kind."""
    task = built_in().get(trained)
    return _last(trained) == wanted or (task is not None and task.picture == wanted)


def _last(name: str) -> str:
    """``file.py:Class`` may lie elsewhere now: its class tells it."""
    return name.rpartition(":")[2]
