import pytest
from helpers import save_pictures

from firm.training.config import load_config

TINY = """
dataset: folder
size: 16
network: {ch: 8, mult: [1, 2], blocks: 1, attention: [], groups: 4, time_scale: 100}
K: 2
batch: 8
epochs: 4
steps_per_epoch: 10
warm_epochs: 1
ema_from_epoch: 1
ema_decay: 0.9
rate: 2e-3
rate_end: 1e-5
val_images: 4
bf16: false
validate_every: 0
checkpoint_every: 5
log_every: 5
seed: 7
"""


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """A folder of smooth random pictures."""
    return save_pictures(tmp_path_factory.mktemp("pictures"), 64, (20, 20))


@pytest.fixture(scope="session")
def tiny():
    """The settings of a small run, without its data."""
    return TINY


@pytest.fixture
def config_file(tmp_path, pictures):
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY + f"data: {pictures}\n")
    return path


@pytest.fixture
def make(config_file, tmp_path):
    """Build a tiny configuration with changes."""

    def build(*overrides, out="run"):
        return load_config(config_file, [f"out={tmp_path / out}", *overrides])

    return build
