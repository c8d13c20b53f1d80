"""How much wider a model's standard deviations should be, fitted on pictures whose truth is known.

With few steps samples stay closer together than the posterior is wide. So that the map of their standard deviation can
be read as a number, it is multiplied by a scale for the model, the task, the steps N and iterations K, and the number
of samples. The bundled models carry theirs in their cards, see `carried`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from firm._model import Firm
from firm._restore import restore
from firm._sampling import Integrator
from firm._util.checks import generator_for, require
from firm._util.custom import custom_code
from firm._util.files import write_atomically
from firm._util.machine import describe_machine
from firm._util.terminal import progress_bar
from firm.acceleration._fast import Precision, fast
from firm.data.images import Images
from firm.operators import LinearOperator
from firm.operators.base import is_linear
from firm.tasks import BaseTask, picture_tasks

LEVEL = 0.9
WIDTH = math.sqrt(2) * float(torch.erfinv(torch.tensor(LEVEL, dtype=torch.float64)))  # 1.645: mean +- this times std
KIND = "firm calibrations"  # of a file, which may hold several
PARTS = ("measured", "missing")  # pixels that the measurements depend on, and those that they do not


@dataclass(frozen=True)
class TaskScale:
    """The factors for the standard deviations of a task, and what they do to the 90 % interval."""

    scale: dict[str, float]  # of each part of the pictures
    settings: dict[str, Any]  # of the task
    before: float  # share of the pixels inside mean +- 1.645 std
    after: float  # with the scale; fitted on one half of the pictures, counted on the other
    fewer: dict[str, dict[str, float]] = field(default_factory=dict)  # the scale of fewer samples: "2", "4", "8" ...

    def of(self, samples: int, fitted: int) -> TaskScale:
        """Return the scale for a number of samples, where `scale` is that of `fitted` samples.

        Few samples need larger scales. Between the numbers that were fitted it is linear in 1 / samples, and above the
        largest it is as there.
        """
        known = {**{int(n): scale for n, scale in self.fewer.items()}, fitted: self.scale}
        a = max((n for n in known if n <= samples), default=min(known))
        b = min((n for n in known if n >= samples), default=a)
        w = 0.0 if a == b else (1 / a - 1 / samples) / (1 / a - 1 / b)
        scale = {part: (1 - w) * v + w * known[b].get(part, v) for part, v in known[a].items()}
        return replace(self, scale=scale, fewer={})

    def widened(self, std: Tensor, op: LinearOperator) -> Tensor:
        """Multiply standard deviations (B, C, H, W) of measurements with `op` by the scale of their part.

        Where there is no scale for a part they stay as they are; `notes` says so.

        Parameters
        ----------
        std
            The standard deviations of restored images, (B, C, H, W).
        op
            The operator of their measurements, which tells measured pixels from missing ones.
        """
        measured, unseen = (self.scale.get(part, 1.0) for part in PARTS)
        return std * torch.where(missing(op, std), unseen, measured)

    def notes(self, settings: Mapping[str, Any], std: Tensor, op: LinearOperator) -> list[str]:
        """Say in sentences where the scale does not fit a picture's problem; in none where it does.

        Numbers may differ by a tenth. A part of the pixels may have no scale, as those outside a coil's field of view.

        Parameters
        ----------
        settings
            The settings of the problem, by name; one that is not there is taken to fit.
        std, op
            As in `widened`.
        """

        def short(value: Any) -> str:
            return f"{value:.3g}" if isinstance(value, float) else str(value)

        other = []
        for key, made in self.settings.items():
            here = settings.get(key, made)
            numbers = isinstance(made, int | float) and isinstance(here, int | float)
            if not (math.isclose(made, here, rel_tol=0.1) if numbers else made == here):
                other.append(f"{key} {short(made)}, not {short(here)}")
        if "blur" in self.settings and "blur" not in settings and "kernel" in settings:
            other.append(f"a Gaussian blur, not the kernel {settings['kernel']}")
        notes = [f"the calibration was made with {' and '.join(other)}: its scale may not fit"] if other else []
        hole = missing(op, std)
        there = {"measured": not bool(hole.all()), "missing": bool(hole.any())}
        without = [part for part in PARTS if there[part] and part not in self.scale]
        missed = [f"the calibration has no scale for {part} pixels: theirs are not multiplied" for part in without]
        return notes + missed


@dataclass(frozen=True)
class Calibration:
    """What `fit` found for one pair of steps and iterations; `save` writes several to a file, which `load` reads."""

    model: str  # the fingerprint of the model
    steps: int
    iterations: int
    samples: int
    images: int
    tasks: dict[str, TaskScale]


def scale_for(
    calibrations: Sequence[Calibration], task: str, steps: int, iterations: int, samples: int, model: str | None = None
) -> TaskScale:
    """Find the scale of a task among calibrations; ValueError where they are for something else.

    Parameters
    ----------
    calibrations
        What `load` or `carried` returns.
    task
        A task, or a kind of degraded pictures: inpainting takes the scale of strokes, or another one for inpainting.
    steps, iterations, samples
        N and K of the restoration, which have to be those of a calibration, and its number of samples.
    model
        The fingerprint of the model that restores; None for calibrations that it carries itself.
    """
    found = next((c for c in calibrations if (c.steps, c.iterations) == (steps, iterations)), None)
    if found is None:
        pairs = ", ".join(f"N = {c.steps}, K = {c.iterations}" for c in calibrations)
        raise ValueError(f"there is a scale for {pairs}, not for N = {steps}, K = {iterations}")
    other = f"it was made for another model ({found.model}, this one is {model}): run `firm calibrate` with this one"
    require(model in (None, found.model), other)
    # strokes come last in the alphabet, and are the most like the holes in real pictures
    there, kinds = found.tasks, [task, *sorted((k.name for k in picture_tasks().get(task, [])), reverse=True)]
    name = next((kind for kind in kinds if kind in there), None)
    if name is None:
        raise ValueError(f"there is no scale for {task}, only for {', '.join(there)}")
    return there[name].of(samples, found.samples)


def carried(model: Firm) -> list[Calibration]:
    """Return the calibrations in the card of a model."""
    return parsed(model.card.get("calibrations", []), f"the card of {model.card.get('name', 'the model')}")


def scale_of(
    file: Path | None, model: Firm, task: str, steps: int, samples: int, integrator: Integrator = "euler"
) -> tuple[TaskScale | None, list[str]]:
    """Find the scale for a restoration: of a file, or else the model's own, where it has one.

    Parameters
    ----------
    file
        What `save` wrote, whose scale has to fit; None for the model's own, ``Path("none")`` for no scale.
    model
        The model with the iterations K of the restoration, as it was loaded.
    task, steps, samples, integrator
        Of the restoration.

    Returns
    -------
    The scale or None, and notes for the user: why the model's own scales do not fit.
    """
    K = max(model.solver.K, 1)
    if file is not None:
        none = file == Path("none")
        return None if none else _scale_in_file(file, task, steps, K, samples, model.fingerprint()), []
    try:
        own = carried(model)
        if not own:
            return None, []
        require(integrator == "euler", "the model was calibrated for Euler steps")
        return scale_for(own, task, steps, K, samples), []
    except ValueError as error:
        return None, [f"the standard deviations are not calibrated: {error}"]


def _scale_in_file(file: Path, task: str, steps: int, K: int, samples: int, model: str) -> TaskScale:
    try:
        return scale_for(load(file), task, steps, K, samples, model)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def fit(
    model: Firm, images: Images, tasks: Sequence[BaseTask], steps: int = 2, samples: int = 16, seed: int = 42,
    *, precision: Precision = "auto", progress: bool = True,
) -> Calibration:  # fmt: skip
    """Fit the scales of a model on `images`, which should be neither its training nor its test images.

    The scale is the 0.9 quantile of |x - mean| / std over pixels, divided by 1.645, so that mean +- 1.645 scale std
    holds 90 % of the pixels. Matching the mean squared error instead would follow the few pixels that the samples miss
    by far (edges, eyes) and make the interval too wide for all others. Pixels that were not measured at all, such as
    those in a hole, have a scale of their own: there the samples differ far more, and are much nearer to the truth.

    Parameters
    ----------
    model
        As it was loaded, on the device that it should compute on, with the iterations K that the scale is for.
    images, tasks
        At least two pictures, and what to calibrate for.
    steps, samples, seed
        As in `firm.restore`. The first 2, 4, 8, ... of the samples give the scales of fewer ones.
    precision
        As in `firm.fast`.

    Returns
    -------
    The scales of every task, with the share of the pixels inside the interval before and after them.
    """
    enough = len(images) >= 2 and samples >= 2
    require(enough, f"a calibration needs two images and two samples at least, got {len(images)} and {samples}")
    quick, device = fast(model, precision), next(model.parameters()).device
    counts = [2**i for i in range(1, samples.bit_length()) if 2**i < samples] + [samples]
    found = {}
    for task in tasks:
        task.require_values()
        ratios: dict[int, list[dict[str, Tensor]]] = {n: [] for n in counts}
        for i in progress_bar(range(len(images)), desc=task.name, unit="image", shown=progress):
            x = images.batch(range(i, i + 1)).to(device)
            op, y = task.measure(x, seed, i)
            start = generator_for(seed, i, "method").initial_seed()
            with custom_code(network=type(model.estimator), task=type(task)):
                drawn = restore(quick, op, y, steps, samples, start, sigma=task.noise_for(x)).samples
            for n in counts:
                ratios[n].append(_ratios(x, drawn[:n].mean(0), drawn[:n].std(0), op))
        scales = {n: _scales(ratios[n], task.name) for n in counts}
        a, b = ratios[samples][::2], ratios[samples][1::2]
        after = _inside((b, _scales(a, task.name)), (a, _scales(b, task.name)))
        fewer = {str(n): scales[n] for n in counts[:-1]}
        before = _inside((ratios[samples], {}))
        found[task.name] = TaskScale(scales[samples], task.settings(), before, after, fewer)
    return Calibration(model.fingerprint(), steps, max(model.solver.K, 1), samples, len(images), found)


def quantile_scale(ratios: Tensor) -> float:
    """Return the factor for std that brings 90 % of the `ratios` = |x - mean| / std, (n,), below 1.645."""
    return float(ratios.kthvalue(math.ceil(LEVEL * len(ratios))).values) / WIDTH


def missing(op: LinearOperator, like: Tensor) -> Tensor:
    """Mark the pixels that no measurement depends on, in the shape of images `like` (B, C, H, W): True where A'A 1 = 0.

    This is for operators that see a constant image: not for differences, or Fourier lines without the zero frequency.
    Of one that is not linear none is marked.
    """
    if not is_linear(op):
        return torch.zeros_like(like, dtype=torch.bool)
    return op.A_adjoint(op.A(torch.ones_like(like))).abs() < 1e-6


def _ratios(x: Tensor, mean: Tensor, std: Tensor, op: LinearOperator) -> dict[str, Tensor]:
    """Compute |x - mean| / std at the pixels of each part that there is."""
    ratio, hole = ((x - mean).abs() / std.clamp(min=1e-12)).cpu(), missing(op, std).cpu()
    parts = {"measured": ratio[~hole], "missing": ratio[hole]}
    return {part: values for part, values in parts.items() if len(values)}


def _scales(ratios: Sequence[Mapping[str, Tensor]], task: str) -> dict[str, float]:
    parts = [part for part in PARTS if any(part in found for found in ratios)]
    scales = {part: quantile_scale(torch.cat([f[part] for f in ratios if part in f])) for part in parts}
    wrong = f"{task}: the samples do not differ (or are exact), so no scale makes them cover the truth"
    require(all(0 < v < 1e6 for v in scales.values()), wrong)
    return scales


def _inside(*counted: tuple[Sequence[Mapping[str, Tensor]], Mapping[str, float]]) -> float:
    """Return the share of pixels inside the interval: each list of ratios comes with the scales of its parts."""
    every = [(v, scales.get(part, 1.0)) for ratios, scales in counted for found in ratios for part, v in found.items()]
    inside = sum(int((values <= WIDTH * scale).sum()) for values, scale in every)
    return round(inside / sum(len(values) for values, _ in every), 4)


def in_words(scale: Mapping[str, float]) -> str:
    """Print a scale: that of measured pixels, and that of missing ones where it is another."""
    first, *more = [f"{scale[part]:.2f}" for part in PARTS if part in scale]
    return f"{first} ({more[0]} where pixels are missing)" if more else first


def save(
    path: str | Path, calibrations: Sequence[Calibration], command: str = "", device: torch.device | None = None
) -> None:
    """Write a small JSON file, with the command that made it and the machine."""
    about = {"kind": KIND, "level": LEVEL, "calibrations": in_card(calibrations), "command": command}
    write_atomically(Path(path), json.dumps(about | {"machine": describe_machine(device)}, indent=1))


def in_card(calibrations: Sequence[Calibration]) -> list[dict[str, Any]]:
    """Return calibrations as plain JSON types, the entry "calibrations" of a model's card."""
    return [asdict(calibration) for calibration in calibrations]


def load(path: str | Path) -> list[Calibration]:
    """Read what `save` wrote; ValueError where it is something else, or damaged."""
    require(Path(path).is_file(), f"{path}: no such file; `firm calibrate` writes one", FileNotFoundError)
    try:
        about = json.loads(Path(path).read_bytes())
        entries = about["calibrations"] if about["kind"] == KIND else []
    except (ValueError, KeyError, TypeError):
        entries = []
    found = parsed(entries, str(path))
    require(found, f"{path} is no calibration, or is damaged: make one with `firm calibrate`")
    return found


def parsed(entries: Any, where: str) -> list[Calibration]:
    """Return the calibrations of a file or a card, which may be of unknown origin; ValueError where they are none."""
    found = []
    try:
        for about in entries:
            tasks = {str(name): TaskScale(**task) for name, task in about["tasks"].items()}
            steps, K, samples, images = (int(about[key]) for key in ("steps", "iterations", "samples", "images"))
            scales = [scale for task in tasks.values() for scale in (task.scale, *task.fewer.values())]
            whole = tasks and all(scale and all(0 < v < 1e6 for v in scale.values()) for scale in scales)
            require(whole, "a scale is out of range")
            counts = [samples, *(int(n) for task in tasks.values() for n in task.fewer)]
            require(min(counts) >= 2, "a standard deviation needs two samples")
            found.append(Calibration(str(about["model"]), steps, K, samples, images, tasks))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{where} is no calibration, or is damaged: make one with `firm calibrate`") from error
    return found
