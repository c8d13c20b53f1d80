"""``--keep-known``: pixels outside the mask stay exactly as they are."""

import numpy as np
import pytest
from helpers import says
from PIL import Image
from typer.testing import CliRunner

from firm.cli import app
from firm.restoration import ProblemError, picture_problem


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


def test_other_tasks_know_no_pixel(folder, model_file, tmp_path):
    for words in (["--task", "denoising"], ["--simulate", "random-inpainting"]):
        result = restore(folder / "000.png", tmp_path / "o", model_file, *words, "--keep-known")
        assert result.exit_code == 2
        assert says(result.output, "--keep-known belongs to --task inpainting")
    with pytest.raises(ProblemError, match="keep_known does not belong to denoising"):
        picture_problem(folder / "000.png", "denoising", keep_known=True)
