"""``--keep-known``, the default where there is no noise: pixels outside the mask stay exactly as they are."""

import numpy as np
import pytest
from helpers import says
from PIL import Image

from restoration_helpers import pixels, rows, save_gray


@pytest.fixture
def holes():
    """A hole in the middle of pictures of 36x44 pixels."""
    holes = np.zeros((36, 44), bool)
    holes[10:20, 15:30] = True
    return holes


@pytest.fixture
def filled(restore, holes, tmp_path):
    """Fill the hole of pictures into tmp_path/out."""
    mask = save_gray(tmp_path / "mask.png", holes)
    return lambda *words, **how: restore("--task", "inpainting", "--mask", mask, *words, **how)


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_known_pixels_are_kept_to_the_bit(folder, filled, tmp_path, holes, mode):
    Image.open(folder / "000.png").convert(mode).save(tmp_path / "p.png")
    given = pixels(tmp_path / "p.png")
    for out, more in (("kept", ["--keep-known"]), ("free", [])):
        filled(tmp_path / "p.png", "--sigma", 0.1, "--samples", 2, *more, "--out", tmp_path / out)
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
    [(0, ["--sigma", 0.002], True), (0, ["--sigma", 0.003], False), (0, ["--sigma", 0, "--no-keep-known"], False),
     (0, [], True),  # the estimate is the rounding to 8 bits, and no less
     (8, [], False), (8, ["--keep-known"], True)],
)  # fmt: skip
def test_known_pixels_are_kept_by_default_where_there_is_no_noise(filled, tmp_path, holes, noise, words, kept):
    smooth = np.add.outer(2 * np.arange(36), 3 * np.arange(44))[..., None] + np.array([0, 20, 40])
    noisy = smooth + np.random.default_rng(0).normal(0, noise, smooth.shape)
    given = noisy.round().clip(0, 255).astype(np.uint8)
    Image.fromarray(given).save(tmp_path / "p.png")
    filled(tmp_path / "p.png", *words)
    found = pixels(tmp_path / "out" / "p_restored.png")
    assert bool((found[~holes] == given[~holes]).all()) == kept
    assert rows(tmp_path / "out")[0]["keep_known"] == kept


def test_results_with_and_without_known_pixels_are_of_different_runs(folder, filled):
    words = [folder / "000.png", "--sigma", 0.1]
    filled(*words)
    assert says(filled(*words), "nothing to do")
    for other in ("--keep-known", "--no-keep-known"):
        assert says(filled(*words, other, code=2), "is a result of a run with other settings")
