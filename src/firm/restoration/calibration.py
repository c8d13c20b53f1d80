"""How much wider a model's standard deviations should be, fitted on pictures whose truth is known.

With few steps samples stay closer together than the posterior is wide. Where the map of their standard deviation is to
be read as a number, it is multiplied by a scale for the model, the task and the number of steps.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from firm._model import Firm
from firm._restore import restore
from firm._util.checks import generator_for, require
from firm._util.custom import custom_code
from firm._util.files import write_atomically
from firm._util.machine import describe_machine
from firm._util.terminal import progress_bar
from firm.acceleration._fast import Precision, fast
from firm.data.images import Images
from firm.operators import LinearOperator
from firm.tasks import BaseTask, picture_tasks

LEVEL = 0.9
WIDTH = math.sqrt(2) * float(torch.erfinv(torch.tensor(LEVEL, dtype=torch.float64)))  # 1.645: mean +- this times std
PARTS = ("measured", "missing")  # pixels that the measurements depend on, and those that they do not


@dataclass(frozen=True)
class TaskScale:
    """The factors for the standard deviations of a task, and what they do to the 90 % interval."""

    scale: dict[str, float]  # of each part of the pictures
    settings: dict[str, Any]  # of the task
    before: float  # share of the pixels inside mean +- 1.645 std
    after: float  # with the scale; fitted on one half of the pictures, counted on the other

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
    """What `fit` found; `save` keeps it in a file, which `load` reads."""

    model: str  # the fingerprint of the model
    steps: int
    samples: int
    images: int
    tasks: dict[str, TaskScale]
    file: str = field(default="", compare=False)

    def scale_for(self, task: str, model: str, steps: int, samples: int) -> TaskScale:
        """Find the scale of a task; ValueError where the calibration is for something else.

        Parameters
        ----------
        task
            A task, or a kind of degraded pictures: inpainting takes the one scale for inpainting that there is.
        model
            The fingerprint of a model.
        steps, samples
            Of the restoration; they have to be those of the calibration. Few samples need larger scales.
        """
        file = self.file or "the calibration"
        other = f"another model ({self.model}, this one is {model}): run `firm calibrate` with this one"
        require(self.model == model, f"{file} was made for {other}")
        for option, mine, asked in (("steps", self.steps, steps), ("samples", self.samples, samples)):
            again = f"give --{option} {mine}, or calibrate with --{option} {asked}"
            require(mine == asked, f"{file} was made for {option} = {mine}, not {asked}: {again}")
        kinds = [task] if task in self.tasks else [kind.name for kind in picture_tasks().get(task, [])] or [task]
        fit, there = [name for name in kinds if name in self.tasks], ", ".join(self.tasks)
        if len(fit) == 1:
            return self.tasks[fit[0]]
        few = f"several scales for {task}: {', '.join(fit)}" if fit else f"no scale for {task}, only for {there}"
        which = f"the nearest of {', '.join(kinds)}" if len(kinds) > 1 else kinds[0]
        raise ValueError(f"{file} has {few}; run `firm calibrate` with --tasks and {which}")

    def save(self, path: str | Path, command: str = "", device: torch.device | None = None) -> None:
        """Write a small JSON file, with the command that made it and the machine."""
        about = {key: value for key, value in asdict(self).items() if key != "file"}
        about = {"kind": "firm calibration", "level": LEVEL, **about, "command": command}
        write_atomically(Path(path), json.dumps(about | {"machine": describe_machine(device)}, indent=1))


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
        As it was loaded, on the device that it should compute on.
    images, tasks
        At least two pictures, and what to calibrate for.
    steps, samples, seed
        As in `firm.restore`; a scale holds for this number of steps.
    precision
        As in `firm.fast`.

    Returns
    -------
    The scales of every task, with the share of the pixels inside the interval before and after them.
    """
    enough = len(images) >= 2 and samples >= 2
    require(enough, f"a calibration needs two images and two samples at least, got {len(images)} and {samples}")
    quick, device = fast(model, precision), next(model.parameters()).device
    found = {}
    for task in tasks:
        task.require_values()
        ratios = []
        for i in progress_bar(range(len(images)), desc=task.name, unit="image", shown=progress):
            x = images.batch(range(i, i + 1)).to(device)
            op, y = task.measure(x, seed, i)
            start = generator_for(seed, i, "method").initial_seed()
            with custom_code(network=type(model.estimator), task=type(task)):
                r = restore(quick, op, y, steps, samples, start, sigma=task.sigma, keep=False)
            assert r.std is not None
            ratios.append(_ratios(x, r.mean, r.std, op))
        scale = _scales(ratios, task.name)
        a, b = ratios[::2], ratios[1::2]
        after = _inside((b, _scales(a, task.name)), (a, _scales(b, task.name)))
        found[task.name] = TaskScale(scale, task.settings(), _inside((ratios, {})), after)
    return Calibration(model.fingerprint(), steps, samples, len(images), found)


def quantile_scale(ratios: Tensor) -> float:
    """Return the factor for std that brings 90 % of the `ratios` = |x - mean| / std, (n,), below 1.645."""
    return float(ratios.kthvalue(math.ceil(LEVEL * len(ratios))).values) / WIDTH


def missing(op: LinearOperator, like: Tensor) -> Tensor:
    """Mark the pixels that no measurement depends on, in the shape of images `like` (B, C, H, W): True where A'A 1 = 0.

    This is for operators that see a constant image: not for differences, or Fourier lines without the zero frequency.
    """
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


def load(path: str | Path) -> Calibration:
    """Read what `Calibration.save` wrote; ValueError where it is something else, or damaged."""
    require(Path(path).is_file(), f"{path}: no such file; `firm calibrate` writes one", FileNotFoundError)
    try:
        about = json.loads(Path(path).read_bytes())
        tasks = {str(name): TaskScale(**task) for name, task in about["tasks"].items()}
        scales = [scale for task in tasks.values() for scale in task.scale.values()]
        whole = about["kind"] == "firm calibration" and tasks and all(0 < scale < 1e6 for scale in scales)
        steps, samples, images = (int(about[key]) for key in ("steps", "samples", "images"))
        calibration = Calibration(str(about["model"]), steps, samples, images, tasks, str(path))
    except (ValueError, KeyError, TypeError, AttributeError):
        whole = False
    require(whole, f"{path} is no calibration, or is damaged: make one with `firm calibrate`")
    return calibration
