"""What visitors ask for: limits, words, and the command line that does the same."""

import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import call, says
from PIL import Image

from firm.data import portrait
from firm.data.opening import PictureError
from firm.demo.jobs import Progress
from firm.demo.previews import save_preview
from firm.demo.request import Limits, Request, RequestError, Upload, for_visitors
from firm.operators import Blur, gaussian_kernel
from firm.restoration import ProblemError

LIMITS = Limits()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "scan.npy"}, "scan.npy: the page takes pictures"),
        ({"trouble": "mood"}, "what is wrong must be fix, noise"),
        ({"trouble": "holes"}, "paint over what is missing first"),
        ({"scale": 5, "trouble": "small"}, "2, 3, 4 times larger, not 5"),
        ({"noise": 300.0}, "the noise level must be from 0 to 255, got 300"),
        ({"blur": 20.0}, "the width of the blur must be from 0.1 to 10"),
        ({"steps": 51}, "steps must be a whole number from 1 to 50, got 51"),
        ({"steps": 1.5}, "steps must be a whole number"),
        ({"iterations": 9}, "iterations must be a whole number from 1 to 8, got 9"),
        ({"quality": "best"}, "the quality is fast, faithful, detailed, not 'best'"),
        ({"seed": -1}, "the seed must be"),
        ({"color": "green"}, "missing pixels are black or white"),
    ],
)
def test_what_is_out_of_range_is_refused_and_nothing_is_rounded(ask, changes, words):
    values = vars(ask(**changes))
    with pytest.raises(RequestError, match=words):
        Request.from_controls(Upload(values.pop("picture"), values.pop("name")), values).check(LIMITS)


def test_values_of_controls_become_numbers_of_their_kind(ask, photo):
    values = {"model": "m", "steps": 3.0, "seed": None, "blur": 1, "noise": None}
    assert Request.from_controls(Upload(photo, "photo.png"), values) == ask(model="m", steps=3, blur=1.0)


def test_the_controls_of_the_page_ask_for_a_quality(ask, photo, tmp_path):
    """Where the sliders below *More* stand at 0, the quality says how many."""
    inputs = pytest.importorskip("firm.demo.inputs", reason="the page needs gradio")
    upload = Upload(photo, "photo.png")
    values = {
        "picture": upload, "several": None, "clean": False, "estimated": True, "painting": None,
        "trouble": "noise", "noise": 25, "missing": 50, "model": ask().model, "quality": "detailed", "steps": 0,
        "iterations": 0, "samples": 1, "seed": 0,
    }  # fmt: skip
    assert inputs.requests_from(values, tmp_path) == [ask(quality="detailed")]
    assert inputs.requests_from(values | {"picture": None}, tmp_path) == []
    several = inputs.requests_from(values | {"picture": None, "several": [upload, upload]}, tmp_path)
    assert several == 2 * [ask(quality="detailed")]
    (chosen,) = inputs.requests_from(values | {"quality": "fast", "steps": 3, "iterations": 2}, tmp_path)
    assert chosen == ask(quality="fast", steps=3, iterations=2)
    assert "--quality fast --steps 3 --iterations 2" in chosen.command()


def test_files_pictures_and_results_of_more_than_the_limit_are_refused(ask, tmp_path):
    (tmp_path / "big.png").write_bytes(bytes(30_000_001))
    with pytest.raises(RequestError, match=r"big.png: the file has more than 30 MB"):
        ask(picture=tmp_path / "big.png", name="big.png").check(LIMITS)
    for request, limit in ((ask(), 0.0015), (ask(trouble="small", scale=4), 0.02)):  # the photo has 0.00192
        with pytest.raises(PictureError, match="megapixels"):
            request.problem(3, Limits(megapixels=limit), None)


def test_errors_name_the_visitors_file_and_not_the_servers(ask, caplog):
    request = ask(name="holiday.png")
    with pytest.raises(PictureError) as error:
        request.problem(3, Limits(megapixels=0.001), None)
    said = request.explain(error.value)
    assert (
        said
        == "holiday.png: 48x40 pixels are 0.0 megapixels, more than the limit of 0.001, which the page's host can raise"
    )
    assert request.explain(RuntimeError(f"{request.picture}")) == "the picture could not be restored (RuntimeError)"
    assert str(request.picture) in caplog.text  # the log of who runs the page has it all


def test_a_mask_is_that_of_a_color_or_painted_and_brought_to_the_pictures_size(ask, tmp_path):
    picture = Image.new("RGB", (8, 4), (200, 0, 0))
    picture.putpixel((3, 1), (0, 0, 0))
    picture.save(tmp_path / "dots.png")
    request = ask(picture=tmp_path / "dots.png", trouble="pixels")
    with Image.open(request.write_mask(LIMITS, tmp_path)) as mask:
        assert np.argwhere(np.asarray(mask)).tolist() == [[1, 3]]
    with pytest.raises(RequestError, match="no pixel of the picture is white"):
        replace(request, color="white").write_mask(LIMITS, tmp_path)
    painted = Image.new("L", (96, 80))  # twice the photo
    painted.paste(255, (20, 10, 40, 30))
    painted.save(tmp_path / "painted.png")
    with Image.open(ask(trouble="holes", mask=tmp_path / "painted.png").write_mask(LIMITS, tmp_path)) as mask:
        assert (mask.size, mask.getbbox()) == ((48, 40), (10, 5, 20, 15))


def test_names_cannot_be_taken_for_options_or_end_the_command(ask):
    words = shlex.split(ask(name="--out;rm -rf x.png").command())
    assert words[:3] == ["firm", "restore", "./--out;rm -rf x.png"]


@pytest.mark.parametrize(
    "changes",
    [
        {"noise": 20.0, "samples": 2}, {"trouble": "blur", "blur": 1.5}, {"trouble": "small", "scale": 3, "steps": 1},
        {"trouble": "pixels", "noise": 1.0}, {"clean": True, "trouble": "noise", "noise": 30.0, "seed": 5},
        {"clean": True, "trouble": "pixels", "missing": 0.4}, {"clean": True, "trouble": "holes", "strokes": 3},
        {"clean": True, "trouble": "small", "scale": 2}, {"noise": 20.0, "quality": "fast"},
        {"noise": 20.0, "quality": "detailed", "steps": 3, "iterations": 1}, {"strength": 1.5},
        {"trouble": "motion", "length": 5.0, "angle": 30.0}, {"clean": True, "trouble": "mosaic", "pattern": "bggr"},
    ],
)  # fmt: skip
def test_the_command_gives_the_same_picture(ask, restorer, tmp_path, changes):
    """The line that the page shows, run on the command line: the very bytes."""
    if changes.get("trouble") == "pixels" and not changes.get("clean"):
        with Image.open(ask().picture) as picture:
            picture.paste((0, 0, 0), (5, 5, 9, 9))
            picture.save(ask().picture)
    request = ask(**changes)
    outcome = restorer.restore(request, Progress(), tmp_path)
    line = request.command(outcome.files.get("mask"), str(request.picture))
    done = call(*shlex.split(line)[1:], "--out", tmp_path / "line", "--precision", "float32")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "line" / "photo_restored.png").read_bytes() == Path(outcome.files["same"]).read_bytes()


def test_the_line_about_a_picture_tells_its_size_and_what_is_wrong(tmp_path):
    sharp = torch.nn.functional.interpolate(portrait(), scale_factor=2, mode="bicubic").clamp(-1, 1)
    noise = torch.randn(sharp.shape, generator=torch.Generator().manual_seed(0))
    save_preview(tmp_path / "noisy.png", sharp + 0.2 * noise)
    save_preview(tmp_path / "soft.png", Blur(gaussian_kernel(25, 3.0)).A(sharp) + 0.01 * noise)
    save_preview(tmp_path / "clean.png", sharp)
    save_preview(tmp_path / "dot.png", sharp[..., :3, :3])
    (tmp_path / "broken.png").write_bytes(b"no picture")
    said = {name: Upload(tmp_path / f"{name}.png", name).describe(LIMITS)
            for name in ("noisy", "soft", "clean", "dot", "broken")}  # fmt: skip
    assert said["noisy"].startswith("256 x 256 pixels; noise of about 2")
    assert "a blur of about" in said["soft"]
    assert "it needs nothing" in said["clean"]
    assert (said["dot"], said["broken"].startswith("**broken")) == ("3 x 3 pixels.", True)
    assert not any("--" in line for line in said.values())


def test_messages_speak_of_the_page_and_not_of_options(ask, restorer, tmp_path):
    Image.new("RGB", (5, 3)).save(tmp_path / "tiny.png")
    request = ask(picture=tmp_path / "tiny.png", name="tiny.png")
    with pytest.raises(ProblemError) as error:
        restorer.restore(request, Progress(), tmp_path)
    assert request.explain(error.value).startswith("tiny.png: too few neighboring pixels")
    assert request.explain(error.value).endswith("give its level with *Noise level*")
    assert for_visitors("65535 is white; --value-range low,high says otherwise") == "65535 is white"


@pytest.mark.parametrize(("noise", "said"), [(1.0, "1"), (120.0, "120")])
def test_noise_that_the_model_does_not_know_is_told_in_gray_levels(ask, restorer, tmp_path, noise, said):
    notes = restorer.restore(ask(noise=noise), Progress(), tmp_path).notes
    assert notes == [f"a noise level of {said} is not what the model was trained for, 6.4 to 51"]


def test_notes_on_the_file_itself_are_shown(ask, restorer, tmp_path):
    with Image.open(ask().picture) as picture:
        picture.save(tmp_path / "a.jpg", quality=30)
        picture.save(tmp_path / "a.gif", save_all=True, append_images=[picture.rotate(90)])
    Image.fromarray(np.full((40, 48), 300, np.int32)).save(tmp_path / "dark.tif")
    holes = Image.new("L", (48, 40), 255)
    holes.paste(0, (0, 0, 48, 10))
    holes.save(tmp_path / "holes.png")

    def notes(name, **changes):
        found = restorer.restore(ask(picture=tmp_path / name, noise=20.0, **changes), Progress(), tmp_path).notes
        assert "--" not in " ".join(found)
        return found

    assert "the first of 2 frames is restored, the others are left out" in notes("a.gif")
    with_holes = notes("a.jpg", trouble="holes", mask=tmp_path / "holes.png")
    assert "75 % of the picture is missing" in with_holes
    assert "this is a JPEG" in " ".join(with_holes)
    assert "0 was taken for black and 65535 for white" in notes("dark.tif")[0]


@pytest.mark.parametrize(
    ("words", "megapixels"),
    [([], 64), (["--host", "0.0.0.0"], 2.1), (["--name", "firm.example"], 2.1), (["--max-megapixels", "5"], 5)],
)
def test_pictures_may_be_large_where_nobody_else_is_let_in(monkeypatch, words, megapixels):
    app, asked = pytest.importorskip("firm.demo.app"), {}

    def serve(*address, limits, **settings):
        asked["megapixels"] = limits.megapixels
        raise ValueError("served")

    monkeypatch.setattr(app, "serve", serve)
    assert says(call("demo", *words).output, "served")
    assert asked == {"megapixels": megapixels}
