"""`firm reproduce toy` end to end, with few training steps."""

import json

import pytest
import torch
from typer.testing import CliRunner

import firm
from firm.cli import app
from firm.reproduce import toy as experiment


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("toy")
    result = CliRunner().invoke(app, ["reproduce", "toy", "--out", str(out), "--steps", "1200", "--seed", "1"])
    assert result.exit_code == 0, result.output
    return out, result.output


def test_writes_everything(run):
    out, printed = run
    assert {p.name for p in out.iterdir()} == {"posterior.png", "steps.png", "results.json", "toy.safetensors"}
    for word in ("paper", "ours, learned", "exact field", "W1(v)", "mode weights"):
        assert word in printed


def test_training_learns(run):
    """1200 steps are few, but far better than no training: several steps separate the modes, one does not."""
    results = json.loads((run[0] / "results.json").read_text())
    learned = results["learned"]
    assert learned["1"]["valley"] > 0.6
    assert learned["50"]["valley"] < 0.3
    assert learned["50"]["w1"] < 0.6 < learned["1"]["w1"]
    assert results["settings"]["steps"] == 1200
    assert results["machine"]["torch"] == torch.__version__


def test_the_saved_model_loads_and_samples_the_same(run):
    results = json.loads((run[0] / "results.json").read_text())
    model = firm.load(run[0] / "toy.safetensors")
    assert experiment.summary(experiment.draw(model, 1.5, 4, seed=1), 1.5) == results["learned"]["4"]


def test_the_bundled_model_recovers_the_posterior():
    """What a full run must reach (the paper at N = 50: W1 0.11, valley 0.5 %, weights 0.49/0.51)."""
    model = firm.load("toy")
    for u in (1.5, -1.5):
        many = experiment.summary(experiment.draw(model, u, 50, seed=5), u)
        assert many["w1"] <= 0.08
        assert many["valley"] <= 0.01
        assert max(abs(w - 0.5) for w in many["weights"]) <= 0.03
        assert many["u off by"] <= 0.02
        assert experiment.summary(experiment.draw(model, u, 1, seed=5), u)["valley"] > 0.998


def test_training_is_deterministic():
    first, again, other = (experiment.train(seed, steps=30) for seed in (1, 1, 2))
    weights = [torch.cat([p.flatten() for p in model.parameters()]) for model in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
