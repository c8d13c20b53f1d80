"""Transparency: colors are restored, alpha is passed on."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from firm.cli import app
from firm.data.picture import read_with_alpha
from firm.restoration import Problem
from firm.restoration.output import write_picture


@pytest.fixture
def transparent(tmp_path):
    """A picture with a gradient of alpha, and colors below it, in a mode."""

    def make(mode="RGBA"):
        draw = np.random.default_rng(0)
        pixels = draw.integers(60, 190, (36, 44, len(mode))).astype(np.uint8)
        pixels[..., -1] = np.linspace(0, 255, 44).round()
        Image.fromarray(pixels).save(tmp_path / "a.png")
        return tmp_path / "a.png", pixels

    return make


def restore(path, out, model_file, *more):
    words = ["restore", path, "--sigma", 0.1, "--steps", 1, "--model", model_file, "--out", out, *more]
    result = CliRunner().invoke(app, [str(w) for w in words])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_alpha_is_kept(transparent, model_file, tmp_path, mode):
    path, pixels = transparent(mode)
    restore(path, tmp_path / "o", model_file, "--task", "denoising", "--samples", 2)
    for what in ("restored", "mean", "sample_01"):
        with Image.open(tmp_path / "o" / f"a_{what}.png") as found:
            assert found.mode == mode
            np.testing.assert_array_equal(np.asarray(found)[..., -1], pixels[..., -1])


def test_alpha_in_16_bits_and_floats(transparent, model_file, tmp_path):
    path, pixels = transparent()
    restore(path, tmp_path / "f", model_file, "--task", "denoising", "--format", "npy")
    floats = np.load(tmp_path / "f" / "a_restored.npy")
    np.testing.assert_allclose(floats[..., 3] * 255, pixels[..., 3], atol=1e-4)
    restore(path, tmp_path / "d", model_file, "--task", "denoising", "--format", "png16")
    with Image.open(tmp_path / "d" / "a_restored.png") as found:  # Pillow reads 8 of the 16 bits
        assert found.mode == "RGBA"
        np.testing.assert_array_equal(np.asarray(found)[..., 3], pixels[..., 3])
    colors, alpha = read_with_alpha(tmp_path / "d" / "a_restored.png")
    assert alpha.shape == (36, 44)
    np.testing.assert_allclose(((colors + 1) / 2).permute(1, 2, 0).numpy(), floats[..., :3].clip(0, 1), atol=1 / 255)


def test_alpha_grows_with_the_picture(transparent, model_file, tmp_path):
    path, pixels = transparent()
    restore(path, tmp_path / "o", model_file, "--task", "super-resolution")
    with Image.open(tmp_path / "o" / "a_restored.png") as found:
        assert (found.mode, found.size) == ("RGBA", (88, 72))
        alpha = np.asarray(found)[..., 3].astype(float)
    np.testing.assert_allclose(alpha[::2, 4:-4:2], pixels[:, 2:-2, 3], atol=4)


def test_hidden_colors_are_not_laid_over_white(transparent):
    path, pixels = transparent()
    colors, alpha = read_with_alpha(path)
    np.testing.assert_array_equal(((colors + 1) * 127.5).round().byte().permute(1, 2, 0).numpy(), pixels[..., :3])
    np.testing.assert_array_equal(alpha.numpy(), pixels[..., 3])
    assert torch.equal(Problem.from_file(path, "denoising", sigma=0.1).y[0], colors)


def test_colors_that_stand_for_transparency(tmp_path):
    Image.new("P", (4, 4), 0).save(tmp_path / "p.png", transparency=0)
    assert bool((read_with_alpha(tmp_path / "p.png")[1] == 0).all())
    Image.new("RGB", (4, 4), "red").save(tmp_path / "c.png")
    assert read_with_alpha(tmp_path / "c.png")[1] is None


def test_the_noise_is_that_of_what_can_be_seen(tmp_path):
    noisy = 0.2 * torch.randn(1, 64, 64, generator=torch.Generator().manual_seed(0))
    alpha = torch.zeros(64, 64, dtype=torch.uint8)
    alpha[:, :24] = 255
    noisy[:, :, 24:] = 0  # most of the picture, and no noise there
    write_picture(tmp_path / "a.png", noisy.expand(3, -1, -1), alpha=alpha)
    assert Problem.from_file(tmp_path / "a.png", "denoising").sigma == pytest.approx(0.2 * 3**0.5, rel=0.1)


def test_a_saved_picture_with_alpha_is_read_back(transparent, model_file, tmp_path):
    path, pixels = transparent("LA")
    restore(path, tmp_path / "f", model_file, "--task", "denoising", "--format", "npy")
    restore(tmp_path / "f" / "a_restored.npy", tmp_path / "g", model_file, "--task", "denoising")
    with Image.open(tmp_path / "g" / "a_restored_restored.png") as found:
        assert found.mode == "LA"
        np.testing.assert_array_equal(np.asarray(found)[..., 1], pixels[..., 1])
    assert json.loads((tmp_path / "g" / "restore.json").read_text())[0]["sigma"] == 0.1
