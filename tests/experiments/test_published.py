"""The paper's numbers: some entries, and sums over the paper's source, which notice a slip in any other."""

import pytest

from experiments import published
from experiments.published import AFHQ, AFHQ_400, CELEBA, CELEBA_1000, COST, DAMPING, DEPTH, FOURIER, MISSING, NOISE
from experiments.published import SOLVER as PAIRS
from firm.tasks import tables

DENOISING, DEBLURRING, SUPER, RANDOM, BOX = tables()


def rows(paper, part=None):
    """The metrics of every method and task, or (`part`) their means or deviations."""
    every = [row[task].values() for row in paper.values() for task in row]
    return every if part is None else [[pair[part] for pair in row] for row in every]


@pytest.mark.parametrize(
    ("found", "sums"),
    [
        (rows(CELEBA), (2487.88, 69.622, 5.218)), (rows(AFHQ), (2271.51, 62.694, 13.922)),
        (rows(CELEBA_1000, 0), (1572.10, 44.047, 3.886)), (rows(CELEBA_1000, 1), (93.00, 1.216, 0.934)),
        (rows(AFHQ_400, 0), (1414.93, 39.729, 8.752)), (rows(AFHQ_400, 1), (116.00, 2.226, 1.752)),
        ([[value or 0 for value in row] for row in COST.values()], (381.46, 11689, 1685)),
        (DEPTH.values(), (104.87, 2.886, 0.057, 682)), (DAMPING.values(), (140.20, 3.853, 0.074)),
        (MISSING.values(), (142.34, 3.850, 0.072)), (FOURIER.values(), (151.62, 4.241, 0.597)),
        ([row for found in NOISE.values() for row in found.values()], (137.43, 3.820, 0.081)),
        ([pair[0] for found in PAIRS.values() for pair in found.values()], (275.26, 7.578, 0.1563)),
        ([pair[1] for found in PAIRS.values() for pair in found.values()], (275.41, 7.543, 0.1713)),
    ],
)  # fmt: skip
def test_sums(found, sums):
    assert [sum(column) for column in zip(*found, strict=True)] == pytest.approx(sums, abs=1e-6)


@pytest.mark.parametrize(
    ("paper", "method", "task", "values"),
    [
        (CELEBA, "PnP-HQS", SUPER, (32.33, 0.911, 0.075)), (AFHQ, "PnP-GS", DENOISING, (33.00, 0.895, 0.078)),
        (CELEBA_1000, "OT-ODE", SUPER, ((31.43, 3.50), (0.903, 0.075), (0.026, 0.063))),
        (AFHQ_400, "Degraded", BOX, ((21.82, 2.03), (0.743, 0.038), (0.201, 0.040))),
    ],
)  # fmt: skip
def test_entries(paper, method, task, values):
    assert paper[method][task] == dict(zip(published.METRICS, values, strict=True))


def test_what_the_paper_says_of_its_tables():
    """FIRM with two steps is first in PSNR and SSIM everywhere; some methods do not do all tasks."""
    for paper in (CELEBA, AFHQ):
        assert (list(paper["ISTA-Net"]), list(paper["I2SB"])) == ([DEBLURRING, SUPER, RANDOM], [*tables()][1:])
        assert sum(len(row) for row in paper.values()) == 17 * 5 - 3 - 2 - 1
        for task in tables():
            for metric in ("psnr", "ssim"):
                best = max(row[task][metric] for row in paper.values() if task in row)
                assert [m for m, row in paper.items() if task in row and row[task][metric] == best] == ["FIRM N=2"]
    assert (COST["D-Flow"][2], set(COST) < set(CELEBA)) == (None, True)
    assert DEPTH[5][:3] == DAMPING[0.5] == MISSING[0.7] == (35.03, 0.963, 0.018)  # the same network
    for task, found in PAIRS.items():
        for N, (_, (psnr, ssim, _lpips)) in found.items():
            assert [psnr, ssim] == [CELEBA[f"FIRM N={N}"][task][metric] for metric in ("psnr", "ssim")]
