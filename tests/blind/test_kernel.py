"""Which kind of blur a picture has, how sure that is, and what is refused."""

import pytest
import torch

from blind_helpers import alike, blurred, hook, leaves
from firm.blind import estimate_kernel, looks_moved
from firm.blind.kernel import _confidence
from firm.operators import gaussian_kernel, motion_kernel

CASES = {"gaussian": gaussian_kernel(13, 1.5), "motion": motion_kernel(13, 9, 30), "free-form": hook()}


@pytest.fixture(scope="module")
def found():
    return {kind: estimate_kernel(blurred(leaves(), kernel)) for kind, kernel in CASES.items()}


@pytest.mark.parametrize("kind", CASES)
def test_the_kind_is_found_and_the_kernel_is_near(found, kind):
    assert found[kind].kind == kind
    assert alike(found[kind].kernel, CASES[kind]) > (0.75 if kind == "free-form" else 0.98)
    assert float(found[kind].kernel.sum()) == pytest.approx(1, abs=1e-4)
    assert all(side % 2 for side in found[kind].kernel.shape)
    assert found[kind].noise == pytest.approx(0.01, rel=0.4)


def test_one_or_two_numbers_are_surer_than_hundreds(found):
    sure = {kind: estimate.confidence for kind, estimate in found.items()}
    assert min(sure["gaussian"], sure["motion"]) > 0.7
    assert sure["free-form"] < 0.3


def test_the_confidence_falls_with_the_error_and_with_what_is_not_explained():
    assert _confidence(0.02, 0) > _confidence(0.2, 0) > _confidence(0.2, 10) > _confidence(0.2, 40)
    assert 0 <= _confidence(1.0, 1e4) < _confidence(0.0, -5.0) <= 1


def test_a_scaled_and_shifted_picture_has_the_same_blur(found):
    y = blurred(leaves(), CASES["motion"])
    dark = estimate_kernel(0.3 * y - 0.5)
    assert dark.kind == "motion"
    torch.testing.assert_close(dark.kernel, found["motion"].kernel, atol=2e-3, rtol=0)
    assert dark.noise == pytest.approx(0.3 * found["motion"].noise, rel=0.02)


def test_what_cannot_be_told_is_said():
    noise = torch.randn(1, 3, 96, 96, generator=torch.Generator().manual_seed(0))
    for y, message in (
        (torch.rand(1, 3, 63, 200), "too small"),
        (torch.zeros(1, 3, 96, 96), "too little detail"),
        (0.3 * noise, "too little detail"),
        (blurred(leaves(), gaussian_kernel(13, 1.5), 2.0), "too little detail"),
        (leaves(), "looks sharp"),
    ):
        with pytest.raises(ValueError, match=message):
            estimate_kernel(y)


def test_motion_is_told_from_other_pictures():
    x = leaves()
    assert looks_moved(blurred(x, CASES["motion"]))
    assert not looks_moved(blurred(x, CASES["gaussian"]))
    assert not looks_moved(x)
    assert not looks_moved(torch.zeros(1, 3, 96, 96))
    assert not looks_moved(x[..., :40])
