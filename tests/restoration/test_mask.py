"""Masks of inpainting: what counts as missing, and masks that are not what was meant."""

from pathlib import Path

import numpy as np
import pytest
from helpers import says
from PIL import Image

from firm.restoration import Problem, ProblemError
from firm.restoration.reading import mask_in


@pytest.fixture
def filled(restore):
    """Fill the holes of pictures into tmp_path/out."""
    return lambda *words, **how: restore("--task", "inpainting", "--sigma", 0.1, *words, **how)


@pytest.fixture
def mask(tmp_path):
    """A mask of 36x44 pixels: strokes of a color (RGBA) on a background."""

    def make(strokes, background, rows=slice(5, 10)):
        pixels = np.empty((36, 44, 4), np.uint8)
        pixels[:] = background
        pixels[rows] = strokes
        opaque = (pixels[..., 3] == 255).all()
        Image.fromarray(pixels[..., :3] if opaque else pixels).save(tmp_path / "mask.png")
        return tmp_path / "mask.png"

    return make


WHITE, BLACK, RED, NOTHING = (255, 255, 255, 255), (0, 0, 0, 255), (255, 0, 0, 255), (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("strokes", "background"),
    [
        ((255, 255, 255, 128), NOTHING), ((128, 128, 128, 255), (127, 127, 127, 255)),
        (WHITE, (255, 255, 255, 0)),  # as GIMP exports strokes: white below what is transparent
    ],
)  # fmt: skip
def test_bright_and_opaque_is_missing(folder, mask, strokes, background):
    p = Problem.from_file(folder / "000.png", "inpainting", sigma=0.1, mask=mask(strokes, background))
    holes = p.op.mask.numpy() == 0
    assert holes[5:10].all()
    assert holes.sum() == 5 * 44


@pytest.mark.parametrize("strokes", [BLACK, RED, (127, 127, 127, 255), None])
@pytest.mark.parametrize("background", [BLACK, NOTHING])
def test_a_mask_without_holes_is_refused(folder, mask, tmp_path, strokes, background):
    file = mask(strokes or BLACK, background)
    if strokes is None:  # white, but the transparent color of a palette
        holes = Image.new("P", (44, 36), 0)
        holes.putpalette([255, 255, 255])
        holes.save(file, transparency=0)
    with pytest.raises(ProblemError, match=r"nothing is missing by the mask .*mask\.png: white means missing"):
        Problem.from_file(folder / "000.png", "inpainting", sigma=0.1, mask=file)


def test_much_that_is_missing_is_noted(folder, mask, filled, tmp_path):
    for rows, percent in ((27, 75), (18, None), (35, 97)):
        words = ["--mask", mask(WHITE, BLACK, slice(0, rows)), "--out", tmp_path / str(rows)]
        output = filled(folder / "000.png", *words)
        note = f"note: {percent} % of the picture is missing by its mask: white means missing"
        assert says(output, note) if percent else "missing by its mask" not in output


def test_the_masks_of_a_folder_may_have_other_endings(tmp_path):
    pictures, masks = tmp_path / "pictures", tmp_path / "masks"
    for place in (pictures / "sub", masks / "sub"):
        place.mkdir(parents=True)
    for name in ("sub/b.gif", "c.png", "c.jpg", "sub/d.bmp", "sub/d.png"):
        Image.new("L", (4, 4)).save(masks / name)
    (masks / "a.txt").touch()
    (masks / "a.png").mkdir()

    def found(name):
        return mask_in(masks, pictures / name, Path(name)).relative_to(masks).as_posix()

    assert found("c.png") == "c.png"  # its own, whatever lies beside it
    assert found("sub/b.JPG") == "sub/b.gif"
    for name, said in (
        ("a.jpg", rf"no mask for {pictures}/a.jpg in {masks} \(a.jpg, or a with another ending\)"),
        ("none/a.jpg", "no mask for"),
        ("sub/d.tif", rf"several masks for {pictures}/sub/d.tif in {masks}/sub: d.bmp, d.png"),
    ):
        with pytest.raises(ProblemError, match=said):
            found(name)
    (pictures / "sub" / "b.gif").touch()
    with pytest.raises(ProblemError, match="no mask for"):  # there is a picture whose own it is
        found("sub/b.JPG")


def test_a_folder_of_photographs_and_a_folder_of_masks(folder, filled, mask, tmp_path):
    masks, photograph = tmp_path / "masks", tmp_path / "a.jpg"
    masks.mkdir()
    Image.open(folder / "000.png").save(photograph)
    mask(WHITE, BLACK).rename(masks / "a.png")
    filled(photograph, "--mask", masks)
    assert says(filled(photograph, "--mask", masks), "nothing to do")
    (masks / "a.png").unlink()
    assert says(filled(photograph, "--mask", masks, "--force", code=2), f"no mask for {photograph}")


def test_masks_below_the_pictures_are_no_pictures(folder, filled, mask, tmp_path):
    pictures, masks = tmp_path / "pictures", tmp_path / "pictures" / "masks"
    masks.mkdir(parents=True)
    Image.open(folder / "000.png").save(pictures / "a.png")
    mask(WHITE, BLACK).rename(masks / "a.png")
    filled(pictures, "--mask", masks)
    assert len(list((tmp_path / "out").rglob("*_restored.png"))) == 1
    # where the masks lie above the pictures, these are pictures nevertheless
    (pictures / "sub").mkdir()
    (masks / "a.png").rename(pictures / "b.png")
    Image.open(folder / "000.png").save(pictures / "sub" / "b.png")
    filled(pictures / "sub", "--mask", pictures, "--out", tmp_path / "above")
