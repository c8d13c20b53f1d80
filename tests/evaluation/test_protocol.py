"""On the real data, where it is there: the reference table of notes/protocol.md 1.5b, and the LPIPS examples."""

import os
from pathlib import Path

import pytest

from firm.data import Images, afhq_files, celeba_files, read_picture, resident
from firm.data.sets import CROP
from firm.evaluation import Evaluation, evaluate, plain_methods
from firm.evaluation.report import summarize
from firm.metrics import lpips
from firm.tasks import Task, tables

DATA = Path(os.environ.get("FIRM_DATA", Path(__file__).parents[3] / "shared" / "data"))
needs_data = pytest.mark.skipif(not (DATA / "celeba").is_dir(), reason="no data folder (set FIRM_DATA)")

REFERENCE = {  # degraded images, computed independently of this project: PSNR, SSIM, LPIPS in the order of the tables
    ("celeba", "tables"): """
        20.00 .357 .367   27.60 .741 .130   10.35 .182 .841   11.97 .195 1.055   22.27 .745 .211""",
    ("celeba", "text"): """
        20.00 .379 .392   27.60 .748 .126   11.69 .182 .851   11.97 .195 1.092   22.27 .755 .207""",
    ("afhq", "tables"): """
        20.00 .305 .519   24.16 .527 .437   11.79 .216 .881   13.45 .226 1.075   21.57 .737 .205""",
    ("afhq", "text"): """
        20.00 .317 .582   24.16 .529 .543   12.19 .216 .908   13.45 .226 1.086   21.57 .740 .203""",
}


@needs_data
@pytest.mark.parametrize(("dataset", "convention"), REFERENCE, ids=["-".join(case) for case in REFERENCE])
def test_degraded_rows_equal_the_reference(dataset, convention, tmp_path):
    if dataset == "celeba":
        files, size, crop = celeba_files(DATA / "celeba"), 128, CROP
    else:
        files, size, crop = afhq_files(DATA / "afhq"), 256, None
    pixels, kept = resident(files[:100], size, crop=crop, progress=False)
    evaluation = Evaluation(
        Images(pixels, [path.name for path in kept]), [Task(name, size) for name in tables()], convention
    )
    summary = summarize(evaluate(evaluation, plain_methods()[:1], tmp_path, batch=20, progress=False))
    numbers = [float(word) for word in REFERENCE[dataset, convention].split()]
    for name, psnr, ssim, perceptual in zip(tables(), numbers[::3], numbers[1::3], numbers[2::3], strict=True):
        row = summary[name]["degraded"]
        assert row["psnr"] == pytest.approx(psnr, abs=0.05), name
        assert row["ssim"] == pytest.approx(ssim, abs=0.004), name
        assert row["lpips"] == pytest.approx(perceptual, abs=0.012), name


@needs_data
def test_lpips_of_the_examples():
    reference, *others = (read_picture(DATA / "lpips" / f"ex_{name}.png")[None] for name in ("ref", "p0", "p1"))
    values = [float(lpips(reference, other)) for other in others]
    assert values == pytest.approx([0.7219, 0.1376], abs=5e-4)
