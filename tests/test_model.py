"""A model and its settings; its file is tested in test_model_file.py, several samples in test_restore_samples.py."""

import pytest
import torch
from helpers import stirred

import firm
from firm.operators import Identity

TINY = dict(side=16, ch=8, mult=(1, 2), blocks=1, groups=4, attention=(8,))


def tiny_model(**settings):
    net = stirred(firm.UNet(1, **{**TINY, **settings}), 0.2)
    return firm.Firm(net, firm.Solver(K=3, rho=0.02, beta=0.4, output="correction"), {"trained_for": ["denoising"]})


def test_the_noise_level_goes_to_networks_that_take_it():
    y = torch.randn(2, 1, 16, 16)
    knows, plain = tiny_model(noise_level=True), tiny_model()
    a, b = (firm.restore(knows, Identity(), y, sigma=s).image for s in (0.1, torch.tensor([0.1, 0.3])))
    torch.testing.assert_close(a[0], b[0])
    assert not torch.allclose(a[1], b[1])
    with pytest.raises(ValueError, match="needs sigma"):
        firm.restore(knows, Identity(), y)
    assert torch.equal(firm.restore(plain, Identity(), y, sigma=0.1).image, firm.restore(plain, Identity(), y).image)


def test_a_model_without_the_solver_is_flow_only():
    net = tiny_model().estimator
    x_t, y = torch.randn(2, 1, 1, 16, 16)
    model = firm.Firm(net, firm.Solver(K=0))
    expected = firm.flow_only(net, Identity(), x_t, 0.3, y)
    torch.testing.assert_close(model.posterior_mean(Identity(), x_t, 0.3, y), expected)
    assert model.calls(4) == 4


@pytest.mark.parametrize("wrong", [{"K": -1}, {"rho": 0.0}, {"beta": 2.0}, {"output": "image"}])
def test_solver_settings_are_checked(wrong):
    with pytest.raises(ValueError, match="need K >= 0, rho > 0"):
        firm.Solver(**wrong)


def test_the_bundled_models_load():
    assert firm.bundled() == ["cat-256", "face-128", "photo", "toy"]
    cat, face, photo, toy = (firm.load(name) for name in firm.bundled())
    assert sum(p.numel() for p in face.estimator.parameters()) == pytest.approx(8.2e6, rel=0.01)
    assert [e["name"] for e in face.card["trained_for"]][:2] == ["denoising", "deblurring"]
    assert not face.training
    assert photo.estimator.config["extra"] == ("previous", "context", "iteration")
    assert {e["name"] for e in photo.card["trained_for"]} >= {"denoising", "motion-deblurring", "stroke-inpainting"}
    assert (cat.card["size"], cat.card["name"]) == (256, "cat-256")
    assert {e["name"] for e in cat.card["trained_for"]} >= {"fourier", "box-inpainting"}
    assert type(toy.estimator).__name__ == "MLP"
    with pytest.raises(FileNotFoundError, match=r"no model 'face-12': .*bundled model \(cat-256, face-128, photo\)"):
        firm.load("face-12")
