"""Transparency: colors are restored, alpha is passed on."""

import numpy as np
import pytest
import torch
from PIL import Image

from firm.data.picture import read_with_alpha
from firm.restoration import Problem
from firm.restoration.output import write_picture
from restoration_helpers import pixels


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


@pytest.fixture
def denoised(restore, tmp_path):
    """Denoise a picture into a folder, and return the file of the result."""

    def run(path, out, *more, ending="png"):
        restore(path, "--task", "denoising", "--sigma", 0.1, "--out", tmp_path / out, *more)
        return tmp_path / out / f"{path.stem}_restored.{ending}"

    return run


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_alpha_is_kept_in_every_format(transparent, denoised, mode):
    path, given = transparent(mode)
    restored = denoised(path, "o", "--samples", 2)
    for what in ("restored", "mean", "sample_01"):
        found = pixels(restored.with_name(f"a_{what}.png"))
        np.testing.assert_array_equal(found[..., -1], given[..., -1])
        assert found.shape == given.shape
    saved = denoised(path, "f", "--format", "npy", ending="npy")
    floats = np.load(saved)
    np.testing.assert_allclose(floats[..., -1] * 255, given[..., -1], atol=1e-4)
    np.testing.assert_array_equal(pixels(denoised(saved, "g"))[..., -1], given[..., -1])  # is read back
    colors, alpha = read_with_alpha(denoised(path, "d", "--format", "png16"))
    np.testing.assert_array_equal(alpha, given[..., -1])
    expected = np.broadcast_to(floats[..., :-1].clip(0, 1), (36, 44, 3))
    np.testing.assert_allclose((colors + 1).permute(1, 2, 0) / 2, expected, atol=1 / 255)


def test_alpha_grows_with_the_picture(transparent, restore, tmp_path):
    path, given = transparent()
    restore(path, "--task", "super-resolution", "--sigma", 0.1)
    found = pixels(tmp_path / "out" / "a_restored.png").astype(float)
    assert found.shape == (72, 88, 4)
    np.testing.assert_allclose(found[::2, 4:-4:2, 3], given[:, 2:-2, 3], atol=4)


def test_hidden_colors_are_not_laid_over_white(transparent):
    path, given = transparent()
    colors, alpha = read_with_alpha(path)
    np.testing.assert_array_equal(((colors + 1) * 127.5).round().byte().permute(1, 2, 0).numpy(), given[..., :3])
    np.testing.assert_array_equal(alpha.numpy(), given[..., 3])
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
