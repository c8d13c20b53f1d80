"""On the real data, where it is there: the reference table of notes/protocol.md 1.5b, and the LPIPS examples.

All metrics of 100 images take minutes: FIRM_FULL=1 computes them. Without it PSNR is that of 100 images, and SSIM and
LPIPS are those of three, recorded when the 100 agreed with the reference.
"""

import os
from pathlib import Path

import pytest

from firm.data import load_images, read_picture
from firm.evaluation import Evaluation, degraded, evaluate, plain_methods
from firm.evaluation.report import summarize
from firm.metrics import lpips, psnr
from firm.tasks import Task, tables

DATA = Path(os.environ.get("FIRM_DATA", Path(__file__).parents[3] / "shared" / "data"))
pytestmark = pytest.mark.skipif(not (DATA / "celeba").is_dir(), reason="no data folder (set FIRM_DATA)")

SIZES = {"celeba": 128, "afhq": 256}
REFERENCE = {  # 100 degraded images, computed independently of this project: PSNR, SSIM, LPIPS in the tables' order
    ("celeba", "tables"): """
        20.00 .357 .367   27.60 .741 .130   10.35 .182 .841   11.97 .195 1.055   22.27 .745 .211""",
    ("celeba", "text"): """
        20.00 .379 .392   27.60 .748 .126   11.69 .182 .851   11.97 .195 1.092   22.27 .755 .207""",
    ("afhq", "tables"): """
        20.00 .305 .519   24.16 .527 .437   11.79 .216 .881   13.45 .226 1.075   21.57 .737 .205""",
    ("afhq", "text"): """
        20.00 .317 .582   24.16 .529 .543   12.19 .216 .908   13.45 .226 1.086   21.57 .740 .203""",
}
FIRST_THREE = {
    ("celeba", "tables"): """20.017 .4205 .2863   27.010 .7778 .0896   9.849 .1739 .8156   11.621 .1887 1.0189
        22.480 .7856 .1918""",
    ("celeba", "text"): """20.017 .4395 .3080   27.010 .7806 .0996   11.355 .1739 .8822   11.621 .1887 1.0807
        22.480 .7906 .1862""",
    ("afhq", "tables"): """19.998 .2860 .4854   24.276 .5392 .4237   10.710 .1835 .8536   12.344 .1772 1.1066
        21.312 .7304 .1943""",
    ("afhq", "text"): """19.998 .3026 .5730   24.276 .5406 .5269   11.085 .1835 .8981   12.344 .1772 1.1379
        21.312 .7336 .1909""",
}
COUNT, EXPECTED, NEAR = (100, REFERENCE, (0.05, 0.004, 0.012)) if "FIRM_FULL" in os.environ else (
    3, FIRST_THREE, (0.002, 0.0002, 0.0005))  # fmt: skip


def images(dataset, count):
    return load_images(dataset, DATA / dataset, "test", size=SIZES[dataset], limit=count, progress=False)


def tasks(dataset):
    return [Task(name, SIZES[dataset]) for name in tables()]


@pytest.mark.parametrize(("dataset", "convention"), REFERENCE, ids=["-".join(case) for case in REFERENCE])
def test_degraded_rows_equal_the_reference(dataset, convention, tmp_path):
    evaluation = Evaluation(images(dataset, COUNT), tasks(dataset), convention)
    summary = summarize(evaluate(evaluation, plain_methods()[:1], tmp_path, progress=False))
    numbers = [float(word) for word in EXPECTED[dataset, convention].split()]
    for i, name in enumerate(tables()):
        row = summary[name]["degraded"]
        for metric, expected, near in zip(("psnr", "ssim", "lpips"), numbers[3 * i :], NEAR, strict=False):
            assert row[metric] == pytest.approx(expected, abs=near), (name, metric)


@pytest.mark.parametrize("dataset", SIZES)
def test_psnr_of_a_hundred_degraded_images_equals_the_reference(dataset):
    truth = images(dataset, 100).batch(range(100))
    wanted = [float(word) for word in REFERENCE[dataset, "text"].split()[::3]]
    found = [float(psnr(degraded(*task.measure(truth), task.sigma, None), truth).mean()) for task in tasks(dataset)]
    assert found == pytest.approx(wanted, abs=0.05)


def test_lpips_of_the_examples():
    reference, *others = (read_picture(DATA / "lpips" / f"ex_{name}.png")[None] for name in ("ref", "p0", "p1"))
    values = [float(lpips(reference, other)) for other in others]
    assert values == pytest.approx([0.7219, 0.1376], abs=5e-4)
