import threading

import pytest
import torch
from helpers import save_pictures

from firm._util.machine import Ranks
from firm.training.config import TrainConfig, load_config
from firm.training.feed import load_sets
from firm.training.loop import train
from firm.training.trainer import Trainer

TINY = """
dataset: folder
size: 16
network: {ch: 8, mult: [1, 2], blocks: 1, attention: [], groups: 4, time_scale: 100}
K: 2
batch_size: 8
epochs: 4
steps_per_epoch: 10
warm_start_epochs: 1
ema_from_epoch: 1
ema_decay: 0.9
lr: 2e-3
lr_end: 1e-5
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


@pytest.fixture
def fit(make):
    """Train a configuration, or the tiny one with changes, in this process; returns the last numbers."""

    def run(*overrides, **out):
        config = overrides[0] if isinstance(overrides[0], TrainConfig) else make(*overrides, **out)
        return train(config, Ranks(0, 1, torch.device("cpu")), progress=False)

    return run


@pytest.fixture
def make_trainer(make):
    """Build the trainer of a configuration, or the tiny one with changes; on its own pictures, or on `images`."""

    def build(*overrides, images=None):
        config = overrides[0] if overrides and isinstance(overrides[0], TrainConfig) else make(*overrides)
        return Trainer(config, Ranks(0, 1, torch.device("cpu")), images or load_sets(config, progress=False)[0])

    return build


@pytest.fixture
def short(make):
    """A run of four steps with checkpoints after 2 and 4."""
    return make("epochs=1", "val_images=0", "steps_per_epoch=4", "checkpoint_every=2", "log_every=1")


@pytest.fixture
def interrupted(monkeypatch):
    """Train, break off after some steps as a crash does, and go on; returns what the second run tells."""

    def run(config, steps):
        ranks, advance = Ranks(0, 1, torch.device("cpu")), Trainer.advance

        def breaking(self):
            if self.step == steps:
                raise KeyboardInterrupt
            return advance(self)

        monkeypatch.setattr(Trainer, "advance", breaking)
        with pytest.raises(KeyboardInterrupt) as caught:
            train(config, ranks, progress=False)
        assert caught.traceback  # it keeps the run alive: what is closed now, the run closed
        assert not [thread for thread in threading.enumerate() if thread.name == "firm-prefetch"]
        monkeypatch.setattr(Trainer, "advance", advance)
        return train(config, ranks, progress=False)

    return run
