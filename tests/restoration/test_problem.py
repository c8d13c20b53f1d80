"""Operators and measurements made of picture files."""

import numpy as np
import pytest
import torch

from firm.data.picture import read_picture
from firm.operators import data_consistency
from firm.restoration import Problem, ProblemError
from restoration_helpers import save_gray


@pytest.fixture
def gray(tmp_path):
    return save_gray(tmp_path / "g.png", np.arange(64 * 64, dtype=np.uint8).reshape(64, 64))


def test_denoising_measures_the_picture_itself_and_super_resolution_a_larger_one(folder):
    p = Problem.from_file(folder / "000.png", "denoising", sigma=0.1)
    assert torch.equal(p.y, read_picture(folder / "000.png")[None])
    assert torch.equal(p.op.A(p.y), p.y)
    assert (p.sigma, p.truth, p.gray, p.settings["estimated"]) == (0.1, None, False, False)
    p = Problem.from_file(folder / "000.png", "super-resolution", sigma=0.01, scale=3)
    assert p.finish(p.op.A_adjoint(p.y)).shape == (1, 3, 108, 132)
    assert Problem.from_file(folder / "000.png", "super-resolution").settings["factor"] == 2
    for name, value in (("boundary", "valid"), ("mask", folder), ("keep_known", True), ("kernel", folder)):
        with pytest.raises(ProblemError, match=f"{name} does not belong to denoising"):
            Problem.from_file(folder / "000.png", "denoising", **{name: value})


def test_white_is_missing(folder, tmp_path):
    missing = np.zeros((36, 44))
    missing[5:20, 10:30] = 1
    p = Problem.from_file(folder / "000.png", "inpainting", sigma=0.01, mask=save_gray(tmp_path / "m.png", missing))
    x = data_consistency(p.op, torch.full_like(p.y, 7.0), p.y, 0.01)
    hole = torch.from_numpy(missing).bool()
    assert bool((x[0, :, hole] == 7).all())  # free where white
    torch.testing.assert_close(x[0, :, ~hole], (p.y[0, :, ~hole] + 0.07) / 1.01)  # measured elsewhere
    assert p.settings["missing"] == round(15 * 20 / (36 * 44), 4)
    assert bool((p.shown[0, :, hole] == 0).all())


def test_deblurring_takes_the_picture_for_a_part_of_a_larger_one(folder):
    """What lies around is unknown: of a larger picture, A measures the pixels of this one, blurred by a Gaussian."""
    p = Problem.from_file(folder / "000.png", "deblurring", sigma=0.01, blur=1.5)
    assert torch.equal(p.y, read_picture(folder / "000.png")[None])
    larger = torch.randn(1, 3, 36 + 2 * 6, 44 + 2 * 6)  # four standard deviations more on every side
    row = torch.softmax(-(torch.arange(-6, 7) ** 2) / (2 * 1.5**2), 0)  # the kernel is symmetric
    expected = sum(row[i] * row[j] * larger[..., i : i + 36, j : j + 44] for i in range(13) for j in range(13))
    torch.testing.assert_close(p.op.A(larger), expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(p.finish(larger), larger[..., 6:-6, 6:-6])


def test_gray_pictures_come_back_gray(gray):
    p = Problem.from_file(gray, "denoising", sigma=0.1)
    assert p.gray
    assert p.finish(torch.randn(5, 1, 3, 64, 64)).shape == (5, 1, 1, 64, 64)
    assert p.settings["sigma"] == 0.1
    torch.testing.assert_close(p.y.mean(1), read_picture(gray, channels=1))


@pytest.mark.parametrize("name", ["denoising", "deblurring", "super-resolution", "random-inpainting", "fourier"])
def test_any_size_can_be_simulated(folder, name):
    p = Problem.simulated(folder / "001.png", name, {}, seed=3)
    assert p.truth.shape == p.op.A_adjoint(p.y).shape == (1, 3, 36, 44)
    assert torch.equal(p.y, Problem.simulated(folder / "001.png", name, {}, seed=3).y)
    residual = p.y - p.op.A(p.truth)
    assert float(residual.abs().square().mean().sqrt()) == pytest.approx(p.sigma, rel=0.3)


def test_settings_change_the_simulated_task(folder):
    """YAML reads 1e-3, without a dot, as text; and a range has no single measurement."""
    p = Problem.simulated(folder / "001.png", "random-inpainting", {"missing": 0.2, "sigma": 0.0})
    assert 0.75 < float((p.op.A(torch.ones_like(p.truth)) == 1).float().mean()) < 0.85
    assert Problem.simulated(folder / "001.png", "denoising", {"sigma": "1e-3"}).sigma == 0.001
    for settings, message in (({"sigma": "5"}, "from 0 to 2"), ({"sigma": [0.1, 0.2]}, "a range is for training")):
        with pytest.raises(ProblemError, match=message):
            Problem.simulated(folder / "001.png", "denoising", settings)


def test_a_simulated_gray_picture_is_measured_once(gray):
    for name in ("denoising", "fourier"):
        p = Problem.simulated(gray, name, {})
        assert p.gray
        residual = (p.y - p.op.A(p.truth)).mean(1)  # what the channels know together
        assert float(residual.abs().square().mean().sqrt()) == pytest.approx(p.settings["sigma"], rel=0.1)


def test_errors_name_the_picture(folder, tmp_path):
    """It may be one of a folder."""
    path = folder / "001.png"
    small = save_gray(tmp_path / "small.png", np.zeros((10, 12)))
    white = save_gray(tmp_path / "white.png", np.ones((36, 44)))
    for call, message in (
        (lambda: Problem.from_file(path, "demosaicing"), "has colors"),
        (lambda: Problem.from_file(path, "inpainting", mask=small), "12x10 pixels, the picture 44x36"),
        (lambda: Problem.from_file(path, "inpainting", mask=white), "white everywhere"),
        (lambda: Problem.simulated(path, "box-inpainting", {"box": 400}), "box"),
        (lambda: Problem.simulated(path, "super-resolution", {"factor": 50}), "factor of 50 is larger"),
    ):
        with pytest.raises(ProblemError, match=message) as error:
            call()
        assert str(error.value).startswith(f"{path}: ")
        assert str(error.value).count(str(path)) == 1


def test_a_small_picture_is_continued_by_its_mirror_image(folder):
    """With a filter, what lies beyond the rim counts; the large image mirrors at the same edge."""
    p = Problem.from_file(folder / "000.png", "super-resolution", sigma=0.01, scale=2, filter="box")
    picture = read_picture(folder / "000.png")[None]
    assert p.margin == 16
    assert torch.equal(p.y[..., 8:-8, 8:-8], picture)
    assert torch.equal(p.y[..., 7, 8:-8], picture[..., 0, :])
    assert torch.equal(p.y[..., 8:-8, :8], picture[..., :, :8].flip(-1))
    assert p.finish(p.op.A_adjoint(p.y)).shape == (1, 3, 72, 88)
    assert Problem.from_file(folder / "000.png", "super-resolution", sigma=0.01, filter="stride").margin == 0


def test_a_simulated_blur_with_unknown_surroundings_is_scored_where_it_was_measured(folder):
    """A photograph does not show what lies around it: the rim is restored, and cut off."""
    settings = {"boundary": "valid", "kernel_size": 9, "blur": 1.0}
    p = Problem.simulated(folder / "001.png", "deblurring", settings, seed=3)
    whole = read_picture(folder / "001.png")[None]
    assert torch.equal(p.truth, whole[..., 4:-4, 4:-4])
    assert torch.equal(p.finish(whole), p.truth)
    assert p.y.shape == p.truth.shape
