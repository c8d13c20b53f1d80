"""The bar over the tiles of one picture."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import firm
from firm.operators import Identity
from firm.restoration import run


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
    monkeypatch.setattr(run, "progress_bar", lambda work=0, **how: work or made.append(Bar(**how)) or made[-1])
    return made


def restored(model, size, steps, samples=1, integrator="euler"):
    """Restore a picture of this size below a bar."""
    y = torch.zeros(1, 3, *size)
    job = run.Job(model, None, steps, samples, 0, Path(), integrator=integrator, bars=True)
    with run._tile_bar(job, SimpleNamespace(op=Identity(), y=y)):
        firm.restore(model, Identity(), y, steps, samples, sigma=0.1, integrator=integrator)


@pytest.mark.parametrize(("size", "tiles"), [((5, 7), 1), ((64, 40), 6)])
@pytest.mark.parametrize("samples", [1, 3])
def test_every_tile_counts(model_file, bars, monkeypatch, size, tiles, samples):
    monkeypatch.setattr("firm._restore.AT_ONCE", 2 * size[0] * size[1])  # two samples at a time
    model = firm.tiled(firm.load(model_file), 32, 8)
    restored(model, size, 2, samples)
    (bar,) = bars
    assert bar.n == bar.total == tiles * model.calls(2) * (1 if samples == 1 else 2)
    steps = [f"step {i} of 2" for i in (1, 2)]
    expected = steps if samples == 1 else [f"sample {s} of 3, {step}" for s in (1, 3) for step in steps]
    assert list(dict.fromkeys(bar.said)) == expected
    assert bar.options["delay"] > 0  # short work needs no bar
    assert model.estimator.on_tile is None  # nothing is left behind


@pytest.mark.parametrize("integrator", ["midpoint", "heun"])
def test_steps_of_two_evaluations_count_twice(model_file, bars, integrator):
    model = firm.tiled(firm.load(model_file), 32, 8)
    restored(model, (32, 32), 3, integrator=integrator)
    K = model.solver.K
    assert bars[0].n == bars[0].total == {"midpoint": 6, "heun": 5}[integrator] * K
    last = {"midpoint": 2, "heun": 1}[integrator] * K  # Heun ends with an Euler step
    assert bars[0].said == [*["step 1 of 3"] * 2 * K, *["step 2 of 3"] * 2 * K, *["step 3 of 3"] * last]


def test_one_picture_on_the_command_line_has_a_bar_and_a_model_without_tiles_none(folder, restore, model_file, bars):
    restored(firm.load(model_file), (8, 8), 1)
    assert bars == []
    restore(folder / "000.png", "--task", "deblurring", "--blur", 1, "--sigma", 0.1)
    assert bars[0].n == bars[0].total > 0
