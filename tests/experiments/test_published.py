"""The paper's numbers: some entries, and sums over the paper's source, which notice a slip in any other."""

import pytest

from experiments import published
from experiments.published import COST, DAMPING, DEPTH, FOURIER, MISSING, NOISE, SOLVER
from firm.tasks import tables

DENOISING, DEBLURRING, SUPER, RANDOM, BOX = tables()


def scored(psnr, ssim, lpips):
    return {"psnr": psnr, "ssim": ssim, "lpips": lpips}


def total(paper, metric, part=None):
    """Over methods and tasks; `part` of a pair."""
    values = [row[task][metric] for row in paper.values() for task in row]
    return sum(values if part is None else (value[part] for value in values))


def column_sums(rows):
    return [sum(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize(
    ("paper", "sums"),
    [(published.CELEBA, (2487.88, 69.622, 5.218)), (published.AFHQ, (2271.51, 62.694, 13.922))],
)
def test_tables_1_and_2(paper, sums):
    assert len(paper) == 17
    assert list(paper["ISTA-Net"]) == [DEBLURRING, SUPER, RANDOM]
    assert list(paper["I2SB"]) == [DEBLURRING, SUPER, RANDOM, BOX]
    for method in ("PnP-GS", "PnP-HQS", "DiffPIR"):
        assert list(paper[method]) == [DENOISING, DEBLURRING, SUPER, RANDOM]
    assert sum(len(row) for row in paper.values()) == 17 * 5 - 3 - 2 - 1
    for metric, value in zip(published.METRICS, sums, strict=True):
        assert total(paper, metric) == pytest.approx(value, abs=1e-6)


def test_entries_of_tables_1_and_2():
    for paper, method, task, values in (
        (published.CELEBA, "Flower5-OT", DEBLURRING, (35.65, 0.954, 0.031)),
        (published.CELEBA, "FIRM N=2", BOX, (33.25, 0.960, 0.022)),
        (published.CELEBA, "Degraded", RANDOM, (11.95, 0.196, 1.041)),
        (published.CELEBA, "PnP-HQS", SUPER, (32.33, 0.911, 0.075)),
        (published.AFHQ, "FIRM N=4", BOX, (28.65, 0.921, 0.052)),
        (published.AFHQ, "PnP-GS", DENOISING, (33.00, 0.895, 0.078)),
        (published.AFHQ, "I2SB", SUPER, (27.19, 0.739, 0.070)),
    ):
        assert paper[method][task] == scored(*values)


@pytest.mark.parametrize(
    ("paper", "means", "deviations"),
    [
        (published.CELEBA_1000, (1572.10, 44.047, 3.886), (93.00, 1.216, 0.934)),
        (published.AFHQ_400, (1414.93, 39.729, 8.752), (116.00, 2.226, 1.752)),
    ],
)
def test_the_tables_with_deviations(paper, means, deviations):
    assert list(paper) == ["Degraded", "OT-ODE", "PnP-Flow1", "PnP-Flow5", "Flower1-OT", "Flower5-OT",
                           "FIRM N=2", "FIRM N=4", "FIRM N=10", "FIRM N=25"]  # fmt: skip
    for row in paper.values():
        assert {task: list(values) for task, values in row.items()} == {t: list(published.METRICS) for t in tables()}
    for metric, mean, deviation in zip(published.METRICS, means, deviations, strict=True):
        assert total(paper, metric, 0) == pytest.approx(mean, abs=1e-6)
        assert total(paper, metric, 1) == pytest.approx(deviation, abs=1e-6)


def test_entries_of_the_tables_with_deviations():
    faces, cats = published.CELEBA_1000, published.AFHQ_400
    assert faces["OT-ODE"][SUPER] == scored((31.43, 3.50), (0.903, 0.075), (0.026, 0.063))
    assert faces["FIRM N=25"][DEBLURRING] == scored((31.46, 0.98), (0.848, 0.039), (0.026, 0.013))
    assert cats["PnP-Flow5"][RANDOM] == scored((33.88, 2.87), (0.929, 0.027), (0.047, 0.014))
    assert cats["Degraded"][BOX] == scored((21.82, 2.03), (0.743, 0.038), (0.201, 0.040))


def test_what_the_paper_says_of_its_tables():
    """FIRM with two steps is first in PSNR and SSIM everywhere."""
    for paper in (published.CELEBA, published.AFHQ):
        for task in tables():
            for metric in ("psnr", "ssim"):
                best = max(row[task][metric] for row in paper.values() if task in row)
                assert [m for m, row in paper.items() if task in row and row[task][metric] == best] == ["FIRM N=2"]


def test_the_efficiency_table():
    totals = [sum(value or 0 for value in column) for column in zip(*COST.values(), strict=True)]
    assert totals == pytest.approx([381.46, 11689, 1685])
    assert COST["Flower1-OT"] == (2.67, 193, 100)
    assert COST["D-Flow"][2] is None
    assert set(COST) < set(published.CELEBA)


def test_the_ablations():
    assert column_sums(DEPTH.values()) == pytest.approx([104.87, 2.886, 0.057, 682])
    assert DEPTH[5][:3] == DAMPING[0.5] == MISSING[0.7] == (35.03, 0.963, 0.018)  # the same network
    assert column_sums(DAMPING.values()) == pytest.approx([140.20, 3.853, 0.074])
    assert column_sums(MISSING.values()) == pytest.approx([142.34, 3.850, 0.072])
    assert column_sums(row for rows in NOISE.values() for row in rows.values()) == pytest.approx([137.43, 3.820, 0.081])
    assert NOISE["FIRM N=2"][0.02] == (34.57, 0.954, 0.020)
    assert column_sums(FOURIER.values()) == pytest.approx([151.62, 4.241, 0.597])
    assert SOLVER["deblurring"][25] == ((34.03, 0.934, 0.0174), (31.46, 0.848, 0.0265))
    for i, sums in enumerate(([275.26, 7.578, 0.1563], [275.41, 7.543, 0.1713])):  # flow-only, with the solver
        assert column_sums(pair[i] for rows in SOLVER.values() for pair in rows.values()) == pytest.approx(sums)
    firm = published.CELEBA
    for task, rows in SOLVER.items():
        for N, (_, (psnr, ssim, _lpips)) in rows.items():
            assert (psnr, ssim) == (firm[f"FIRM N={N}"][task]["psnr"], firm[f"FIRM N={N}"][task]["ssim"])
