"""Calibration: the fit against Gaussian posteriors that are known, the file, and the two commands that use it."""

import json
import math
from dataclasses import replace

import pytest
import torch
from helpers import call, says
from torch import nn

import firm
from firm.data.images import Images
from firm.operators import Blur, Identity, Mask, Subsample, gaussian_kernel
from firm.restoration import calibration
from firm.restoration.calibration import Calibration, TaskScale, fit, load
from restoration_helpers import rows

SIGMA = 0.1
SHRINK = 1 / (1 + SIGMA**2)  # of the posterior mean, for pixels of a standard normal distribution
STD = math.sqrt(SHRINK) * SIGMA  # of the posterior where a pixel was measured; 1 where it was not
T_63 = 1.6694  # the 0.95 quantile of Student's distribution with 63 degrees of freedom


class Posterior(nn.Module):
    """In one step: E[x | y] + `share` of the posterior's standard deviation, times the starting noise."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.tensor(share * STD))

    def forward(self, x, x_t, t):
        return SHRINK * x + self.share * x_t


def model(share: float) -> firm.Firm:
    return firm.Firm(Posterior(share), firm.Solver(K=0))


def normal_images(count: int, side: int = 64) -> Images:
    data = torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(1))
    return Images(data, [str(i) for i in range(count)])


def denoising(side=64):
    return firm.Task("denoising", side, sigma=SIGMA)


# The fit


def test_samples_of_half_the_width_need_a_scale_of_two():
    """The truth is Student-distributed about the samples' mean in units of their deviation, which is estimated."""
    found = fit(model(0.5), normal_images(6), [denoising()], 1, 64, progress=False).tasks["denoising"]
    expected = 2 * T_63 / 1.64485 * math.sqrt(1 + 0.25 / 64)
    assert found.scale == {"measured": pytest.approx(expected, rel=0.01)}  # 70,000 pixels
    assert found.before == pytest.approx(math.erf(1.64485 / 2 / math.sqrt(2)), abs=0.01)  # 0.589
    assert found.after == pytest.approx(0.9, abs=0.01)
    assert found.settings == {"sigma": SIGMA}


def test_a_few_wild_pixels_do_not_widen_the_interval_for_all():
    images, task = normal_images(4), firm.Task("denoising", 64, sigma=1e-3)
    images.data[:, :, :2] *= 30  # 3 % of the pixels are nothing like the others
    found = fit(model(1.0), images, [task], 1, 64, progress=False).tasks["denoising"]
    error = math.hypot(1 - SHRINK, STD / 8)  # of the other pixels: the mean shrinks them, and is one of 64 samples
    assert found.scale["measured"] == pytest.approx(error / STD, rel=0.2)  # a fit of squares: three times as much
    assert found.after == pytest.approx(0.9, abs=0.01)


def test_pixels_that_were_not_measured_have_a_scale_of_their_own():
    task = firm.Task("box-inpainting", 64, sigma=SIGMA, box=32)
    found = fit(model(0.5), normal_images(6), [task], 1, 64, progress=False).tasks["box-inpainting"]
    measured = 2 * T_63 / 1.64485
    missing = T_63 / 1.64485 / (0.5 * STD)  # the truth is standard normal there, the samples are as narrow as elsewhere
    assert found.scale == {"measured": pytest.approx(measured, rel=0.02), "missing": pytest.approx(missing, rel=0.02)}
    assert found.after == pytest.approx(0.9, abs=0.01)
    narrow = math.erf(1.64485 / 2 / math.sqrt(2)), math.erf(1.64485 * 0.5 * STD / math.sqrt(2))
    assert found.before == pytest.approx(0.75 * narrow[0] + 0.25 * narrow[1], abs=0.01)


def test_the_coverage_after_is_counted_on_pictures_that_were_not_fitted():
    images, task = normal_images(4), firm.Task("denoising", 64, sigma=1e-3)
    images.data[1::2] /= 100  # what is fitted on the first half is too wide for the second, and the other way round
    found = fit(model(0.5), images, [task], 1, 64, progress=False).tasks["denoising"]
    assert 0.79 < found.after < 0.84  # all of the second half, and 63 % of the first


def test_two_fits_are_equal_and_another_seed_is_not():
    def found(seed=42):
        return fit(model(0.5), normal_images(2, 16), [denoising(16)], 1, 4, seed, progress=False)

    first = found()
    assert first == found() != found(1)
    assert (first.steps, first.samples, first.images, first.model) == (1, 4, 2, model(0.5).fingerprint())


def test_every_picture_has_the_noise_of_its_seed_and_number(monkeypatch):
    task, asked, measure = denoising(16), [], firm.tasks.BaseTask.measure
    monkeypatch.setattr(type(task), "measure", lambda self, x, *which: asked.append(which) or measure(self, x, *which))
    fit(model(0.5), normal_images(2, 16), [task], 1, 4, 7, progress=False)
    assert asked == [(7, 0), (7, 1)]


def test_what_cannot_be_calibrated():
    for share, count, message in ((0.0, 2, "the samples do not differ"), (1.0, 1, "two images and two samples at")):
        with pytest.raises(ValueError, match=message):
            fit(model(share), normal_images(count, 16), [denoising(16)], 1, 4, progress=False)


@pytest.mark.parametrize(
    ("op", "share"),
    [(Identity(), 0), (Mask(torch.tensor([[1.0, 0.0], [0.0, 0.0]]).repeat(4, 4)), 0.75), (Subsample(2), 0.75),
     (Blur(gaussian_kernel(3, 1.0)), 0)],
)  # fmt: skip
def test_which_pixels_are_missing(op, share):
    assert float(calibration.missing(op, torch.zeros(1, 3, 8, 8)).float().mean()) == share


# Use


FOUND = TaskScale({"measured": 2.0, "missing": 5.0}, {"sigma": 0.05, "box": 40, "place": "center"}, 0.5, 0.9)
PLAIN = TaskScale({"measured": 3.0}, {"sigma": 0.2}, 0.6, 0.9)
BOTH = Calibration("abc", 2, 16, 20, {"denoising": PLAIN, "box-inpainting": FOUND}, "c.json")


def test_maps_are_multiplied_part_by_part_and_where_there_is_no_scale_it_is_said():
    """As outside the head in a scan: the work is done by then, and must not be lost."""
    std, op = torch.full((1, 3, 2, 2), 0.1), Mask(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
    for found, missing, notes in ((FOUND, 0.5, []), (PLAIN, 0.1, ["no scale for missing pixels"])):
        measured = 0.1 * found.scale["measured"]
        expected = torch.tensor([[measured, missing], [measured, measured]]).expand(1, 3, 2, 2)
        torch.testing.assert_close(found.widened(std, op), expected)
        assert [note.partition("has ")[2].partition(":")[0] for note in found.notes({}, std, op)] == notes
    torch.testing.assert_close(PLAIN.widened(std, Identity()), torch.full_like(std, 0.3))


def test_a_scale_is_for_one_model_one_task_and_one_number_of_steps():
    assert BOTH.scale_for("denoising", "abc", 2, 16) == PLAIN
    assert BOTH.scale_for("inpainting", "abc", 2, 16) == FOUND  # the only one for pictures with holes
    several = replace(BOTH, tasks={"random-inpainting": FOUND, **BOTH.tasks})
    for made, asked, message in (
        (BOTH, ("denoising", "xyz", 2, 16), r"c.json was made for another model \(abc, this one is xyz\)"),
        (BOTH, ("denoising", "abc", 4, 16), "was made for steps = 2, not 4: give --steps 2"),
        (BOTH, ("denoising", "abc", 2, 99), "made for samples = 16, not 99: give --samples 16"),
        (BOTH, ("deblurring", "abc", 2, 16), "no scale for deblurring, only for denoising, box-inpainting"),
        (several, ("inpainting", "abc", 2, 16), "several scales for inpainting: random-inpainting, box-inpainting"),
    ):
        with pytest.raises(ValueError, match=message):
            made.scale_for(*asked)


def test_other_settings_are_said():
    std, op = torch.ones(1, 3, 2, 2), Identity()
    assert FOUND.notes({"task": "inpainting", "sigma": 0.052, "box": 40}, std, op) == []
    (sentence,) = FOUND.notes({"sigma": 0.2, "box": 40, "place": "anywhere"}, std, op)
    assert "made with sigma 0.05, not 0.2 and place center, not anywhere" in sentence
    gaussian = TaskScale({"measured": 1.5}, {"blur": 1.0, "sigma": 0.05}, 0.8, 0.9)
    assert gaussian.notes({"blur": 1.0, "sigma": 0.05}, std, op) == []
    (sentence,) = gaussian.notes({"kernel": "k.png", "sigma": 0.05}, std, op)
    assert "made with a Gaussian blur, not the kernel k.png" in sentence


def test_the_file_gives_back_what_was_saved(tmp_path):
    BOTH.save(tmp_path / "c.json", "firm calibrate …")
    assert load(tmp_path / "c.json") == BOTH
    about = json.loads((tmp_path / "c.json").read_text())
    assert about["command"] == "firm calibrate …"
    assert {"cpu", "torch"} <= about["machine"].keys()


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "c.json"
    BOTH.save(path)
    about = json.loads(path.read_text())
    negative = {"denoising": {"scale": {"measured": -1}}}
    for change in ({"tasks": {}}, {"kind": "x"}, {"tasks": negative}, {"steps": None}):
        path.write_text(json.dumps(about | change))
        with pytest.raises(ValueError, match="is no calibration, or is damaged"):
            load(path)


# The commands


@pytest.fixture
def made(folder, model_file, tmp_path):
    """A calibration of the tiny model for two tasks."""
    out = tmp_path / "c.json"
    tasks = ["--tasks", "denoising,box-inpainting", "--steps", 1, "--samples", 3, "--size", 32, "--set", "sigma=0.1"]
    result = call("calibrate", model_file, "--data", folder, *tasks, "--limit", 2, "--out", out)
    assert result.exit_code == 0, result.output
    assert says(result.output, "2 pictures; use it with: firm restore")
    return out


@pytest.fixture
def sampled(folder, restore):
    """Restore a picture with three samples into tmp_path/out."""
    return lambda *words, **how: restore(folder / "000.png", "--samples", 3, "--sigma", 0.1, *words, **how)


def test_restoring_with_a_calibration(sampled, model_file, made, tmp_path):
    fitted = load(made)
    assert fitted.model == firm.load(model_file).fingerprint()
    assert (fitted.steps, fitted.samples, fitted.images, len(fitted.tasks)) == (1, 3, 2, 2)
    assert fitted.tasks["denoising"].settings == {"sigma": 0.1}
    scale = fitted.tasks["denoising"].scale
    assert "multiplied" not in sampled("--task", "denoising", "--out", tmp_path / "plain")
    use = ["--task", "denoising", "--calibration", made]
    assert says(sampled(*use), f"standard deviations multiplied by {scale['measured']:.2f}")
    (found,), (before,) = rows(tmp_path / "out"), rows(tmp_path / "plain")
    assert found["std multiplied by"] == scale
    assert found["largest std"] == pytest.approx(before["largest std"] * scale["measured"], rel=1e-3)
    assert not any("calibration" in note for note in found["advice"])
    again = sampled(*use, "--out", tmp_path / "plain", code=2)
    assert says(again, "of a run with other settings")  # what it wrote is not taken for the plain result


def test_a_picture_unlike_the_calibration_is_noted(sampled, model_file, made, tmp_path):
    use = ["--simulate", "box-inpainting", "--calibration"]
    assert not says(sampled(*use, made), "the calibration was made with")
    output = sampled(*use, made, "--box", 20, "--out", tmp_path / "b")
    assert says(output, "the calibration was made with box 10, not 20: its scale may not fit")
    assert says(output, "where pixels are missing)")
    plain = Calibration(firm.load(model_file).fingerprint(), 1, 3, 2, {"box-inpainting": replace(PLAIN, settings={})})
    plain.save(tmp_path / "c.json")
    assert says(sampled(*use, tmp_path / "c.json", "--out", tmp_path / "p"), "no scale for missing pixels")
    assert rows(tmp_path / "p")[0]["std multiplied by"] == PLAIN.scale


def test_what_does_not_fit_is_refused_before_any_work(sampled, folder, made, tmp_path):
    use = ["--task", "denoising", "--calibration", made]
    for words, message in (
        (["--model", "photo"], "was made for another model"),
        (["--samples", 1], "give --samples 2 or more"),
        (["--integrator", "heun"], "--calibration holds for Euler steps"),
        (["--calibration", folder / "000.png"], "is no calibration, or is damaged"),
        (["--calibration", tmp_path / "no.json"], "no such file; `firm calibrate` writes one"),
    ):
        assert says(sampled(*use, *words, code=2), message)
    assert not (tmp_path / "out").exists()


def test_calibrate_refuses_to_replace_what_is_no_calibration(folder, model_file, made):
    before = model_file.read_bytes()
    arguments = ["--data", folder, "--tasks", "denoising", "--steps", 1, "--samples", 2, "--limit", 2, "--size", 32]
    for out, message in (
        (model_file, "is there and is no calibration: choose another name"),
        (folder, "is a folder: name a file"),
        (model_file / "c.json", "is a file, not a folder"),
    ):
        result = call("calibrate", model_file, *arguments, "--out", out)
        assert (result.exit_code, says(result.output, message), "decoding" in result.output) == (2, True, False)
    assert model_file.read_bytes() == before
    assert call("calibrate", model_file, *arguments, "--out", made).exit_code == 0
    assert list(load(made).tasks) == ["denoising"]
