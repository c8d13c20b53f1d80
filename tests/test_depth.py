"""The number of iterations K chosen when restoring: the same model, another depth of Algorithm 3."""

import warnings

import pytest
import torch
from helpers import stirred

import firm
from firm.operators import Identity


def model_of(K, **card):
    torch.manual_seed(0)
    net = firm.UNet(1, side=16, ch=8, mult=(1, 2), blocks=1, groups=4, attention=())
    return firm.Firm(stirred(net, 0.2), firm.Solver(K=K, output="correction"), card)


@pytest.fixture
def y():
    return torch.randn(2, 1, 16, 16, generator=torch.Generator().manual_seed(1)).clamp(-1, 1)


@pytest.mark.parametrize("make", [lambda model: model, firm.fast, firm.tiled], ids=["plain", "fast", "tiled"])
def test_a_depth_chosen_when_restoring_is_that_of_a_model_made_so(make, y):
    taught, three = make(model_of(5, depths=[1, 2, 3, 4, 5])), make(model_of(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        r = firm.restore(taught, Identity(), y, steps=2, iterations=3)
    assert torch.equal(r.image, firm.restore(three, Identity(), y, steps=2).image)
    assert r.nfe == 6
    assert taught.solver.K == 5
    assert not torch.equal(r.image, firm.restore(taught, Identity(), y, steps=2).image)
    seeds = [torch.Generator().manual_seed(0) for _ in range(2)]
    chosen, expected = (
        firm.sample(m, Identity(), y, generator=g, **depth)
        for m, depth, g in zip((taught, three), ({"iterations": 3}, {}), seeds, strict=True)
    )
    assert torch.equal(chosen, expected)


def test_a_depth_it_was_not_trained_for_is_told(y):
    with pytest.warns(UserWarning, match="trained for 5 iterations, not for 3"):
        firm.restore(model_of(5), Identity(), y, iterations=3)
    with pytest.warns(UserWarning, match="trained for 1 or 2 iterations, not for 4"):
        firm.restore(model_of(2, depths=[1, 2]), Identity(), y, iterations=4)


@pytest.mark.parametrize("K", [0, -1, 2.5, True, "3", 10**6])
def test_depths_that_are_none(K, y):
    with pytest.raises(ValueError, match="iterations must be a whole number from 1"):
        firm.restore(model_of(2), Identity(), y, iterations=K)


def test_what_is_no_firm_has_no_depth(y):
    class Constant:
        def posterior_mean(self, op, x_t, t, y, *, sigma=None):
            return torch.zeros_like(x_t)

    assert not firm.sample(Constant(), Identity(), y, steps=1).any()
    with pytest.raises(ValueError, match="iterations= and quality= are for a"):
        firm.sample(Constant(), Identity(), y, iterations=2)


def test_the_card_of_a_file_names_depths(tmp_path):
    model_of(2, depths=[1, 2]).save(tmp_path / "good.safetensors")
    assert firm.load(tmp_path / "good.safetensors").with_iterations(1).solver.K == 1
    model_of(2, depths="all").save(tmp_path / "bad.safetensors")
    with pytest.raises(ValueError, match="'depths' is 'all'"):
        firm.load(tmp_path / "bad.safetensors")


PRESETS = {"fast": [1, 3], "faithful": [2, 1], "detailed": [4, 2]}


@pytest.mark.parametrize(
    ("given", "pair"),
    [({}, (2, 5)), ({"quality": "faithful"}, (2, 1)), ({"quality": "fast"}, (1, 3)), ({"quality": "detailed"}, (4, 2)),
     ({"steps": 7}, (7, 5)), ({"iterations": 2}, (2, 2)), ({"quality": "detailed", "steps": 3}, (3, 2)),
     ({"quality": "detailed", "iterations": 1}, (4, 1)), ({"quality": "fast", "steps": 2, "iterations": 2}, (2, 2))],
)  # fmt: skip
def test_a_quality_is_a_pair_of_steps_and_iterations(given, pair, y):
    """Without one: the steps of "faithful", and the model's own K."""
    model = model_of(5, depths=[1, 2, 3], presets=PRESETS)
    (N, K), (chosen, steps) = pair, model.at(**given)
    assert (steps, chosen.solver.K) == pair
    found = firm.restore(model, Identity(), y, **given)
    assert found.nfe == N * K
    assert torch.equal(found.image, firm.restore(model_of(K), Identity(), y, N).image)
    generators = [torch.Generator().manual_seed(0) for _ in range(2)]
    drawn = firm.sample(model, Identity(), y, generator=generators[0], **given)
    assert torch.equal(drawn, firm.sample(model_of(K), Identity(), y, N, generator=generators[1]))


def test_a_model_without_presets_takes_1_2_and_25_steps():
    model = model_of(3)
    assert [model.at(quality)[1] for quality in ("fast", None, "faithful", "detailed")] == [1, 2, 2, 25]
    assert all(model.at(quality)[0] is model for quality in ("fast", None, "faithful", "detailed"))
    with pytest.raises(ValueError, match="quality must be one of fast, faithful, detailed, got 'best'"):
        model.at("best")


@pytest.mark.parametrize(
    "presets",
    [[1, 2], {"fast": [1, 3]}, {**PRESETS, "best": [9, 9]}, {**PRESETS, "fast": [1]}, {**PRESETS, "fast": [0, 3]},
     {**PRESETS, "fast": [1, 2.5]}, {**PRESETS, "fast": "13"}, {**PRESETS, "fast": [1, True]}],
)  # fmt: skip
def test_presets_that_are_none_are_refused(presets, tmp_path):
    model_of(2, presets=PRESETS).save(tmp_path / "good.safetensors")
    assert firm.load(tmp_path / "good.safetensors").at("detailed")[1] == 4
    model_of(2, presets=presets).save(tmp_path / "bad.safetensors")
    with pytest.raises(ValueError, match="the card of the model is not valid: 'presets' is"):
        firm.load(tmp_path / "bad.safetensors")


def test_a_warning_names_the_line_that_asked(y):
    """However the model was asked, it is this file that the reader has to look at."""
    model = model_of(2)
    for ask in (
        lambda: firm.restore(model, Identity(), y, 1, iterations=3),
        lambda: firm.sample(model, Identity(), y, 1, iterations=3),
        lambda: model.at("fast", iterations=3),
        lambda: model.with_iterations(3),
        lambda: firm.restore(model, Identity(), y, 1, sigma=9.0),
    ):
        with pytest.warns(UserWarning, match="trained for|sigma 9") as told:
            ask()
        assert {warning.filename for warning in told} == {__file__}


def test_a_reconstructor_has_the_depth_it_was_made_with(y):
    deepinv = pytest.importorskip("deepinv")
    make, physics = firm.restoration.as_reconstructor, deepinv.physics.Denoising(deepinv.physics.GaussianNoise(0.1))
    taught, two = make(model_of(3, depths=[1, 2, 3]), iterations=2), make(model_of(2))
    assert torch.equal(taught(y / 2 + 0.5, physics), two(y / 2 + 0.5, physics))
