"""Calibration: the fit against Gaussian posteriors that are known, the file, and the two commands that use it."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers import call, says, tiny_model
from safetensors.torch import load_file
from torch import nn

import firm
from firm.data.images import Images
from firm.operators import Blur, Identity, Mask, Subsample, gaussian_kernel
from firm.restoration import calibration
from firm.restoration.calibration import Calibration, TaskScale, fit, in_card, load, save, scale_for, scale_of
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
    assert (first.steps, first.iterations, first.samples, first.images) == (1, 1, 4, 2)  # one call without a solver
    assert first.model == model(0.5).fingerprint()


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
BOTH = Calibration("abc", 2, 5, 16, 20, {"denoising": PLAIN, "box-inpainting": FOUND})
DEEP = replace(BOTH, model="abc at K = 3", iterations=3, tasks={"denoising": FOUND})


def test_maps_are_multiplied_part_by_part_and_where_there_is_no_scale_it_is_said():
    """As outside the head in a scan: the work is done by then, and must not be lost."""
    std, op = torch.full((1, 3, 2, 2), 0.1), Mask(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
    for found, missing, notes in ((FOUND, 0.5, []), (PLAIN, 0.1, ["no scale for missing pixels"])):
        measured = 0.1 * found.scale["measured"]
        expected = torch.tensor([[measured, missing], [measured, measured]]).expand(1, 3, 2, 2)
        torch.testing.assert_close(found.widened(std, op), expected)
        assert [note.partition("has ")[2].partition(":")[0] for note in found.notes({}, std, op)] == notes
    torch.testing.assert_close(PLAIN.widened(std, Identity()), torch.full_like(std, 0.3))


def test_a_scale_is_for_one_model_one_task_and_one_pair_of_steps_and_iterations():
    assert scale_for([BOTH, DEEP], "denoising", 2, 5, 16, "abc") == PLAIN
    assert scale_for([BOTH, DEEP], "denoising", 2, 3, 16, "abc at K = 3") == FOUND
    assert scale_for([BOTH], "denoising", 2, 5, 16) == PLAIN  # a model's own
    assert scale_for([BOTH], "inpainting", 2, 5, 16, "abc") == FOUND  # the only one for pictures with holes
    strokes = replace(BOTH, tasks={"random-inpainting": FOUND, "stroke-inpainting": PLAIN, **BOTH.tasks})
    assert scale_for([strokes], "inpainting", 2, 5, 16, "abc") == PLAIN  # the most like those of real pictures
    for asked, message in (
        (("denoising", 2, 5, 16, "xyz"), r"was made for another model \(abc, this one is xyz\)"),
        (("denoising", 4, 5, 16, "abc"), "for N = 2, K = 5, N = 2, K = 3, not for N = 4, K = 5"),
        (("denoising", 2, 4, 16, "abc"), "not for N = 2, K = 4"),
        (("deblurring", 2, 5, 16, "abc"), "no scale for deblurring, only for denoising, box-inpainting"),
    ):
        with pytest.raises(ValueError, match=message):
            scale_for([BOTH, DEEP], *asked)


def test_scales_of_other_numbers_of_samples_are_linear_in_one_over_the_number():
    fewer = {"2": {"measured": 8.0, "missing": 20.0}, "4": {"measured": 4.0, "missing": 10.0}}
    found = replace(FOUND, fewer=fewer)  # that of 16 is 2 and 5
    for samples, measured in ((2, 8.0), (3, 5.3333333), (4, 4.0), (8, 2.6666667), (16, 2.0), (99, 2.0)):
        # 3: 1/3 lies at two thirds of the way from 1/2 to 1/4; 8: 1/8 at two thirds from 1/4 to 1/16
        assert found.of(samples, 16).scale == pytest.approx({"measured": measured, "missing": 2.5 * measured})
    assert PLAIN.of(2, 16).scale == PLAIN.scale  # with nothing known of fewer
    assert scale_for([replace(BOTH, tasks={"denoising": found})], "denoising", 2, 5, 3).scale["measured"] < 5.34


def test_fewer_samples_have_the_scale_that_a_fit_with_that_many_finds():
    found = fit(model(0.5), normal_images(4), [denoising()], 1, 6, progress=False).tasks["denoising"]
    assert list(found.fewer) == ["2", "4"]
    for samples in (2, 4):
        alone = fit(model(0.5), normal_images(4), [denoising()], 1, samples, progress=False).tasks["denoising"]
        assert found.of(samples, 6).scale == pytest.approx(alone.scale, rel=1e-6)
    assert found.fewer["2"]["measured"] > found.fewer["4"]["measured"] > found.scale["measured"]
    # of two samples |x - mean| / std is Student-distributed with one degree of freedom, whose 0.95 quantile is 6.3138
    two = 2 * math.sqrt(1 + 0.25 / 2) * 6.3138 / 1.64485
    assert found.fewer["2"]["measured"] == pytest.approx(two, rel=0.05)


def test_a_model_has_scales_of_its_own():
    """Those of its card, where they fit; where they do not, it is said, and the work goes on."""
    own = firm.Firm(nn.Identity(), firm.Solver(K=5), {"calibrations": in_card([BOTH, DEEP])})
    other = replace(BOTH, model="another fingerprint")  # of what `tiled` and `fast` made of it
    assert scale_of(None, own, "denoising", 2, 16) == (PLAIN, [])
    for model, task, steps, integrator, why in (
        (own, "denoising", 4, "euler", "there is a scale for N = 2, K = 5, N = 2, K = 3, not for N = 4, K = 5"),
        (own, "deblurring", 2, "euler", "there is no scale for deblurring"),
        (own, "denoising", 2, "heun", "calibrated for Euler steps"),
        (firm.Firm(nn.Identity(), None, {"calibrations": [{"tasks": 1}]}), "denoising", 2, "euler", "is damaged"),
    ):
        scale, (note,) = scale_of(None, model, task, steps, 16, integrator)
        assert scale is None
        assert note.startswith("the standard deviations are not calibrated: ")
        assert why in note
    assert scale_of(None, firm.Firm(nn.Identity()), "denoising", 2, 16) == (None, [])  # which has none
    assert scale_of(Path("none"), own, "denoising", 2, 16) == (None, [])
    assert scale_of(None, firm.Firm(nn.Identity(), None, {"calibrations": in_card([other])}), "denoising", 2, 16)[0]


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
    fewer = replace(BOTH, tasks={"denoising": replace(PLAIN, fewer={"2": {"measured": 7.0}})})
    save(tmp_path / "c.json", [fewer, DEEP], "firm calibrate …")
    assert load(tmp_path / "c.json") == [fewer, DEEP]
    about = json.loads((tmp_path / "c.json").read_text())
    assert about["command"] == "firm calibrate …"
    assert {"cpu", "torch"} <= about["machine"].keys()


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "c.json"
    save(path, [BOTH])
    about = json.loads(path.read_text())
    (one,), task = about["calibrations"], about["calibrations"][0]["tasks"]["denoising"]
    changes = [{"kind": "x"}, {"calibrations": []}, {"calibrations": 3}]
    for change in (
        {"tasks": {}}, {"steps": None}, {"samples": 0}, {"samples": math.inf},
        *({"tasks": {"denoising": {**task, **part}}} for part in (
            {"scale": {"measured": -1}}, {"scale": {}}, {"fewer": {"0": {"measured": 2}}},
            {"fewer": {"two": {"measured": 2}}}, {"fewer": {"2": {"measured": "x"}}}, {"other": 1},
        )),
    ):  # fmt: skip
        changes.append({"calibrations": [{**one, **change}]})
    for change in changes:
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
    assert says(result.output, "2 pictures; use them with: firm restore")
    return out


@pytest.fixture
def sampled(folder, restore):
    """Restore a picture with three samples into tmp_path/out."""
    return lambda *words, **how: restore(folder / "000.png", "--samples", 3, "--sigma", 0.1, *words, **how)


def test_restoring_with_a_calibration(sampled, model_file, made, tmp_path):
    (fitted,) = load(made)
    assert fitted.model == firm.load(model_file).fingerprint()
    assert (fitted.steps, fitted.iterations, fitted.samples, fitted.images, len(fitted.tasks)) == (1, 2, 3, 2, 2)
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
    holes = {"box-inpainting": replace(PLAIN, settings={})}
    save(tmp_path / "c.json", [Calibration(firm.load(model_file).fingerprint(), 1, 2, 3, 2, holes)])
    assert says(sampled(*use, tmp_path / "c.json", "--out", tmp_path / "p"), "no scale for missing pixels")
    assert rows(tmp_path / "p")[0]["std multiplied by"] == PLAIN.scale


def test_what_does_not_fit_is_refused_before_any_work(sampled, folder, made, model_file, tmp_path):
    use = ["--task", "denoising", "--calibration", made]
    other = firm.load(model_file)
    other.estimator.stem.conv.weight.data += 1
    other.save(tmp_path / "other.safetensors")
    for words, message in (
        (["--model", tmp_path / "other.safetensors"], "was made for another model"),
        (["--model", "photo"], "there is a scale for N = 1, K = 2, not for N = 1, K = 5"),
        (["--steps", 2], "not for N = 2, K = 2"),
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
    assert list(load(made)[0].tasks) == ["denoising"]


PRESETS = {"fast": [1, 1], "faithful": [1, 2], "detailed": [3, 1]}


@pytest.fixture
def carrying(folder, tmp_path):
    """A model with presets, and a function that attaches calibrations to its file."""
    file = tiny_model(tmp_path / "own.safetensors", [{"name": "denoising"}], depths=[1, 2], presets=PRESETS)

    def attach(*words, code=0):
        usual = ["--tasks", "denoising", "--samples", 3, "--limit", 2, "--size", 32, "--set", "sigma=0.1"]
        result = call("calibrate", file, "--data", folder, *usual, *words)
        assert result.exit_code == code, result.output
        return result.output

    return file, attach


def test_a_model_carries_the_scales_of_all_qualities(sampled, carrying, tmp_path):
    file, attach = carrying
    before = firm.load(file)
    assert says(attach("--attach", "--out", tmp_path / "c.json"), "firm restore")
    after, use = firm.load(file), ["--task", "denoising", "--model", file]
    assert after.fingerprint() == before.fingerprint()
    assert {key: value for key, value in after.card.items() if key != "calibrations"} == before.card
    assert after.card["calibrations"] == json.loads((tmp_path / "c.json").read_text())["calibrations"]
    found = {(c.steps, c.iterations): c.tasks["denoising"] for c in load(tmp_path / "c.json")}
    assert list(found) == [(1, 2), (1, 1), (3, 1)]  # that of firm restore without options comes first
    for i, (words, pair) in enumerate(((["--quality", "fast"], (1, 1)), (["--iterations", "2"], (1, 2)))):
        for samples in (3, 2):
            out = tmp_path / f"{i} {samples}"
            restored = sampled(*use, *words, "--samples", samples, "--out", out)
            scale = found[pair].of(samples, 3).scale
            assert rows(out)[0]["std multiplied by"] == pytest.approx(scale)
            assert says(restored, f"standard deviations multiplied by {scale['measured']:.2f}")
    assert found[1, 1].of(2, 3).scale != found[1, 1].scale
    plain = sampled(*use, "--quality", "fast", "--calibration", "none", "--out", tmp_path / "plain")
    assert "calibrated" not in plain
    assert "multiplied" not in plain
    widened, narrow = rows(tmp_path / "0 3")[0]["largest std"], rows(tmp_path / "plain")[0]["largest std"]
    assert widened == pytest.approx(narrow * found[1, 1].scale["measured"], rel=1e-3)
    for words in (["--steps", 2], ["--integrator", "heun"], ["--task", "deblurring", "--blur", "1"]):
        told = sampled(*use, *words, "--out", tmp_path / str(words[0]))
        assert says(told, "note: the standard deviations are not calibrated: ")
        assert "multiplied" not in told
    assert "calibrated" not in sampled(*use, "--samples", 1, "--out", tmp_path / "one")  # which has no deviation
    sampled(*use, "--samples", 1, "--calibration", "none", "--out", tmp_path / "one")


def test_attaching_leaves_the_weights_and_a_whole_file(carrying, monkeypatch):
    file, attach = carrying
    before, weights = file.read_bytes(), load_file(file)
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("stopped here")))
        patch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("stopped here")))
        assert says(attach("--attach", "--quality", "fast", code=2), "stopped here")
    assert file.read_bytes() == before
    attach("--attach", "--quality", "fast")
    assert all(torch.equal(value, weights[key]) for key, value in load_file(file).items())
    attach("--attach", "--quality", "detailed")  # in place of the others
    assert [(c["steps"], c["iterations"]) for c in firm.load(file).card["calibrations"]] == [(3, 1)]


def test_a_calibration_that_would_be_lost_is_not_begun(carrying, monkeypatch):
    file, attach = carrying
    assert says(attach(code=2), "give --out for a file of the scales, or --attach")
    monkeypatch.setattr("os.access", lambda path, mode: path != file)  # who is root may write anything
    told = attach("--attach", code=2)
    assert says(told, "cannot be written")
    assert "denoising" not in told
