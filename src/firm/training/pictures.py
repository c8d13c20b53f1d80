"""The pictures of a run: those to train on, and those to validate with."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from firm.data import named_files, resident
from firm.training.config import ConfigError, TrainConfig


def load_pictures(config: TrainConfig, progress: bool) -> tuple[Tensor, Tensor]:
    """Training and validation pictures as bytes, (n, C, H, W).

    A folder without ``val_data`` gives its first pictures to validation.
    """
    if not config.data:
        raise ConfigError("data is not set: give the folder of the data set, data=DIR")
    files, crop = named_files(config.dataset, config.data, "train")
    files = files[: config.limit or None]
    if config.dataset != "folder" or config.val_data:
        held_out, _ = named_files(config.dataset, config.val_data or config.data, "val")
    else:
        held_out, files = files[: config.val_images], files[config.val_images :]
    if not files:
        raise ConfigError(f"{config.data}: no pictures left to train on after {config.val_images} for validation")

    def read(paths: list[Path]) -> Tensor:
        if not paths:
            return torch.zeros(0, config.channels, config.size, config.size, dtype=torch.uint8)
        pixels, _ = resident(
            paths, config.size, crop=crop, channels=config.channels, cache=config.cache or None, progress=progress
        )
        return pixels

    return read(files), read(held_out[: config.val_images])
