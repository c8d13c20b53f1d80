"""A preview: the middle of a picture, restored as the whole would be."""

import pytest
import torch
from helpers import says
from PIL import Image

from firm.data import read_picture
from firm.restoration import Problem
from firm.restoration.output import write_picture


@pytest.fixture
def picture(tmp_path):
    x = torch.rand(3, 90, 130, generator=torch.Generator().manual_seed(0)) * 2 - 1
    write_picture(tmp_path / "a.png", x)
    return tmp_path / "a.png"


@pytest.mark.parametrize(
    ("task", "settings"),
    [("denoising", {}), ("demosaicing", {"pattern": "grbg"}), ("super-resolution", {"scale": 3}), (None, {})],
)
def test_the_problem_is_that_of_the_middle(picture, task, settings):
    if task == "demosaicing":
        Image.open(picture).convert("L").save(picture)
    whole = Problem.from_file(picture, task, **settings)
    part = Problem.from_file(picture, task, region=48, **settings)
    x = read_picture(picture)
    assert part.sigma == pytest.approx(whole.sigma)  # estimated on the whole
    top, left = (90 - 48) // 2 // 12 * 12, (130 - 48) // 2 // 12 * 12
    assert torch.equal(part.shown[0], x[: part.shown.shape[1], top : top + 48, left : left + 48])


def test_the_mask_goes_with_it(picture, tmp_path):
    mask = torch.zeros(90, 130, dtype=torch.uint8)
    mask[40:50, 60:70] = 255
    Image.fromarray(mask.numpy()).save(tmp_path / "mask.png")
    part = Problem.from_file(picture, "inpainting", sigma=0.1, mask=tmp_path / "mask.png", region=48)
    assert part.op.A(torch.ones(1, 3, 48, 48)).eq(0).sum() == 300


def test_the_command_writes_one_picture_and_no_results(picture, restore, tmp_path):
    said = restore(picture, "--task", "denoising", "--preview", "--tile", 64)
    assert says(said, "the whole picture takes about")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["a_preview.png"]
    with Image.open(tmp_path / "out" / "a_preview.png") as sheet:
        assert sheet.width > 2 * 130
    restore(picture, "--simulate", "denoising", "--preview", code=2)


def test_pictures_of_one_name_have_previews_of_their_own(picture, restore, tmp_path):
    Image.open(picture).save(tmp_path / "a.bmp")
    restore(picture, tmp_path / "a.bmp", "--task", "denoising", "--preview", "--tile", 64)
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_the_path_may_be_relative(picture, restore, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    restore("a.png", "--task", "denoising", "--preview", "--tile", 64)
    assert (tmp_path / "out" / "a_preview.png").is_file()
