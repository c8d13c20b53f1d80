"""``--keep-known``, the default where there is no noise: pixels outside the mask stay exactly as they are."""

import json

import numpy as np
import pytest
from helpers import call, says
from PIL import Image
from typer.testing import CliRunner

from firm.cli import app
from firm.restoration import Problem, ProblemError


@pytest.fixture
def mask(tmp_path):
    """A hole in the middle of pictures of 36x44 pixels."""
    holes = np.zeros((36, 44), np.uint8)
    holes[10:20, 15:30] = 255
    Image.fromarray(holes).save(tmp_path / "mask.png")
    return tmp_path / "mask.png", holes > 0


def restore(path, out, model_file, *more):
    words = ["restore", path, "--sigma", 0.1, "--steps", 1, "--model", model_file, "--out", out, *more]
    return CliRunner().invoke(app, [str(w) for w in words])


def pixels(path):
    with Image.open(path) as picture:
        return np.asarray(picture)


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_known_pixels_are_kept_to_the_bit(folder, model_file, tmp_path, mask, mode):
    path, holes = mask
    Image.open(folder / "000.png").convert(mode).save(tmp_path / "p.png")
    given = pixels(tmp_path / "p.png")
    common = ["--task", "inpainting", "--mask", path, "--samples", 2]
    assert restore(tmp_path / "p.png", tmp_path / "kept", model_file, *common, "--keep-known").exit_code == 0
    assert restore(tmp_path / "p.png", tmp_path / "free", model_file, *common).exit_code == 0
    for what in ("restored", "mean", "sample_02"):
        kept, free = (pixels(tmp_path / name / f"p_{what}.png") for name in ("kept", "free"))
        assert (kept[~holes] == given[~holes]).all()
        assert (kept[holes] == free[holes]).all()
        assert (free[~holes] != given[~holes]).any()  # whose noise is removed too
    spread = pixels(tmp_path / "kept" / "p_std.png")
    black = spread[0, 0]
    assert (spread[~holes] == black).all()
    assert (spread[holes] != black).any()


@pytest.mark.parametrize(
    ("noise", "words", "kept"),
    [
        (0, ["--sigma", 0], True),
        (0, ["--sigma", 0.002], True),
        (0, ["--sigma", 0.003], False),
        (0, ["--sigma", 0, "--no-keep-known"], False),
        (0, [], True),  # the estimate is the rounding to 8 bits, and no less
        (0, ["--no-keep-known"], False),
        (8, [], False),
        (8, ["--keep-known"], True),
    ],
)
def test_known_pixels_are_kept_by_default_where_there_is_no_noise(model_file, tmp_path, mask, noise, words, kept):
    path, holes = mask
    smooth = np.add.outer(2 * np.arange(36), 3 * np.arange(44))[..., None] + np.array([0, 20, 40])
    noisy = smooth + np.random.default_rng(0).normal(0, noise, smooth.shape)
    given = noisy.round().clip(0, 255).astype(np.uint8)
    Image.fromarray(given).save(tmp_path / "p.png")
    common = [tmp_path / "p.png", "--task", "inpainting", "--mask", path, "--steps", 1, "--model", model_file]
    result = call("restore", *common, *words, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    found = pixels(tmp_path / "out" / "p_restored.png")
    assert bool((found[~holes] == given[~holes]).all()) == kept
    (row,) = json.loads((tmp_path / "out" / "restore.json").read_text())
    assert row["keep_known"] == kept


def test_results_with_and_without_known_pixels_are_of_different_runs(folder, model_file, tmp_path, mask):
    words = [folder / "000.png", tmp_path / "out", model_file, "--task", "inpainting", "--mask", mask[0]]
    assert restore(*words).exit_code == 0
    assert says(restore(*words).output, "nothing to do")
    for other in ("--keep-known", "--no-keep-known"):
        assert says(restore(*words, other).output, "is a result of a run with other settings")


def test_other_tasks_know_no_pixel(folder, model_file, tmp_path):
    for words in (["--task", "denoising"], ["--simulate", "random-inpainting"]):
        for option in ("--keep-known", "--no-keep-known"):
            result = restore(folder / "000.png", tmp_path / "o", model_file, *words, option)
            assert result.exit_code == 2
            assert says(result.output, "--keep-known belongs to --task inpainting")
    with pytest.raises(ProblemError, match="keep_known does not belong to denoising"):
        Problem.from_file(folder / "000.png", "denoising", keep_known=True)
