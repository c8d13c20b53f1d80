"""The toy problem with photon noise: its exact posterior against simulation, and the study end to end."""

import json

import pytest
import torch
from helpers import call

import firm
from experiments.toy_photons import problem as toy


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def simulated():
    """Points of the prior with 5 photons counted: samples of the posterior that use no formula of it."""
    x = toy.sample_prior(400_000, generator())
    counts = ((toy.measure(x, generator(1))[:, 0] + toy.OFFSET) / toy.GAIN).round()
    return x[counts == 5]


def test_the_posterior_is_that_of_what_was_counted(simulated):
    assert len(simulated) > 10_000
    for coordinate in (0, 1):
        assert toy.wasserstein(simulated[:, coordinate], toy.measurement(5), coordinate) < 0.03
    dark = (simulated[:, 0] < 0).float().mean()
    assert 0.3 < dark < 0.8  # both modes
    assert toy.wasserstein(simulated[:, 0] + 0.1, toy.measurement(5), 0) > 0.09


def test_the_exact_mean_is_that_of_the_posterior_samples(simulated):
    """E[x_1 | x_t, y] by weighting them with N(x_t; t x_1, (1 - t)^2)."""
    for t, x_t in ((0.0, [0.3, -0.2]), (0.4, [0.2, 0.1]), (0.7, [1.0, -0.9])):
        state = torch.tensor([x_t])
        weight = (-((state - t * simulated) / (1 - t)).square().sum(1) / 2).softmax(0)
        y = toy.measurement(5)[None]
        found = toy.ExactField().posterior_mean(toy.operator(), state, t, y)[0]
        torch.testing.assert_close(found, weight @ simulated, rtol=0, atol=0.05)


def test_the_exact_field_leads_to_the_posterior():
    y = toy.measurement(5).expand(2000, 2)
    x = firm.sample(toy.ExactField(), toy.operator(), y, 30, sigma=toy.NOISE, generator=generator())
    assert toy.wasserstein(x[:, 0], y[0], 0) < 0.1
    assert toy.wasserstein(x[:, 1], y[0], 1) < 0.1


def test_the_study_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.toy_photons.study.SAMPLES", 200)
    call("reproduce", "toy-photons", "--training", 20, "--out", tmp_path)
    results = json.loads((tmp_path / "toy-photons" / "results.json").read_text())
    assert results["numbers"]["learned"]["50"]["u 5"] > results["numbers"]["exact samples"]["u 5"]
    assert firm.load(tmp_path / "toy-photons" / "toy-photons.safetensors").solver.K == 2
