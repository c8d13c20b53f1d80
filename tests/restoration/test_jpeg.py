"""Pictures that were compressed as JPEG, and what the user is told."""

import io

import pytest
import torch
from helpers import says
from PIL import Image

from firm.data import read_picture
from firm.data.sets import portrait_file
from firm.restoration import Problem
from firm.restoration.estimates import has_blocks, jpeg_note, jpeg_quality
from firm.tasks import picture_tasks


@pytest.fixture(scope="module")
def portrait():
    with Image.open(portrait_file()) as picture:
        return picture.convert("RGB")


def compressed(picture, quality):
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=quality)
    buffer.seek(0)
    return Image.open(buffer)


@pytest.mark.parametrize("quality", [1, 30, 75, 100])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_the_quality_is_read_from_the_file(portrait, tmp_path, quality, mode):
    portrait.convert(mode).save(tmp_path / "a.jpg", quality=quality)
    assert jpeg_quality(tmp_path / "a.jpg") == pytest.approx(quality, abs=2)


def test_other_files_have_none(portrait, tmp_path):
    portrait.save(tmp_path / "a.png")
    (tmp_path / "b.jpg").write_bytes(b"no picture")
    assert [jpeg_quality(tmp_path / name) for name in ("a.png", "b.jpg", "none.jpg")] == [None] * 3


def test_blocks_are_seen_in_other_formats_too(portrait, tmp_path):
    def blocks(picture, place=(0, 0)):
        picture.crop((*place, 128, 128)).save(tmp_path / "a.png")
        return has_blocks(read_picture(tmp_path / "a.png")[None])

    assert blocks(compressed(portrait, 20))
    assert blocks(compressed(portrait, 20), (3, 5))  # the grid need not begin at the corner
    assert not blocks(portrait)
    assert not blocks(compressed(portrait, 95))


def test_what_has_no_blocks():
    fence = torch.zeros(1, 1, 64, 64)
    fence[..., ::8] = 1  # in one direction
    for y in (torch.zeros(1, 3, 64, 64), torch.randn(1, 3, 64, 64), torch.rand(1, 3, 16, 64), fence):
        assert not has_blocks(y)


def test_the_user_is_told(portrait, restore, tmp_path):
    portrait.save(tmp_path / "low.jpg", quality=40)
    portrait.save(tmp_path / "high.jpg", quality=95)
    compressed(portrait, 15).save(tmp_path / "was.png")
    portrait.save(tmp_path / "clean.png")
    portrait.convert("L").save(tmp_path / "raw.jpg", quality=60)

    def notes(name, task="denoising"):
        return Problem.from_file(tmp_path / name, task).notes

    assert "was a JPEG once" in notes("was.png")[0]
    assert notes("high.jpg") == notes("clean.png") == ()
    assert "mixes the values of neighboring pixels" in notes("raw.jpg", "demosaicing")[0]
    assert says(restore(tmp_path / "low.jpg", "--task", "denoising"), f"note: {notes('low.jpg')[0]}")
    for task in picture_tasks():
        told = jpeg_note(tmp_path / "low.jpg", torch.zeros(1, 3, 8, 8), task)
        assert bool(told) == (task != "jpeg")  # which undoes it


@pytest.mark.parametrize(
    ("quality", "task", "level"),
    [(80, "deblurring", "0.05"), (60, "deblurring", "0.1"), (40, "deblurring", "0.2"), (40, "denoising", "0.1"),
     (None, "deblurring", "0.2")],
)  # fmt: skip
def test_the_note_names_the_level_that_was_best(portrait, tmp_path, quality, task, level):
    """As experiments/notes/jpeg measured it; blocks that are seen in a picture of another format are strong."""
    path = tmp_path / ("a.png" if quality is None else "a.jpg")
    compressed(portrait, 15).save(path) if quality is None else portrait.save(path, quality=quality)
    assert f"--sigma {level} " in jpeg_note(path, read_picture(path)[None], task)
