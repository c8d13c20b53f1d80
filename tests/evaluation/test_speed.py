"""``firm bench sample`` measures what it says."""

import json

import torch
from helpers import says
from typer.testing import CliRunner

import firm
from firm.bench import sampling as speed
from firm.cli import app


def test_rows_for_every_number_of_steps(tmp_path, monkeypatch):
    monkeypatch.setitem(speed.BATCHES, "cpu", (1, 2))
    net = firm.UNet(3, side=16, ch=8, mult=(1,), blocks=1, attention=(), groups=4)
    firm.Firm(net, firm.Solver(K=2)).save(tmp_path / "m.safetensors")
    out = tmp_path / "speed.json"
    arguments = ["bench", "sample", str(tmp_path / "m.safetensors"), "--steps", "1,3", "--seconds", "0.02"]
    result = CliRunner().invoke(app, [*arguments, "--out", str(out)])
    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text())
    for mode in ("naive", "fast"):
        best = found[f"best batch, {mode}"]
        mine = [(row["batch"], row["N"], row["nfe"]) for row in found["rows"] if row["mode"] == mode]
        assert mine == [(b, N, 2 * N) for b in dict.fromkeys((1, best)) for N in (1, 3)]
    for row in found["rows"]:
        assert abs(row["images/s"] * row["ms an image"] / 1000 - 1) < 0.05
    single = {row["N"]: row["ms an image"] for row in found["rows"] if row["mode"] == "naive" and row["batch"] == 1}
    assert single[3] > single[1]


def test_the_toy_is_refused():
    result = CliRunner().invoke(app, ["bench", "sample", "toy"])
    assert result.exit_code == 2
    assert says(result.output, "does not restore pictures")


def test_measure_counts_network_calls(monkeypatch):
    calls = []

    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))
            self.config = {"channels": 3}

        def forward(self, x, x_t, t):
            calls.append(len(x))
            return x

    model = firm.Firm(Counting(), firm.Solver(K=2))
    numbers = speed.measure(model, firm.Task("denoising", 8), 3, 4, 0.0)
    assert numbers["images/s"] > 0
    assert calls == [4] * (3 * 2 * 3)  # two to warm up and one measured, each 3 steps of 2 calls


def test_the_size_is_the_cards(tmp_path, monkeypatch):
    """A ResUNet is made for no size; the card says for which one it was trained."""
    monkeypatch.setitem(speed.BATCHES, "cpu", (1,))
    model = firm.Firm(firm.networks.ResUNet(widths=(4, 8), blocks=1), firm.Solver(K=1), {"size": 24})
    model.save(tmp_path / "m.safetensors")
    words = [
        "bench",
        "sample",
        tmp_path / "m.safetensors",
        "--steps",
        1,
        "--seconds",
        0.02,
        "--out",
        tmp_path / "s.json",
    ]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "s.json").read_text())["size"] == 24
