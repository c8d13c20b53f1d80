"""Pictures that were compressed as JPEG, and what the user is told."""

import io

import pytest
import torch
from PIL import Image

from firm.data import read_picture
from firm.data.sets import portrait_file
from firm.metrics import psnr
from firm.restoration import Problem
from firm.restoration.estimates import has_blocks, jpeg_note, jpeg_quality


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


def test_the_user_is_told_where_the_noise_level_cannot_help(portrait, restore, tmp_path):
    portrait.save(tmp_path / "low.jpg", quality=40)
    portrait.convert("L").save(tmp_path / "raw.jpg", quality=60)
    assert "mixes the values of neighboring pixels" in Problem.from_file(tmp_path / "raw.jpg", "demosaicing").notes[0]
    assert Problem.from_file(tmp_path / "low.jpg", "denoising").notes == ()
    for task in ("inpainting", "demosaicing"):
        assert jpeg_note(tmp_path / "low.jpg", torch.zeros(1, 3, 8, 8), task)


@pytest.mark.parametrize("quality", [20, 40, 60])
def test_a_jpegs_blocks_are_smoothed_by_themselves(portrait, restore, tmp_path, quality):
    """The level that is estimated sees them: the result is nearer to the picture before it was compressed."""
    portrait.save(tmp_path / "low.jpg", quality=quality)
    restore(tmp_path / "low.jpg", "--task", "denoising", "--model", "photo")
    truth, before, after = (read_picture(p) for p in (save(portrait, tmp_path), tmp_path / "low.jpg",
                                                      tmp_path / "out" / "low_restored.jpg"))  # fmt: skip
    assert psnr(after[None], truth[None]) > psnr(before[None], truth[None]) + 0.5


def save(picture, folder):
    picture.save(folder / "truth.png")
    return folder / "truth.png"
