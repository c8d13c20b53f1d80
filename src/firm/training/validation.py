"""Validation: PSNR of the averaged model on held-out pictures, and a picture of the first few."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from firm.data import afhq_files, celeba_files, folder_files, resident
from firm.data.celeba import CROP
from firm.evaluation import Evaluation, baseline_methods, firm_method
from firm.evaluation.run import restore_chunk
from firm.metrics.psnr import psnr
from firm.model import Firm
from firm.tasks import Task
from firm.training.config import ConfigError, TrainConfig

SHOWN = 6  # pictures in a grid


def load_pictures(config: TrainConfig, progress: bool) -> tuple[Tensor, Tensor]:
    """Training and validation pictures as bytes, (n, C, H, W)."""
    if not config.data:
        raise ConfigError("data is not set: give the folder of the data set, data=DIR")
    held_out: list[Path] = []
    if config.dataset == "celeba":
        files, held_out = celeba_files(config.data, "train"), celeba_files(config.data, "val")
    elif config.dataset == "afhq":
        files, held_out = afhq_files(config.data, "train"), afhq_files(config.data, "val")
    else:
        files = folder_files(config.data)
        held_out = folder_files(config.val_data) if config.val_data else []
    files = files[: config.limit or None]
    if not held_out:
        held_out, files = files[: config.val_images], files[config.val_images :]
    if not files:
        raise ConfigError(f"{config.data}: no pictures left to train on after {config.val_images} for validation")
    crop = CROP if config.dataset == "celeba" else None

    def read(paths: list[Path]) -> Tensor:
        if not paths:
            return torch.zeros(0, config.channels, config.size, config.size, dtype=torch.uint8)
        pixels, _ = resident(
            paths, config.size, crop=crop, channels=config.channels, cache=config.cache or None, progress=progress
        )
        return pixels

    return read(files), read(held_out[: config.val_images])


def validate(model: Firm, config: TrainConfig, pixels: Tensor, picture: Path | None) -> dict[str, float]:
    """PSNR for every N of ``val_steps``, averaged over the pictures, per task and over the tasks."""
    tasks = [Task(entry["name"], config.size) for entry in config.tasks()]
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
                rows += [torch.cat([restored.truth, degraded, restored.x])[k :: len(pixels)] for k in range(SHOWN)][
                    : len(pixels)
                ]
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
