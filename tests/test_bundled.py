"""The bundled models."""

import pytest

import firm


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
