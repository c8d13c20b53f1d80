"""Training on a GPU: the step as a CUDA graph against the plain one, and a run that is broken off."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from firm._util.machine import Ranks
from firm.training.config import dump_config
from firm.training.feed import load_sets
from firm.training.step import GraphedGradients
from firm.training.trainer import Trainer

pytestmark = pytest.mark.cuda
GPU = Ranks(0, 1, torch.device("cuda"))
COMMON = ["compile=false", "deterministic=true", "steps_per_epoch=4", "warm_start_epochs=1", "epochs=3", "lr=1e-3"]


@pytest.fixture(autouse=True)
def _exact():
    """Convolutions in float32: by themselves they would round to TF32."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        yield


def mixture():
    """The tasks of face-128, for pictures of 16 pixels."""
    text = (Path(__file__).parents[2] / "configs" / "face-128.yaml").read_text()
    smaller = {"box": [2, 7], "width": [1, 3], "lines": [3, 6]}
    entries = [{**entry, "weight": 1} for entry in yaml.safe_load(text)["mixture"]]
    return [{key: smaller.get(key, value) for key, value in entry.items()} for entry in entries]


NETWORK = "network={ch: 8, mult: [1, 2], blocks: 1, attention: [8], groups: 4, noise_level: true}"
KINDS = {
    "paper": ["objective=paper"],
    "balanced": ["objective=balanced", "output=correction", "flips=true", "crop=random", "read_size=20"],
    "mixture": [f"mixture={mixture()}", NETWORK, "objective=balanced", "output=correction", "batch_size=14"],
    "muon": ["optimizer=muon", "objective=balanced"],
    "prior": ["objective=prior", "pairing=optimal"],
}


def trained(config, steps):
    """The trainer after some steps, and its losses."""
    trainer = Trainer(config, GPU, load_sets(config, progress=False)[0])
    losses = [trainer.advance()[0].item() for _ in range(steps)]
    trainer.feed.close()
    return trainer, losses


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_graphed_step_is_the_plain_one(kind, mapped, make, tmp_path):
    """Losses and weights, over the change from the warm start to the solver; also of images read ahead."""
    settings = [*COMMON, *KINDS[kind], f"memory_map={str(mapped).lower()}", f"cache={tmp_path / 'cache'}"]
    (graphed, found), (plain, expected) = (
        trained(make(*settings, f"cuda_graph={switch}"), 7) for switch in ("true", "false")
    )
    assert isinstance(graphed.gradients, GraphedGradients)
    assert not isinstance(plain.gradients, GraphedGradients)
    assert found == pytest.approx(expected, rel=1e-3)
    start = Trainer(make(*settings), GPU, load_sets(make(*settings), progress=False)[0]).params
    a, b, c = (torch.cat([p.detach().flatten() for p in params]) for params in (graphed.params, plain.params, start))
    # Of the way that the weights have gone: Adam makes full steps of gradients that are hardly more than rounding.
    assert float((a - b).norm() / (b - c).norm()) < 0.02
    if plain.loss.balance is not None:
        torch.testing.assert_close(graphed.loss.balance.error, plain.loss.balance.error, rtol=1e-3, atol=1e-5)


def test_broken_gradients_are_skipped_on_the_device(make):
    config = make(*COMMON)
    trainer = Trainer(config, GPU, load_sets(config, progress=False)[0])
    trainer.advance()
    before = [p.detach().clone() for p in trainer.params]
    real = trainer.gradients

    def broken(t, warm, read):
        loss = real(t, warm, read)
        trainer.params[0].grad.fill_(float("nan"))
        return loss

    trainer.gradients = broken
    trainer.advance()
    assert int(trainer.skipped) == 1
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.params, strict=True))


PROGRAM = """
import sys, torch, firm
from firm._util.machine import Ranks
from firm.training.config import load_config
from firm.training.loop import train
from firm.training.step import GraphedGradients
from firm.training.trainer import Trainer

gpu, advance = Ranks(0, 1, torch.device("cuda")), Trainer.advance

def breaking(self):
    if self.step == 7:
        raise KeyboardInterrupt
    return advance(self)

for graph in ("true", "false"):
    configs = [load_config(sys.argv[1], [f"out={sys.argv[2]}/{name}-{graph}", f"cuda_graph={graph}"]) for name in "ab"]
    train(configs[0], gpu, progress=False)
    Trainer.advance = breaking
    try:
        train(configs[1], gpu, progress=False)
    except KeyboardInterrupt:
        Trainer.advance = advance
    assert train(configs[1], gpu, progress=False)["steps_now"] == 12 - 6
    whole, resumed = (firm.load(f"{sys.argv[2]}/{n}-{graph}/model.safetensors").state_dict() for n in "ab")
    print(graph, all(torch.equal(whole[key], resumed[key]) for key in whole), flush=True)
"""


def test_a_deterministic_run_goes_on_bit_identical(make, tmp_path):
    """In a process of its own: cuBLAS must be told before its first call."""
    config = make(*COMMON, "deterministic=true", "objective=balanced", "checkpoint_every=3", "val_images=0")
    (tmp_path / "c.yaml").write_text(dump_config(config))
    environment = {key: value for key, value in os.environ.items() if key != "CUBLAS_WORKSPACE_CONFIG"}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "c.yaml"), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["true", "True", "false", "True"]
