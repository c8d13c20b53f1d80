"""What the attacks share: the command line as a user has it, small pictures, a small training run and a small model."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

CONFIG = """
dataset: folder
size: 16
network: {ch: 8, mult: [1, 2], blocks: 1, attention: [], groups: 4, time_scale: 100}
K: 2
batch_size: 8
epochs: 3
steps_per_epoch: 20
warm_start_epochs: 1
ema_from_epoch: 1
lr: 2e-3
lr_end: 1e-5
val_images: 2
bf16: false
validate_every: 0
checkpoint_every: 5
log_every: 5
seed: 7
"""
Result = tuple[int, int, list[str]]  # how many held, of how many, what went wrong


def command_line(*arguments: object) -> list[str]:
    """``firm`` with these arguments."""
    return [sys.executable, "-m", "firm", *map(str, arguments)]


def environment() -> dict[str, str]:
    """That of the commands: one core each."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def firm_command(*arguments: object, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run ``firm`` as a user does."""
    command = command_line(*arguments)
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout, env=environment())


def begin(arguments: Sequence[object]) -> subprocess.Popen[bytes]:
    """Start ``firm``, and do not wait."""
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command_line(*arguments), stdout=quiet, stderr=quiet, env=environment())


def pictures(folder: Path, count: int, side: int, rng: random.Random) -> Path:
    """Smooth random pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        coarse = np.frombuffer(rng.randbytes(48), np.uint8).reshape(4, 4, 3)
        Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC).save(folder / f"{i:03d}.png")
    return folder


def tiny_config(folder: Path, rng: random.Random, more: str = "") -> Path:
    """The settings of a run of 60 steps, and its pictures."""
    data = pictures(folder / "data", 16, 20, rng)
    path = folder / "tiny.yaml"
    path.write_text(CONFIG + f"data: {data}\n{more}")
    return path


def tiny_model(path: Path) -> Path:
    """A network that is not trained, for every noise level."""
    import firm
    from firm.networks import UNet

    net = UNet(3, side=16, ch=8, mult=(1, 2), blocks=1, attention=(), groups=4, noise_level=True)
    card = {"channels": 3, "size": 16, "trained_for": [{"name": "denoising", "sigma": [0.0, 1.0]}]}
    firm.Firm(net, firm.Solver(K=1), card).save(path)
    return path
