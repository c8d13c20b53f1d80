"""The study of unknown blur: how it scores, how it ranks, and what it writes."""

import math

import pytest
import torch
from study_helpers import settings

from blind_helpers import leaves
from experiments.blind_deblurring.study import aligned_psnr, spearman, study
from firm.restoration.output import write_picture


def test_a_shift_costs_nothing_and_an_error_does():
    x = leaves(96, 200)
    noisy = x + 0.05 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    inside = (..., slice(10, -10), slice(10, -10))
    plain = 10 * math.log10(4 / float((noisy - x)[inside].square().mean()))
    assert aligned_psnr(noisy, x) == pytest.approx(plain, abs=0.05)
    assert aligned_psnr(noisy.roll((5, -3), (2, 3)), x) == pytest.approx(plain, abs=0.1)
    half = (x + x.roll(1, 3)) / 2  # half a pixel, and a little blur
    assert aligned_psnr(half, x) > aligned_psnr(half.roll(20, 3), x) + 5


def test_ranks_are_correlated_and_ties_share_theirs():
    assert spearman([0.9, 0.5, 0.1], [0.1, 2.0, 30.0]) == pytest.approx(1)
    assert spearman([0.1, 0.5, 0.9], [0.1, 2.0, 30.0]) == pytest.approx(-1)
    ranks = torch.corrcoef(torch.tensor([[0.5, 0.5, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0]]))[0, 1]
    assert spearman([1, 1, 2, 5], [9, 8, 7, 1]) == pytest.approx(float(ranks))


def test_every_family_is_restored_with_both_kernels(root, tmp_path):
    write_picture(tmp_path / "in" / "x.png", leaves(140, 300)[0])
    found = study(settings(root, "blind", extra={"pictures": tmp_path / "in", "N": 1}), "blind-deblurring")
    rows = found["numbers"]["cases"]
    assert [(row["family"], row["sigma"]) for row in rows] == [
        (family, sigma) for family in ("gaussian", "motion", "shake") for sigma in (0.01, 0.02)
    ]
    assert [row["kind"] for row in rows if row["family"] == "motion"] == ["motion"] * 2
    done = [row for row in rows if "loss" in row]
    assert len(done) >= 4
    assert all(row["loss"] == pytest.approx(max(0, row["known"] - row["estimated"]), abs=2e-3) for row in done)
    assert sum(part["cases"] for part in found["numbers"]["calibration"]) == len(done)
    assert found["images"] == 1
