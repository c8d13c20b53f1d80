"""What visitors ask for: limits, words, and the command line that does the same."""

import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Generator
from typer.testing import CliRunner

from firm.cli import app
from firm.data import portrait
from firm.data.picture_file import PictureError
from firm.demo.command import arguments, command
from firm.demo.components import Upload
from firm.demo.inputs import describe
from firm.demo.problem import mask_of, problem_of
from firm.demo.request import Limits, RequestError, check, in_words
from firm.demo.watch import Watch
from firm.restoration import Problem, ProblemError

LIMITS = Limits()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "scan.npy"}, "scan.npy: the page takes pictures"),
        ({"trouble": "mood"}, "what is wrong must be noise, blur"),
        ({"trouble": "holes"}, "paint over what is missing first"),
        ({"scale": 5, "trouble": "small"}, "2, 3, 4 times larger, not 5"),
        ({"noise": 300.0}, "the noise level must be from 0 to 255, got 300"),
        ({"noise": float("nan")}, "the noise level must be"),
        ({"blur": 20.0}, "the width of the blur must be from 0.1 to 10"),
        ({"steps": 51}, "steps must be a whole number from 1 to 50, got 51"),
        ({"samples": 0}, "samples must be a whole number from 1 to 16, got 0"),
        ({"seed": -1}, "the seed must be"),
        ({"missing": 1.0}, "share of missing pixels must be"),
        ({"color": "green"}, "missing pixels are black or white"),
    ],
)
def test_what_is_out_of_range_is_refused_in_words(ask, changes, words):
    with pytest.raises(RequestError, match=words):
        check(ask(**changes), LIMITS)


def test_a_file_over_the_limit_is_refused_before_it_is_read(ask, tmp_path):
    big = tmp_path / "big.png"
    with open(big, "wb") as file:
        file.truncate(30_000_001)
    with pytest.raises(RequestError, match=r"big.png: the file has more than 30 MB"):
        check(ask(picture=big, name="big.png"), LIMITS)


def test_pictures_and_results_of_more_than_the_limit_are_refused(ask, restorer, tmp_path):
    small = Limits(megapixels=0.0015)  # the photo has 0.00192
    with pytest.raises(PictureError, match="megapixels"):
        problem_of(ask(), 3, small, None)
    with pytest.raises(PictureError, match="megapixels"):  # it fits, the result does not
        problem_of(ask(trouble="small", scale=4), 3, Limits(megapixels=0.02), None)


def test_errors_name_the_visitors_file_and_not_the_servers(ask, caplog):
    request = ask(name="holiday.png")
    error = PictureError(
        f"{request.picture}: 9x9 pixels are 81 megapixels, more than the limit of 64 (max_megapixels; x)"
    )
    assert in_words(error, request) == "holiday.png: 9x9 pixels are 81 megapixels, more than the limit of 64"
    assert in_words(RuntimeError(f"{request.picture}"), request) == "the picture could not be restored (RuntimeError)"
    assert str(request.picture) in caplog.text  # the log of who runs the page has it all


def test_pixels_of_a_color_are_what_is_missing(ask, tmp_path):
    picture = Image.new("RGB", (8, 4), (200, 0, 0))
    picture.putpixel((3, 1), (0, 0, 0))
    picture.save(tmp_path / "dots.png")
    request = ask(picture=tmp_path / "dots.png", trouble="pixels")
    with Image.open(mask_of(request, LIMITS, tmp_path)) as mask:
        assert [(x, y) for x in range(8) for y in range(4) if mask.getpixel((x, y))] == [(3, 1)]
    with pytest.raises(RequestError, match="no pixel of the picture is white"):
        mask_of(ask(picture=tmp_path / "dots.png", trouble="pixels", color="white"), LIMITS, tmp_path)


def test_a_painted_mask_is_brought_to_the_pictures_size(ask, tmp_path):
    painted = Image.new("L", (96, 80))  # twice the photo
    painted.paste(255, (20, 10, 40, 30))
    painted.save(tmp_path / "painted.png")
    with Image.open(mask_of(ask(trouble="holes", mask=tmp_path / "painted.png"), LIMITS, tmp_path)) as mask:
        assert mask.size == (48, 40)
        assert mask.getbbox() == (10, 5, 20, 15)


def test_names_cannot_be_taken_for_options_or_end_the_command(ask):
    line = command(ask(name="--out;rm -rf x.png"))
    assert shlex.split(line)[:3] == ["firm", "restore", "./--out;rm -rf x.png"]


CASES = [
    {"noise": 20.0, "samples": 2},
    {"trouble": "blur", "blur": 1.5},
    {"trouble": "small", "scale": 3, "steps": 1},
    {"trouble": "pixels", "noise": 1.0},
    {"clean": True, "trouble": "noise", "noise": 30.0, "seed": 5},
    {"clean": True, "trouble": "pixels", "missing": 0.4},
    {"clean": True, "trouble": "holes", "strokes": 3},
    {"clean": True, "trouble": "small", "scale": 2},
]


@pytest.mark.parametrize("changes", CASES, ids=lambda c: ",".join(f"{k}={v}" for k, v in c.items()))
def test_the_command_gives_the_same_picture(ask, restorer, tmp_path, changes):
    """The line that the page shows, run on the command line: the very bytes."""
    if changes.get("trouble") == "pixels" and not changes.get("clean"):
        with Image.open(ask().picture) as picture:
            picture.paste((0, 0, 0), (5, 5, 9, 9))
            picture.save(ask().picture)
    request = ask(**changes)
    there = tmp_path / "page"
    there.mkdir()
    outcome = restorer.restore(request, Watch(), there)
    words = arguments(request, outcome.settings["tile"], outcome.mask, str(request.picture))
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "line"), "--precision", "float32"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "line" / "photo_restored.png").read_bytes() == Path(outcome.png8).read_bytes()


def test_the_line_about_a_picture_tells_size_noise_and_blur(tmp_path):
    from firm.operators import Blur, gaussian_kernel

    sharp = torch.nn.functional.interpolate(portrait(), scale_factor=2, mode="bicubic").clamp(-1, 1)
    soft = Blur(gaussian_kernel(25, 3.0)).A(sharp) + 0.01 * torch.randn(
        sharp.shape, generator=Generator().manual_seed(0)
    )
    for name, image in (("soft", soft), ("noise", torch.rand(1, 3, 64, 64) * 2 - 1)):
        pixels = ((image[0].clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8).permute(1, 2, 0).numpy()
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
    line, width = describe(Upload(tmp_path / "soft.png", "soft.png"), LIMITS)
    assert line.startswith("256 x 256 pixels. Noise: about ")
    assert width == pytest.approx(3.0, rel=0.3)
    assert f"Blur: about {width:.1f}" in line
    line, width = describe(Upload(tmp_path / "noise.png", "noise.png"), LIMITS)
    assert "Blur" not in line
    assert width is None
    assert describe(None, LIMITS) == ("", None)
    (tmp_path / "broken.png").write_bytes(b"no picture")
    line, width = describe(Upload(tmp_path / "broken.png", "broken.png"), LIMITS)
    assert line.startswith("**broken.png")
    assert width is None


def test_errors_and_notes_speak_of_the_page_and_not_of_options(ask, restorer, tmp_path):
    Image.new("RGB", (5, 3)).save(tmp_path / "tiny.png")
    request = ask(picture=tmp_path / "tiny.png", name="tiny.png")
    with pytest.raises(ProblemError) as error:
        restorer.restore(request, Watch(), tmp_path)
    said = "too few neighboring pixels to estimate the noise from: choose its noise level instead of the estimate"
    assert in_words(error.value, request) == f"tiny.png: {said}"
    with pytest.raises(ProblemError) as error:
        Problem.from_file(tmp_path / "tiny.png", "deblurring")
    assert "in pixels: choose its width; " in in_words(error.value, request)
    Image.fromarray(np.full((40, 48), 2e9, np.float32)).save(tmp_path / "floats.tif")
    assert describe(Upload(tmp_path / "floats.tif", "floats.tif"), LIMITS)[0].endswith("expected 0 to 1**")


@pytest.mark.parametrize(("noise", "said"), [(1.0, "1"), (120.0, "120")])
def test_noise_that_the_model_does_not_know_is_told_in_gray_levels(ask, restorer, tmp_path, noise, said):
    told = restorer.restore(ask(noise=noise), Watch(), tmp_path).notes
    assert told == [f"a noise level of {said} is not what the model was trained for, 6.4 to 51"]


def test_notes_on_the_file_itself_are_shown(ask, restorer, tmp_path):
    with Image.open(ask().picture) as picture:
        picture.save(tmp_path / "a.jpg", quality=30)
        picture.save(tmp_path / "a.gif", save_all=True, append_images=[picture.rotate(90)])
    Image.fromarray(np.full((40, 48), 300, np.int32)).save(tmp_path / "dark.tif")
    holes = Image.new("L", (48, 40), 255)
    holes.paste(0, (0, 0, 48, 10))
    holes.save(tmp_path / "holes.png")

    def notes(name, **changes):
        told = restorer.restore(ask(picture=tmp_path / name, noise=20.0, **changes), Watch(), tmp_path).notes
        assert "--" not in " ".join(told)
        return told

    smooth = "the noise estimate does not see it, but a noise level of 13 smooths the blocks; lost detail stays lost"
    assert notes("a.jpg")[0] == f"this is a JPEG, and its compression is not undone: {smooth}"
    assert "the first of 2 frames is restored, the others are left out" in notes("a.gif")
    assert "75 % of the picture is missing" in notes("a.jpg", trouble="holes", mask=tmp_path / "holes.png")
    bits, dark = notes("dark.tif")[:2]
    assert bits.endswith("0 was taken for black and 65535 for white")
    assert dark.endswith("as 4095 in pictures of 12 bits, brighten the picture first")
    for trouble in ("blur", "small"):
        notes("a.jpg", trouble=trouble)
