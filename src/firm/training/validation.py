"""Validation: PSNR of a method on held-out images in every task of a run, and a picture of the first few."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from firm._model import Firm
from firm._util.files import write_atomically
from firm._util.sheet import Panel, sheet
from firm.data.images import Images
from firm.evaluation import Evaluation, NamedMethod, degraded, firm_method
from firm.evaluation.run import Restored, restore_chunk
from firm.metrics import psnr, visible
from firm.tasks import BaseTask

if TYPE_CHECKING:
    from firm.training.config import TrainConfig

SHOWN = 6  # images of each task in the picture
CHUNK = 16  # images restored at once


def validate(model: Firm, config: TrainConfig, images: Images, picture: Path | None) -> dict[str, float]:
    """Score a model by PSNR for every N of ``val_steps``: over all tasks, then in each of several.

    Settings that training draws from a range have the paper's value here, or the nearest end of the range where that
    lies outside it; random masks are the protocol's.
    """
    result: dict[str, float] = {}
    device = next(model.parameters()).device
    for N in config.val_steps:
        shown = picture if config.val_steps[0] == N else None
        values = scored(firm_method(model, N), config, images, device, shown)
        result[f"psnr N={N}"] = mean(values)
        if len(values) > 1:
            result |= {f"psnr N={N} {name}": value for name, value in values.items()}
    return result


def scored(
    method: NamedMethod, config: TrainConfig, images: Images, device: torch.device, picture: Path | None
) -> dict[str, float]:
    """Score a method by PSNR in every task of a configuration, by the task's name; and draw the first images.

    A row of the picture is truth, measurement, restoration.
    """
    tasks = config.make_tasks(mask="shared")
    evaluation = Evaluation(images, tasks, device=device)
    values: dict[str, float] = {}
    rows: list[list[Panel]] = []
    for name, task in zip(task_names(tasks), tasks, strict=True):
        scores: list[Tensor] = []
        for restored in restored_chunks(evaluation, task, method):
            truth, x = (visible(v, images.complex) for v in (restored.truth, restored.x))
            if not scores:
                given = visible(degraded(restored.op, restored.y, task.sigma, None), images.complex)
                rows += labeled(truth, given, x, f"{name}: measurement", method.label)
            scores.append(psnr(x, truth))
        values[name] = round(float(torch.cat(scores).mean()), 4)
    if picture is not None:
        save_sheet(rows, picture)
    return values


def labeled(truth: Tensor, given: Tensor, x: Tensor, measured: str, made: str) -> list[list[Panel]]:
    """Make rows of a sheet: truth, measurement and restoration of the first images (B, C, H, W), with PSNR."""
    first = min(SHOWN, len(truth))
    found = psnr(x, truth)
    return [
        [("truth", truth[i]), (measured, given[i]), (f"{made}: {float(found[i]):.2f} dB", x[i])] for i in range(first)
    ]


def mean(values: dict[str, float]) -> float:
    """Average the scores of the tasks, which all count alike."""
    return round(sum(values.values()) / len(values), 4)


def restored_chunks(evaluation: Evaluation, task: BaseTask, method: NamedMethod) -> Iterator[Restored]:
    """Restore the images of an evaluation by a method, `CHUNK` at a time, on its device."""
    for first in range(0, len(evaluation.images), CHUNK):
        chunk = range(first, min(first + CHUNK, len(evaluation.images)))
        yield restore_chunk(evaluation, task, method, chunk)


def task_names(tasks: Sequence[BaseTask]) -> list[str]:
    """List the tasks' names, numbered where a mixture has one twice, with other settings."""
    known = [task.name for task in tasks]
    return [n if known.count(n) == 1 else f"{n} {known[: i + 1].count(n)}" for i, n in enumerate(known)]


def save_sheet(rows: Sequence[Sequence[Panel]], path: Path) -> None:
    """Write rows of titled images as one picture."""
    buffer = io.BytesIO()
    sheet(rows).save(buffer, "png")
    write_atomically(path, buffer.getvalue())
