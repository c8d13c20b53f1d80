"""Gain, read noise and offset of simulated cells, estimated from their counts."""

import numpy as np
import pytest
import torch
from helpers import cells

from firm.noise.counts import fit_counts


def measured(peak, gain, read, offset, planes=2, side=256):
    """Counts of cells with so many photons at their brightest, in whole numbers."""
    drawn = np.random.default_rng(3)
    photons = drawn.poisson(peak * np.stack([cells(side, seed=i) for i in range(planes)]))
    counts = gain * photons + offset + read * drawn.normal(size=photons.shape)
    return torch.from_numpy(np.rint(counts).clip(0, 65535))


@pytest.mark.parametrize(
    ("peak", "gain", "read", "offset"), [(8, 5, 10, 100), (40, 2.2, 1.6, 99), (200, 2, 6, 100), (1000, 1, 4, 500)]
)
def test_gain_and_read_noise_are_right_within_15_percent(peak, gain, read, offset):
    found = fit_counts(measured(peak, gain, read, offset))
    assert found.gain == pytest.approx(gain, rel=0.15)
    assert found.read == pytest.approx(read, rel=0.15)
    assert found.offset == pytest.approx(offset, abs=0.2 * read)


def test_full_pixels_and_a_known_offset():
    counts = measured(200, 2, 6, 100)
    full = float(counts.quantile(0.97)) if counts.numel() < 2**24 else 0.0
    assert fit_counts(counts.clamp(max=full), full).gain == pytest.approx(2, rel=0.2)
    known = fit_counts(counts + 50, offset=150)
    assert known.offset == 150
    assert (known.gain, known.read) == pytest.approx((2, 6), rel=0.15)


def test_what_tells_nothing():
    flat = torch.from_numpy(np.random.default_rng(0).normal(100, 5, (1, 64, 64)))
    with pytest.raises(ValueError, match=r"too few pixels|does not grow with the brightness"):
        fit_counts(flat)
    with pytest.raises(ValueError, match="too small"):
        fit_counts(flat[:, :4, :4])
    with pytest.raises(ValueError, match="neither black nor full"):
        fit_counts(torch.zeros(1, 64, 64))
