"""Validation: PSNR of the averaged model on held-out pictures, and a picture of the first few."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from firm._model import Firm
from firm.evaluation import Evaluation, baseline_methods, firm_method
from firm.evaluation.run import restore_chunk
from firm.metrics._psnr import psnr
from firm.training.config import TrainConfig
from firm.training.measurements import TrainTask

SHOWN = 6  # pictures in a grid


def validate(model: Firm, config: TrainConfig, pixels: Tensor, picture: Path | None) -> dict[str, float]:
    """PSNR for every N of ``val_steps``, averaged over the pictures, per task and over the tasks.

    Settings that training draws from a range have the paper's value here, and random masks are the protocol's.
    """
    tasks = [TrainTask.make(entry, config.size, "shared").base for entry in config.tasks()]
    evaluation = Evaluation(pixels, [str(i) for i in range(len(pixels))], tasks)
    result: dict[str, float] = {}
    rows: list[Tensor] = []
    for N in config.val_steps:
        method, values = firm_method(model, N), []
        for task in tasks:
            restored = restore_chunk(evaluation, task, method, range(len(pixels)))
            value = float(psnr(restored.x, restored.truth).mean())
            values.append(value)
            if len(tasks) > 1:
                result[f"psnr N={N} {task.name}"] = round(value, 4)
            if config.val_steps[0] == N:
                degraded = baseline_methods()[0].run(restored.op, restored.y, 0.0, None)
                rows += torch.stack([restored.truth, degraded, restored.x], dim=1)[:SHOWN]
        result[f"psnr N={N}"] = round(sum(values) / len(values), 4)
    if picture is not None:
        _save_grid(rows, picture)
    return result


def _save_grid(rows: list[Tensor], path: Path) -> None:
    """Rows of (truth, measurement, restoration), each (3, C, H, W), as one picture."""
    grid = torch.cat([torch.cat(list(row), dim=-1) for row in rows], dim=-2)
    pixels = ((grid.clamp(-1, 1) + 1) * 127.5).round().byte().permute(1, 2, 0).cpu().numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels).save(path)
