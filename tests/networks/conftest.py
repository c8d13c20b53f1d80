"""Tiny trainings of the baselines' networks."""

import pytest
from helpers import save_pictures

from firm.training.config import load_config

TINY = """
dataset: folder
size: 16
batch_size: 8
epochs: 4
steps_per_epoch: 10
warm_start_epochs: 0
ema_from_epoch: 1
ema_decay: 0.9
lr_end: 1e-5
val_images: 8
bf16: false
validate_every: 0
log_every: 5
seed: 7
"""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return save_pictures(tmp_path_factory.mktemp("pictures"), 32, (20, 20))


@pytest.fixture
def make(request, tmp_path, pictures):
    """A tiny configuration with the changes in the test file's `TRAINING`, and further ones."""
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY + f"data: {pictures}\n")
    return lambda *changes: load_config(path, [f"out={tmp_path / 'run'}", *request.module.TRAINING, *changes])
