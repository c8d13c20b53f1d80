"""`firm reproduce toy` end to end, with few training steps."""

import json

import pytest
from helpers import call, same

import firm
from experiments.shared import Settings
from experiments.toy import study as experiment


@pytest.fixture(scope="module")
def small():
    """Smaller batches and fewer samples than the study's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "BATCH", 128)
        patch.setattr(experiment, "SAMPLES", 1000)
        yield


@pytest.fixture(scope="module")
def run(small, tmp_path_factory):
    out = tmp_path_factory.mktemp("studies")
    result = call("reproduce", "toy", "--out", out, "--training", 1200, "--seed", 1)
    assert result.exit_code == 0, result.output
    return out / "toy"


def test_training_learns(run):
    """1200 steps are few, but far better than no training: several steps separate the modes, one does not."""
    assert {p.name for p in run.iterdir()} == {
        "posterior.png", "steps.png", "results.json", "table.md", "table.tex", "toy.safetensors",
    }  # fmt: skip
    results = json.loads((run / "results.json").read_text())
    learned = results["numbers"]["learned"]
    assert learned["1"]["valley"] > 0.6
    assert learned["50"]["valley"] < 0.3
    assert learned["50"]["w1"] < 0.6 < learned["1"]["w1"]
    assert results["numbers"]["settings"]["steps"] == 1200
    assert (results["seed"], results["quick"]) == (1, False)


def test_the_saved_model_loads_and_samples_the_same(run):
    results = json.loads((run / "results.json").read_text())
    model = firm.load(run / "toy.safetensors")
    assert experiment.summary(experiment.draw(model, 1.5, 4, seed=1), 1.5) == results["numbers"]["learned"]["4"]
    first, again, other = (experiment.train(seed, steps=30).state_dict() for seed in (1, 1, 2))
    assert same(first, again)
    assert not same(first, other)


def test_the_table_is_that_of_the_numbers_beside_the_papers(run):
    """The paper's: W1 1.44, 0.44, 0.13, 0.11; mass in the valley 100, 23, 7, 0.5 %; no weights of a single mode."""
    results = json.loads((run / "results.json").read_text())
    lines = {line["label"]: line for line in results["tables"][0]["lines"]}
    assert list(lines) == [f"N = {N}{field}" for N in (1, 2, 4, 50) for field in ("", ", exact field")]
    assert [lines[f"N = {N}"]["paper"]["w1"] for N in (1, 2, 4, 50)] == [1.44, 0.44, 0.13, 0.11]
    assert lines["N = 1"]["paper"] == {"w1": 1.44, "valley": "100.0%", "weights": "-", "modes": "0.00"}
    assert lines["N = 4"]["paper"] == {"w1": 0.13, "valley": "7.0%", "weights": "0.52/0.48", "modes": "-1.45/1.45"}
    for N in (1, 2, 4, 50):
        assert lines[f"N = {N}"]["ours"]["w1"] == results["numbers"]["learned"][str(N)]["w1"]
        assert lines[f"N = {N}, exact field"]["ours"]["w1"] == results["numbers"]["exact"][str(N)]["w1"]
        assert lines[f"N = {N}, exact field"]["paper"] == {}


def test_quick_takes_the_bundled_network(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "train", lambda *_: pytest.fail("trained"))
    monkeypatch.setattr(experiment, "SAMPLES", 200)
    for figure in ("posterior_figure", "steps_figure"):
        monkeypatch.setattr(experiment, figure, lambda *_: None)
    results = experiment.study(Settings(tmp_path, quick=True), "toy")
    assert results["quick"] is True
    assert results["numbers"]["settings"] == "the bundled network"
    assert not (tmp_path / "toy" / "toy.safetensors").exists()
    few = experiment.summary(experiment.draw(firm.load("toy"), 1.5, 50, seed=0), 1.5)
    assert results["numbers"]["learned"][50] == few


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
