"""Masks of inpainting: what counts as missing, and masks that are not what was meant."""

import numpy as np
import pytest
from helpers import call, says
from PIL import Image

from firm.restoration import ProblemError, picture_problem


@pytest.fixture
def mask(tmp_path):
    """A mask of 36x44 pixels: strokes of a colour (RGBA) on a background."""

    def make(strokes, background, rows=slice(5, 10)):
        pixels = np.empty((36, 44, 4), np.uint8)
        pixels[:] = background
        pixels[rows] = strokes
        opaque = (pixels[..., 3] == 255).all()
        Image.fromarray(pixels[..., :3] if opaque else pixels).save(tmp_path / "mask.png")
        return tmp_path / "mask.png"

    return make


WHITE, BLACK, RED, NOTHING = (255, 255, 255, 255), (0, 0, 0, 255), (255, 0, 0, 255), (0, 0, 0, 0)


def missing(folder, mask):
    """The rows that are missing, and whether the others are whole."""
    p = picture_problem(folder / "000.png", "inpainting", sigma=0.1, mask=mask)
    holes = p.op.mask.numpy() == 0
    return sorted(set(np.nonzero(holes)[0].tolist())), int(holes.sum())


@pytest.mark.parametrize(
    ("strokes", "background"),
    [
        (WHITE, BLACK),
        (WHITE, NOTHING),
        (WHITE, (255, 255, 255, 0)),  # as GIMP exports strokes: white below what is transparent
        (WHITE, (255, 255, 255, 100)),  # pale
        ((128, 128, 128, 255), (127, 127, 127, 255)),
        ((255, 255, 255, 128), NOTHING),
    ],
)
def test_bright_and_opaque_is_missing(folder, mask, strokes, background):
    assert missing(folder, mask(strokes, background)) == ([5, 6, 7, 8, 9], 5 * 44)


@pytest.mark.parametrize(
    ("strokes", "background"),
    [(BLACK, BLACK), (RED, BLACK), (BLACK, NOTHING), (RED, NOTHING), ((127, 127, 127, 255), BLACK)],
)
def test_a_mask_without_holes_is_refused(folder, mask, strokes, background):
    with pytest.raises(ProblemError, match=r"nothing is missing by the mask .*mask\.png: white means missing") as told:
        missing(folder, mask(strokes, background))
    assert "128 to 255" in str(told.value)
    assert "transparent pixels are kept" in str(told.value)


def test_a_transparent_colour_of_a_palette_is_kept(folder, tmp_path):
    holes = Image.new("P", (44, 36), 0)
    holes.putpalette([255, 255, 255, 255, 255, 255])
    holes.paste(1, (0, 5, 44, 10))
    holes.save(tmp_path / "mask.png", transparency=0)
    assert missing(folder, tmp_path / "mask.png") == ([5, 6, 7, 8, 9], 5 * 44)


def test_much_that_is_missing_is_noted(folder, mask, model_file, tmp_path):
    words = ["restore", folder / "000.png", "--task", "inpainting", "--sigma", 0.1, "--steps", 1, "--model", model_file]
    for rows, percent in ((slice(0, 27), 75), (slice(0, 18), None), (slice(0, 35), 97)):
        result = call(*words, "--mask", mask(WHITE, BLACK, rows), "--out", tmp_path / f"out-{percent}")
        assert result.exit_code == 0, result.output
        assert ("missing by its mask" in result.output) == (percent is not None)
        if percent is not None:
            assert says(result.output, f"note: {percent} % of the picture is missing by its mask: white means missing")


def test_the_command_refuses_a_mask_without_holes(folder, mask, model_file, tmp_path):
    words = ["--task", "inpainting", "--mask", mask(BLACK, NOTHING), "--model", model_file, "--out", tmp_path / "out"]
    result = call("restore", folder / "000.png", *words)
    assert result.exit_code == 2
    assert says(result.output, "white means missing")
