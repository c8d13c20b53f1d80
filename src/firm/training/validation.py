"""Validation of FIRM: PSNR of the averaged model on held-out images, and a picture of the first few."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from firm._model import Firm
from firm._util.files import write_atomically
from firm.data.images import Images
from firm.evaluation import Evaluation, NamedMethod, firm_method, plain_methods
from firm.evaluation.run import Measured, Restored, restore_chunk
from firm.metrics import psnr, visible
from firm.tasks import BaseTask

if TYPE_CHECKING:
    from firm.training.config import TrainConfig

SHOWN = 6  # images in a grid
CHUNK = 16  # images restored at once


def validate(model: Firm, config: TrainConfig, images: Images, picture: Path | None) -> dict[str, float]:
    """PSNR for every N of ``val_steps``, averaged over the images, over the tasks first, then for each of several.

    Settings that training draws from a range have the paper's value here, and random masks are the protocol's.
    """
    tasks = config.make_tasks(mask="shared")
    names = task_names(tasks)
    evaluation, device = Evaluation(images, tasks), next(model.parameters()).device
    result: dict[str, float] = {}
    rows: list[Tensor] = []
    for N in config.val_steps:
        method, values = firm_method(model, N), {}
        for name, task in zip(names, tasks, strict=True):
            scores = []
            for restored in restored_chunks(evaluation, task, method, device):
                shown = [visible(v, images.complex) for v in (restored.truth, restored.x)]
                scores.append(psnr(shown[1], shown[0]))
                if config.val_steps[0] == N and len(scores) == 1:
                    degraded = plain_methods()[0].run(restored.op, restored.y, 0.0, None)
                    rows += torch.stack([shown[0], visible(degraded, images.complex), shown[1]], dim=1)[:SHOWN]
            values[name] = round(float(torch.cat(scores).mean()), 4)
        result[f"psnr N={N}"] = round(sum(values.values()) / len(values), 4)
        if len(tasks) > 1:
            result |= {f"psnr N={N} {name}": value for name, value in values.items()}
    if picture is not None:
        save_grid(rows, picture)
    return result


def restored_chunks(
    evaluation: Evaluation, task: BaseTask, method: NamedMethod, device: torch.device
) -> Iterator[Restored]:
    """The images of an evaluation restored by a method, `CHUNK` at a time, on the device of the network."""
    for first in range(0, len(evaluation.images), CHUNK):
        chunk = range(first, min(first + CHUNK, len(evaluation.images)))
        truth = evaluation.images.batch(chunk).to(device)
        measured = Measured(truth, *task.measure(truth, evaluation.seed, first))
        yield restore_chunk(evaluation, task, method, chunk, measured)


def task_names(tasks: Sequence[BaseTask]) -> list[str]:
    """The tasks' names, numbered where a mixture has one twice, with other settings."""
    known = [task.name for task in tasks]
    return [n if known.count(n) == 1 else f"{n} {known[: i + 1].count(n)}" for i, n in enumerate(known)]


def save_grid(rows: Sequence[Tensor], path: Path) -> None:
    """Rows of images, each (n, C, H, W) in [-1, 1], as one picture; of many channels the first is shown."""
    grid = torch.cat([torch.cat(list(row), dim=-1) for row in rows], dim=-2)
    grid = grid if len(grid) in (1, 3) else grid[:1]
    pixels = ((grid.clamp(-1, 1) + 1) * 127.5).round().byte().permute(1, 2, 0).cpu().numpy()
    buffer = io.BytesIO()
    Image.fromarray(np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels).save(buffer, "png")
    write_atomically(path, buffer.getvalue())
