"""The bar over the tiles of one picture."""

from types import SimpleNamespace

import pytest
import torch

import firm
from firm._restore import batches
from firm.operators import Identity
from firm.restoration import progress
from firm.restoration.tiling import Tiled


class Bar:
    """In place of tqdm's."""

    def __init__(self, total, **options):
        self.n, self.total, self.options, self.said = 0, total, options, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def set_description(self, text, refresh):
        self.said.append(text)

    def update(self):
        self.n += 1


@pytest.fixture
def bars(monkeypatch):
    made = []
    monkeypatch.setattr(progress, "progress_bar", lambda **options: made.append(Bar(**options)) or made[-1])
    return made


@pytest.mark.parametrize("samples", [1, 3])
def test_every_tile_counts(model_file, bars, monkeypatch, samples):
    monkeypatch.setattr("firm._restore.AT_ONCE", 2 * 70 * 100)  # two samples at a time
    model = firm.tiled(firm.load(model_file), 32, 8)
    y = torch.zeros(1, 3, 70, 100)
    with progress.tile_bar(model, (70, 100), 2, batches(y, samples)):
        firm.restore(model, Identity(), y, 2, samples, sigma=0.1)
    bar = bars[0]
    assert model.estimator.count(70, 100) == 3 * 4
    assert bar.n == bar.total == 12 * model.calls(2) * (1 if samples == 1 else 2)
    steps = [f"step {i} of 2" for i in (1, 2)]
    expected = steps if samples == 1 else [f"sample {s} of 3, {step}" for s in (1, 3) for step in steps]
    assert list(dict.fromkeys(bar.said)) == expected
    assert bar.options["delay"] > 0  # short work needs no bar
    assert model.estimator.on_tile is None  # nothing is left behind


@pytest.mark.parametrize("method", ["midpoint", "heun"])
def test_steps_of_two_evaluations_count_twice(model_file, bars, method):
    model = firm.tiled(firm.load(model_file), 32, 8)
    y = torch.zeros(1, 3, 32, 32)
    with progress.tile_bar(model, (32, 32), 3, [1], method):
        firm.restore(model, Identity(), y, 3, sigma=0.1, integrator=method)
    K = model.solver.K
    assert bars[0].n == bars[0].total == {"midpoint": 6, "heun": 5}[method] * K
    last = {"midpoint": 2, "heun": 1}[method] * K  # Heun ends with an Euler step
    assert bars[0].said == [*["step 1 of 3"] * 2 * K, *["step 2 of 3"] * 2 * K, *["step 3 of 3"] * last]


def test_a_model_without_tiles_has_no_bar(bars):
    with progress.tile_bar(SimpleNamespace(estimator=torch.nn.Identity()), (8, 8), 1, [1]):
        pass
    assert bars == []


@pytest.mark.parametrize("size", [(5, 7), (32, 32), (33, 31), (64, 40), (200, 65)])
def test_the_count_is_that_of_the_calls(size):
    calls = []

    class Net(torch.nn.Module):
        stride = 4

        def forward(self, x, t):
            calls.append(x.shape)
            return x

    tiled = Tiled(Net(), 32, 8)
    tiled(torch.zeros(1, 3, *size), torch.zeros(1))
    assert tiled.count(*size) == len(calls)


def test_one_picture_on_the_command_line_has_a_bar(folder, model_file, tmp_path, bars):
    from typer.testing import CliRunner

    from firm.cli import app

    words = [folder / "000.png", "--task", "deblurring", "--blur", 1, "--sigma", 0.1, "--model", model_file]
    result = CliRunner().invoke(app, ["restore", *map(str, words), "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert bars[0].n == bars[0].total > 0
