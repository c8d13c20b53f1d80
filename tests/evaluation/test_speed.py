"""``firm bench sample`` measures what it says."""

import json

import pytest
import torch
from helpers import Counted, Shrink, call, says

import firm
from firm.bench import sampling as speed


@pytest.fixture
def sampled(tmp_path, monkeypatch):
    """What the command finds for a model, with these batches and numbers of steps."""

    def run(model, batches, steps):
        monkeypatch.setitem(speed.BATCHES, "cpu", batches)
        model.save(tmp_path / "m.safetensors")
        out = tmp_path / "speed.json"
        done = call("bench", "sample", tmp_path / "m.safetensors", "--steps", steps, "--seconds", 0.02, "--out", out)
        assert done.exit_code == 0, done.output
        return json.loads(out.read_text())

    return run


def test_rows_for_every_number_of_steps(sampled):
    net = firm.UNet(3, side=16, ch=8, mult=(1,), blocks=1, attention=(), groups=4)
    found = sampled(firm.Firm(net, firm.Solver(K=2)), (1, 2), "1,3")
    for mode in ("naive", "fast"):
        best = found[f"best batch, {mode}"]
        mine = [(row["batch"], row["N"], row["nfe"]) for row in found["rows"] if row["mode"] == mode]
        assert mine == [(b, N, 2 * N) for b in dict.fromkeys((1, best)) for N in (1, 3)]
    for row in found["rows"]:
        assert abs(row["images/s"] * row["ms an image"] / 1000 - 1) < 0.05


def test_the_size_is_the_cards(sampled):
    """A ResUNet is made for no size; the card says for which one it was trained."""
    model = firm.Firm(firm.networks.ResUNet(widths=(4, 8), blocks=1), firm.Solver(K=1), {"size": 24})
    assert sampled(model, (1,), 1)["size"] == 24


def test_the_toy_is_refused():
    result = call("bench", "sample", "toy")
    assert (result.exit_code, says(result.output, "does not restore pictures")) == (2, True)


def test_measure_counts_network_calls():
    net = Counted(Shrink())
    net.config, net.weight = {"channels": 3}, torch.nn.Parameter(torch.zeros(()))
    numbers = speed._measure(firm.Firm(net, firm.Solver(K=2)), firm.Task("denoising", 8), 3, 4, 0.0)
    assert numbers["images/s"] > 0
    assert net.forwards == 3 * 2 * 3  # two to warm up and one measured, each 3 steps of 2 calls
