"""Demosaicing: which color a pixel sees, random patterns, raw pictures of a sensor."""

import numpy as np
import pytest
import torch
from helpers import tiny_model
from PIL import Image
from typer.testing import CliRunner

import firm
from firm.cli import app
from firm.restoration import Problem, ProblemError
from firm.tasks import Rows

RED, GREEN, BLUE = range(3)
FIRST = {  # the colors of the pixels (0, 0), (0, 1), (1, 0), (1, 1)
    "rggb": (RED, GREEN, GREEN, BLUE),
    "bggr": (BLUE, GREEN, GREEN, RED),
    "grbg": (GREEN, RED, BLUE, GREEN),
    "gbrg": (GREEN, BLUE, RED, GREEN),
}


def images(n, size=8, channels=3):
    return torch.rand(n, channels, size, size, generator=torch.Generator().manual_seed(0)) * 2 - 1


@pytest.mark.parametrize("pattern", FIRST)
def test_a_pixel_keeps_the_color_of_its_filter(pattern):
    x = images(2, size=6)[..., :5]  # an odd side
    op, y = firm.Task("demosaicing", (6, 5), pattern=pattern, sigma=0).measure(x)
    for i in range(6):
        for j in range(5):
            color = FIRST[pattern][2 * (i % 2) + j % 2]
            assert torch.equal(y[:, color, i, j], x[:, color, i, j])
            assert not y[:, [c for c in range(3) if c != color], i, j].any()
    assert torch.equal(op.A(x), y)


def test_at_random_every_pixel_has_one_color_and_every_image_its_own():
    task = firm.Task("demosaicing", 64, pattern="random")
    masks = task.operator(7, (0, 1)).mask
    assert masks.shape == (2, 3, 64, 64)
    assert torch.equal(masks.sum(1), torch.ones(2, 64, 64))
    assert not torch.equal(masks[0], masks[1])
    assert torch.equal(task.operator(7, (1,)).mask[0], masks[1])  # of its number, not of its batch
    assert masks.mean((0, 2, 3)).tolist() == pytest.approx([1 / 3] * 3, abs=0.02)
    op, _, sigma = task.draw(images(2, size=64), Rows(2, 0, 2))
    assert torch.equal(op.mask.sum(1), torch.ones(2, 64, 64))
    assert not torch.equal(op.mask[0], op.mask[1])
    assert sigma.tolist() == pytest.approx([0.01] * 2)


def test_images_must_have_three_channels():
    for call in (lambda t, x: t.measure(x), lambda t, x: t.draw(x, None)):
        with pytest.raises(ValueError, match="three channels, red, green and blue; these have 1"):
            call(firm.Task("demosaicing", 8), images(1, channels=1))


def test_a_gray_picture_is_simulated_as_one_in_color(tmp_path):
    Image.effect_noise((12, 8), 50).save(tmp_path / "gray.png")
    problem = Problem.simulated(tmp_path / "gray.png", "demosaicing", {"sigma": 0.0})
    assert not problem.gray  # a sensor does not know
    assert problem.truth.shape == (1, 3, 8, 12)
    assert torch.equal(problem.y, problem.op.A(problem.truth))
    assert problem.sigma == 0.0
    with pytest.raises(ProblemError, match=r"gray.png: demosaicing takes a model for"):
        Problem.simulated(tmp_path / "gray.png", "demosaicing", {}, channels=1)


@pytest.fixture
def raw(tmp_path):
    """A sensor's picture of one color, of odd sides, with noise of 4 gray levels."""
    noise = np.random.default_rng(3).normal(0, 4, (121, 99))
    rows, columns = np.mgrid[:121, :99]
    color = np.array([[180, 120], [120, 100]])[rows % 2, columns % 2]
    Image.fromarray((color + noise).round().astype(np.uint8)).save(tmp_path / "raw.png")
    return tmp_path / "raw.png"


def test_a_raw_picture_becomes_one_in_color(raw):
    problem = Problem.from_file(raw, "demosaicing")
    assert not problem.gray
    assert problem.y.shape == (1, 3, 121, 99)
    assert problem.settings["pattern"] == "rggb"
    assert problem.sigma == pytest.approx(2 * 4 / 255, rel=0.1)  # not the steps between the colors
    means = problem.y.sum((0, 2, 3)) / problem.op.mask.sum((1, 2))
    assert (127.5 * (means + 1)).tolist() == pytest.approx([180, 120, 100], abs=0.5)
    swapped = Problem.from_file(raw, "demosaicing", pattern="bggr", sigma=0.1)
    assert swapped.sigma == 0.1
    assert torch.equal(swapped.y.flip(1), problem.y)


def test_what_is_no_raw_picture_is_refused(raw, tmp_path):
    Image.effect_noise((16, 16), 50).convert("RGB").save(tmp_path / "equal.png")
    Problem.from_file(tmp_path / "equal.png", "demosaicing", sigma=0.1)  # gray, though it has three channels
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)).save(tmp_path / "color.png")
    np.save(tmp_path / "array.npy", np.zeros((3, 16, 16), np.float32))
    for path, settings, said in (
        (tmp_path / "color.png", {}, "which is gray: this one has colors"),
        (raw, dict(pattern="random"), "pattern must be rggb or bggr or grbg or gbrg, got 'random'"),
        (raw, dict(channels=1), "a model for color"),
        (tmp_path / "array.npy", dict(sigma=0.1), "takes a picture file"),
    ):
        with pytest.raises(ProblemError, match=said):
            Problem.from_file(path, "demosaicing", **settings)


def test_the_command_writes_colors(raw, tmp_path):
    model = tiny_model(tmp_path / "m.safetensors", [{"name": "demosaicing"}])
    words = ["restore", raw, "--task", "demosaicing", "--pattern", "rggb", "--model", model, "--out", tmp_path / "out"]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    with Image.open(tmp_path / "out" / "raw_restored.png") as restored:
        assert (restored.mode, restored.size) == ("RGB", (99, 121))
