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


def test_a_reconstructor_has_the_depth_it_was_made_with(y):
    deepinv = pytest.importorskip("deepinv")
    make, physics = firm.restoration.as_reconstructor, deepinv.physics.Denoising(deepinv.physics.GaussianNoise(0.1))
    taught, two = make(model_of(3, depths=[1, 2, 3]), iterations=2), make(model_of(2))
    assert torch.equal(taught(y / 2 + 0.5, physics), two(y / 2 + 0.5, physics))
