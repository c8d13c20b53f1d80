"""A photograph without a task: what a look finds, and what is done about it."""

import json
import math
from importlib import resources

import pytest
import torch
from helpers import call, says
from PIL import Image
from torch.nn import functional as F

from firm.data import portrait as portrait_tensor
from firm.data import read_picture
from firm.operators import Blur
from firm.operators.patterns import motion_kernel
from firm.restoration import Problem, ProblemError
from firm.restoration.grain import estimate_grain
from firm.restoration.look import NothingToDoError, look
from firm.restoration.output import write_picture


def photograph():
    """The portrait as a photograph without noise: shrunk by a half, and put together to 128 pixels again."""
    small = F.interpolate(portrait_tensor(), size=(64, 64), mode="bicubic", antialias=True)
    return torch.cat(
        [torch.cat([small, small.flip(-1)], -1), torch.cat([small.flip(-2), small.flip((-1, -2))], -1)], -2
    )


def noise(seed=0, width=0.0):
    """White noise, or noise that is blurred, both with a deviation of 1."""
    n = torch.randn(1, 3, 128, 128, generator=torch.Generator().manual_seed(seed))
    if width:
        row = torch.exp(-torch.arange(-6, 7).float().square() / (2 * width**2))
        kernel = torch.outer(row, row)
        n = F.conv2d(n.transpose(0, 1), (kernel / kernel.square().sum().sqrt())[None, None], padding=6).transpose(0, 1)
    return n


@pytest.mark.parametrize(("level", "width"), [(0.06, 0.0), (0.15, 0.0), (0.3, 0.0), (0.15, 1.2), (0.3, 1.2)])
def test_the_level_of_white_and_of_coarse_noise_is_found(level, width):
    """Coarse noise is what pairs of neighboring pixels do not show."""
    found = estimate_grain((photograph() + level * noise(width=width)).clamp(-1, 1))
    assert found.level == pytest.approx(level, rel=0.3)
    assert found.coarse == (width > 0)
    assert found.sigma == pytest.approx(found.level * (1.4 if width else 1.0))
    assert 0.05 < found.error < 0.6
    assert found.least == pytest.approx(found.level * math.exp(-found.error))


def test_noise_that_the_colors_share_is_told_from_noise_of_each():
    """JPEG leaves the noise of brightness, and little of that of color; a gray picture has no colors to compare."""
    shared = (photograph() + 0.15 * noise()[:, :1]).clamp(-1, 1)
    assert estimate_grain(shared).coarse
    assert not estimate_grain(shared.mean(1, keepdim=True).expand(-1, 3, -1, -1)).coarse


def test_the_estimate_does_not_depend_on_how_the_picture_is_cut_into_strips(monkeypatch):
    x = (photograph() + 0.2 * noise()).clamp(-1, 1)
    tall = torch.cat([x] * 8, dim=-2)
    whole = estimate_grain(tall)
    monkeypatch.setattr("firm.restoration.grain.STRIP", 128)
    assert estimate_grain(tall).level == pytest.approx(whole.level, rel=1e-5)


def test_of_a_large_picture_strips_tell_its_noise(monkeypatch):
    """Strips all over it: what is noisy at the foot is noisy."""
    noisy = torch.cat([photograph(), (photograph() + 0.2 * noise()).clamp(-1, 1)], dim=-2)
    monkeypatch.setattr("firm.restoration.grain.STRIP", 64)
    whole = estimate_grain(noisy)
    monkeypatch.setattr("firm.restoration.grain.ENOUGH", 2 * 64 * 128)  # half of it
    assert estimate_grain(noisy).level == pytest.approx(whole.level, rel=0.15)


def test_what_is_wrong_is_found(tmp_path):
    clean = photograph()
    write_picture(tmp_path / "clean.png", clean[0])
    write_picture(tmp_path / "noisy.png", (clean + 0.2 * noise())[0])
    Image.open(tmp_path / "clean.png").save(tmp_path / "blocks.jpg", quality=15)
    found = {p.name: look(p, Problem.from_file(p, "denoising", sigma=0.1).shown) for p in tmp_path.iterdir()}
    assert found["clean.png"].task == ""
    assert (found["noisy.png"].task, found["noisy.png"].sigma) == ("denoising", pytest.approx(0.2, rel=0.3))
    assert found["blocks.jpg"].task == "denoising"
    assert "quality 15" in found["blocks.jpg"].finding


def test_the_same_file_is_looked_at_once_and_a_changed_one_again(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr("firm.restoration.look.estimate_grain", lambda image: calls.append(1) or estimate_grain(image))
    path, clean, noisy = tmp_path / "a.png", photograph(), photograph() + 0.2 * noise()
    write_picture(path, noisy[0])
    first = [look(path, noisy) for _ in range(2)]
    assert (first[0], len(calls)) == (first[1], 1)
    write_picture(path, clean[0])
    assert look(path, clean).task == ""
    assert len(calls) == 2


def test_a_blurred_photograph_is_sharpened(tmp_path):
    x = F.interpolate(portrait_tensor(), size=(256, 256), mode="bicubic")
    row = torch.exp(-torch.arange(-8, 9).float().square() / (2 * 2.0**2))
    kernel = torch.outer(row, row) / row.sum() ** 2
    blurred = F.conv2d(F.pad(x, [8] * 4, mode="reflect").transpose(0, 1), kernel[None, None]).transpose(0, 1)
    write_picture(tmp_path / "a.png", (blurred + 0.004 * torch.randn(x.shape))[0])
    problem = Problem.from_file(tmp_path / "a.png")
    assert problem.settings["task"] == "deblurring"
    assert 1.2 < problem.settings["blur"] < 4


def test_a_moved_photograph_is_told_from_a_sharp_one_and_its_motion_estimated(tmp_path, monkeypatch):
    """Where the estimate is not sure it is left alone."""
    with resources.as_file(resources.files("firm.assets") / "chelsea.png") as file:
        x = read_picture(file)[None, :, 40:232, 80:272]
    moved = Blur(motion_kernel(15, 9.0, 30.0)).A(x) + 0.004 * torch.randn(x.shape)
    write_picture(tmp_path / "a.png", moved[0])
    problem = Problem.from_file(tmp_path / "a.png")
    assert problem.settings["kernel_kind"] == "motion"
    assert problem.settings["length"] == pytest.approx(9, abs=1.5)
    assert problem.settings["angle"] == pytest.approx(30, abs=10)
    assert "moved" in problem.notes[0]
    monkeypatch.setattr("firm.restoration.problem.SURE", 1.1)
    with pytest.raises(NothingToDoError, match="how cannot be told"):
        Problem.from_file(tmp_path / "a.png")


def test_the_command_needs_no_task(tmp_path, restore):
    write_picture(tmp_path / "noisy.png", (photograph() + 0.2 * noise())[0])
    write_picture(tmp_path / "clean.png", photograph()[0])
    out = tmp_path / "out"
    said = restore(tmp_path / "noisy.png", tmp_path / "clean.png", "--steps", "1", "--out", out)
    assert says(said, "it needs nothing")
    assert sorted(p.name for p in out.glob("*.png")) == ["noisy_compare.png", "noisy_restored.png"]
    rows = {row["name"]: row for row in json.loads((out / "restore.json").read_text())}
    assert rows["noisy"]["task"] == "denoising"
    assert rows["noisy"]["estimated"]
    assert "nothing" in rows["clean"]
    with pytest.raises(NothingToDoError):
        Problem.from_file(tmp_path / "clean.png")


def test_info_says_what_restore_would_do(tmp_path):
    write_picture(tmp_path / "noisy.png", (photograph() + 0.2 * noise())[0])
    assert says(call("info", tmp_path / "noisy.png").output, "its noise is removed")


def test_strength_is_refused_where_there_is_no_level(tmp_path):
    write_picture(tmp_path / "noisy.png", (photograph() + 0.15 * noise())[0])
    with pytest.raises(ProblemError):
        Problem.from_file(tmp_path / "noisy.png", "poisson-denoising", strength=2.0, peak=30)


def test_strength_multiplies_the_estimate(tmp_path, restore):
    write_picture(tmp_path / "noisy.png", (photograph() + 0.15 * noise())[0])
    plain, twice = (
        Problem.from_file(tmp_path / "noisy.png", t, strength=s).sigma for t, s in (("denoising", 1.0), (None, 2.0))
    )
    assert twice == pytest.approx(2 * plain)
    restore(
        tmp_path / "noisy.png",
        "--task",
        "denoising",
        "--sigma",
        "0.1",
        "--strength",
        "2",
        "--out",
        tmp_path / "o",
        code=2,
    )
    assert not (tmp_path / "o").exists()
