"""``--kernel auto``: the blur is estimated, restored with, shown, and can be given back as a file."""

import pytest
import torch
from helpers import says
from torch.nn import functional as F

from blind_helpers import blurred, leaves
from firm.operators import gaussian_kernel, motion_kernel
from firm.restoration import Problem, ProblemError
from firm.restoration.output import write_picture
from firm.tasks import Task
from restoration_helpers import pixels, rows

MOTION = motion_kernel(13, 9, 30)


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    path = tmp_path_factory.mktemp("moved") / "m.png"
    write_picture(path, blurred(leaves(140, 300), MOTION)[0])
    return path


def test_a_motion_is_found_said_and_shown(restore, moved, tmp_path):
    output, out = restore(moved, "--task", "deblurring", "--kernel", "auto"), tmp_path / "out"
    (row,) = rows(out)
    assert (row["kernel"], row["kernel_kind"]) == ("auto", "motion")
    assert row["length"] == pytest.approx(9, abs=0.5)
    assert row["angle"] == pytest.approx(30, abs=4)
    assert row["sigma"] == pytest.approx(0.01, rel=0.5)
    assert 0.5 < row["confidence"] <= 1
    assert says(output, f"{row['length']:.1f} pixels long at {row['angle']:.0f} degrees, confidence")
    assert {path.rpartition("_")[2] for path in row["written"]} == {"restored.png", "kernel.png", "compare.png"}
    shown = pixels(out / "m_kernel.png")
    assert shown.dtype.itemsize > 1
    assert shown.max() == 65535
    assert pixels(out / "m_compare.png").shape[1] > 3 * 128  # the picture, its blur, the result


def test_the_kernel_that_was_written_is_the_one_that_was_used(restore, moved, tmp_path):
    restore(moved, "--task", "deblurring", "--kernel", "auto")
    given = tmp_path / "out" / "m_kernel.png"
    used, again = (Problem.from_file(moved, "deblurring", sigma=0.01, kernel=kernel) for kernel in ("auto", given))
    torch.testing.assert_close(used.op.kernel, again.op.kernel, atol=1e-4, rtol=0)
    rim = (len(used.kernel) - len(used.op.kernel)) // 2  # of zeros, which cost time and change nothing
    torch.testing.assert_close(F.pad(used.op.kernel, (rim,) * 4), used.kernel)
    assert again.kernel is None
    assert used.finish(used.op.A_adjoint(used.y)).shape[-2:] == used.y.shape[-2:]


def test_a_file_called_auto_is_not_meant(restore, moved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_picture(tmp_path / "auto", torch.zeros(1, 3, 3), "png16")
    restore(moved, "--task", "deblurring", "--kernel", "./auto")
    assert "kernel_kind" not in rows(tmp_path / "out")[0]


def test_an_estimate_is_another_run_than_the_width_of_a_gaussian(restore, tmp_path):
    write_picture(tmp_path / "g.png", blurred(leaves(140, 300), gaussian_kernel(13, 1.5))[0])
    words = [tmp_path / "g.png", "--task", "deblurring"]
    restore(*words)
    assert says(restore(*words, "--kernel", "auto", code=2), "is a result of a run with other settings")
    restore(*words, "--kernel", "auto", "--force")
    (row,) = rows(tmp_path / "out")
    assert row["kernel_kind"] == "gaussian"
    assert row["width"] == pytest.approx(1.5, rel=0.1)


def test_without_a_kernel_a_motion_is_hinted_at(restore, moved, tmp_path):
    told = "the picture looks motion-blurred: --kernel auto"
    try:
        said = "; ".join(Problem.from_file(moved, "deblurring").notes)
    except ProblemError as refused:  # the width of a Gaussian may not be told from it
        said = str(refused)
    assert told in said
    write_picture(tmp_path / "g.png", blurred(leaves(140, 300), gaussian_kernel(13, 1.5))[0])
    assert told not in "; ".join(Problem.from_file(tmp_path / "g.png", "deblurring").notes)


def test_what_cannot_be_told_is_refused(folder, restore, tmp_path):
    output = restore(folder, "--task", "deblurring", "--kernel", "auto", code=1)  # 44x36 pixels
    assert says(output, "too small to estimate a blur from; give the blur with --blur or --kernel FILE")
    assert says(restore(folder, "--task", "denoising", "--kernel", "auto", code=2), "--kernel belongs to")
    assert says(restore(folder, "--task", "deblurring", "--kernel", "auto", "--blur", 1, code=2), "not both")


def test_a_simulation_forgets_its_kernel(restore, tmp_path):
    write_picture(tmp_path / "x.png", leaves(140, 300)[0])
    restore(tmp_path / "x.png", "--simulate", "blind-deblurring", "--set", "family=motion")
    (row,) = rows(tmp_path / "out")
    assert "psnr" in row
    assert (tmp_path / "out" / "x_kernel.png").is_file()
    simulated = Problem.simulated(tmp_path / "x.png", "blind-deblurring", {"family": "motion"})
    true = Task("blind-deblurring", 140, family="motion").operator(0).kernel[0, 0]
    assert not torch.equal(simulated.kernel, true)
    assert float((simulated.kernel - true).abs().sum()) < 0.5
