"""What stands behind the page: results, progress, canceling, files."""

import json
import os
import re
import threading
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from helpers import tiny_model
from PIL import Image

from firm.data import portrait
from firm.data.picture import read_picture
from firm.demo.jobs import CanceledError, Progress
from firm.demo.models import Models
from firm.demo.previews import painted, save_heat_map, save_preview
from firm.demo.request import Limits, RequestError
from firm.demo.restorer import STEPS_COMPARED, Restorer
from firm.demo.workspace import PREFIX, Workspace
from firm.restoration.calibration import Calibration, TaskScale, in_card


def test_a_restoration_has_all_that_the_page_shows(ask, restorer, tmp_path):
    outcome = restorer.restore(ask(clean=True, noise=20.0, samples=3), Progress(), tmp_path)
    files = outcome.files
    assert all(Path(path).is_file() for path in (*files.values(), *outcome.samples))
    assert len(outcome.samples) == 3
    assert read_picture(files["same"]).shape == (3, 40, 48)
    assert Path(files["png16"]).read_bytes()[24] == 16  # bits, in the header of a PNG
    about = json.loads(Path(files["settings"]).read_text())
    assert about == outcome.settings
    assert about["network calls"] == 3 * 2 * 2
    assert about["noise (gray levels)"] == pytest.approx(20, abs=0.01)
    assert set(about["scores"]) == {"psnr", "ssim", "lpips"}
    assert "48 x 40 pixels, noise of 20.0 of 255 levels." in outcome.summary()
    outcome = restorer.restore(ask(trouble="blur"), Progress(), tmp_path)  # no truth, one sample
    assert (outcome.settings["scores"], outcome.samples) == ({}, [])
    assert set(outcome.files) == {"before", "after", "same", "png16", "settings"}
    assert "(estimated)" in outcome.summary()
    assert "Note: the model was not trained for deblurring." in outcome.summary()


def carrying(path):
    """A model with presets and depths, and calibrations of two of its three pairs."""
    tasks = {"denoising": TaskScale({"measured": 3.0}, {"sigma": 0.2}, 0.5, 0.9, {"2": {"measured": 6.0}})}
    found = [Calibration("", N, K, 8, 20, tasks) for N, K in ((1, 1), (2, 3))]
    presets = {"fast": [1, 1], "faithful": [2, 3], "detailed": [4, 2]}
    card = dict(depths=[1, 2, 3], presets=presets, calibrations=in_card(found))
    return str(tiny_model(path, [{"name": "denoising", "sigma": [0.05, 0.4]}], channels=3, **card))


@pytest.fixture
def presets(tmp_path):
    return Restorer(Models([carrying(tmp_path / "presets.safetensors")], torch.device("cpu"), "float32"))


@pytest.mark.parametrize(
    ("changes", "pair"),
    [({}, (2, 3)), ({"quality": "fast"}, (1, 1)), ({"quality": "detailed"}, (4, 2)), ({"steps": 3}, (3, 3)),
     ({"quality": "detailed", "iterations": 1}, (4, 1)), ({"quality": "fast", "steps": 2, "iterations": 2}, (2, 2))],
)  # fmt: skip
def test_a_quality_reaches_the_solver_as_a_pair(ask, presets, tmp_path, changes, pair):
    request, progress = ask(noise=20.0, model=presets.models.names[0], **changes), Progress()
    outcome = presets.restore(request, progress, tmp_path)
    assert (outcome.settings["steps"], outcome.settings["iterations"]) == pair
    assert outcome.settings["network calls"] == progress.calls == pair[0] * pair[1]
    assert outcome.notes == []
    states, iterates = presets.trajectory(request, Progress(), tmp_path, 1)
    assert (len(states), len(iterates)) == (pair[0] + 1, 2 * pair[1])
    shown = read_picture(states[-1][0])
    assert torch.equal(shown, read_picture(outcome.files["same"]))


def test_iterations_that_nobody_taught_are_noted(ask, presets, tmp_path):
    outcome = presets.restore(ask(noise=20.0, model=presets.models.names[0], iterations=7), Progress(), tmp_path)
    assert "was trained for 1 or 2 or 3 iterations, not for 7" in outcome.notes[0]


def test_deviations_are_calibrated_where_the_model_can(ask, presets, tmp_path):
    about = {}
    for name, changes in (
        ("carried", {"samples": 2, "noise": 25.5}), ("other noise", {"samples": 2, "noise": 40.0}),
        ("other pair", {"samples": 2, "noise": 25.5, "steps": 3}), ("one", {"noise": 25.5}),
    ):  # fmt: skip
        outcome = presets.restore(ask(model=presets.models.names[0], **changes), Progress(), tmp_path)
        about[name] = outcome.settings, " ".join(outcome.notes)
    settings, notes = about["carried"]
    assert settings["std multiplied by"] == {"measured": 6.0}
    assert notes == ""
    assert about["other noise"][0]["std multiplied by"] == {"measured": 6.0}
    assert "the calibration was made with sigma 0.2, not 0.314: its scale may not fit" in about["other noise"][1]
    assert "std multiplied by" not in about["other pair"][0]
    assert "the standard deviations are not calibrated: there is a scale for" in about["other pair"][1]
    assert "calibrat" not in about["one"][1]
    # the same weights without a calibration: six times less
    plain = ask(model=presets.models.names[0], samples=2, noise=25.5)
    presets.models.get(plain.model).card.pop("calibrations")
    narrow = presets.restore(plain, Progress(), tmp_path).settings["mean uncertainty (gray levels)"]
    assert settings["mean uncertainty (gray levels)"] == pytest.approx(6 * narrow, rel=0.01)


def test_a_gray_picture_stays_gray_and_a_transparent_one_transparent(ask, restorer, tmp_path):
    with Image.open(ask().picture) as picture:
        picture.convert("L").save(tmp_path / "gray.png")
        clear = picture.convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(clear.size))
    clear.save(tmp_path / "clear.png")
    outcome = restorer.restore(ask(picture=tmp_path / "gray.png", clean=True, noise=20.0), Progress(), tmp_path)
    with Image.open(outcome.files["same"]) as picture:
        assert picture.mode == "L"
    assert "psnr" in outcome.settings["scores"]
    outcome = restorer.restore(ask(picture=tmp_path / "clear.png", noise=20.0), Progress(), tmp_path)
    with Image.open(outcome.files["same"]) as picture:
        assert np.array_equal(np.asarray(picture)[..., 3], np.asarray(clear)[..., 3])


@pytest.mark.parametrize("name", ["ü" * 125 + ".jpg", "line\nbreak.png", "", "."])
def test_any_name_of_a_file_makes_names_of_results(ask, restorer, tmp_path, name):
    outcome = restorer.restore(ask(name=name), Progress(), tmp_path)
    assert all(Path(path).is_file() and Path(path).name.isprintable() for path in outcome.files.values())


def test_progress_counts_the_network_calls_of_the_result_and_tells_the_time_left(ask, restorer, tmp_path, monkeypatch):
    reports, clock = [], count()
    monkeypatch.setattr("firm.demo.jobs.time", SimpleNamespace(monotonic=lambda: 10.0 * next(clock)))
    progress = Progress(lambda *report: reports.append(report))
    outcome = restorer.restore(ask(steps=3, samples=2), progress, tmp_path)
    assert [done for done, _, _ in reports] == list(range(0, 13, 2))  # K = 2, and both samples go together
    assert {total for _, total, _ in reports} == {outcome.settings["network calls"]} == {12}
    assert [reports[i][2] for i in (0, 1, 6)] == [f"Restoring: {percent} %" for percent in (0, 16, 100)]
    assert re.fullmatch(r"Restoring: 83 %, about \d+ s left", reports[-2][2])  # the first call tells nothing
    Image.new("RGB", (700, 400), (90, 120, 30)).save(tmp_path / "wide.png")
    reports.clear()
    request = ask(picture=tmp_path / "wide.png", noise=10.0, steps=1, samples=2)  # one sample at a time, in six tiles
    outcome = restorer.restore(request, progress, tmp_path)
    assert [done for done, _, _ in reports] == [tiles // 6 for tiles in range(25)]
    assert outcome.settings["network calls"] == reports[-1][1] == 4


def test_a_large_picture_is_shown_in_its_middle_first(ask, restorer, tmp_path):
    """The middle alone is computed, at the same place and with the noise and the mask of the whole picture."""
    pixels = np.random.default_rng(0).integers(60, 200, (1000, 1300, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "large.png")
    hole = Image.new("L", (1300, 1000))
    hole.paste(255, (30, 700, 50, 720))
    hole.save(tmp_path / "hole.png")
    large, roomy = ask(picture=tmp_path / "large.png", noise=20.0, steps=1), Restorer(restorer.models, Limits(10))
    for request, (left, top) in (
        (large, (458, 308)), (replace(large, trouble="holes", mask=tmp_path / "hole.png"), (0, 518)),
        (replace(large, trouble="blur"), (460, 310)), (replace(large, trouble="small"), (556, 406)),
    ):  # fmt: skip
        reports = []
        parts = roomy.stages(request, Progress(lambda *report, seen=reports: seen.append(report)), tmp_path)
        first = next(parts)
        assert reports[-1][2] == "A first look at the middle: 100 %"
        shown = read_picture(first.before, dtype=torch.uint8).numpy().transpose(1, 2, 0)
        if request.trouble == "small":  # shown as squares
            shown = shown[::2, ::2]
        cut = pixels[top : top + len(shown), left : left + len(shown)]
        if request.trouble == "holes":
            assert (shown[700 - top : 720 - top, 30:50] == 128).all()  # what is missing
            shown = np.where(shown == 128, cut, shown)
        assert shown.shape[0] > 180
        assert np.array_equal(shown, cut)
        assert read_picture(first.after).shape == read_picture(first.before).shape
    *_, whole = roomy.stages(large, Progress(), tmp_path)
    assert whole.settings["pixels"] == [1300, 1000]
    assert len(list(restorer.stages(ask(), Progress(), tmp_path))) == 1  # a small one at once


def test_a_picture_leaves_in_its_own_format(ask, restorer, tmp_path):
    with Image.open(ask().picture) as picture:
        exif = Image.Exif()
        exif[0x010F] = "Maker"
        picture.save(tmp_path / "a.jpg", quality=90, exif=exif)
    files = restorer.restore(ask(picture=tmp_path / "a.jpg", name="a.jpg"), Progress(), tmp_path).files
    with Image.open(files["same"]) as picture:
        assert (Path(files["same"]).name, picture.format) == ("a_restored.jpg", "JPEG")
        assert picture.getexif()[0x010F] == "Maker"


def test_just_fixing_a_picture_does_what_a_look_finds(ask, restorer, tmp_path):
    x = torch.nn.functional.interpolate(portrait(), scale_factor=2, mode="bicubic").clamp(-1, 1)
    save_preview(tmp_path / "clean.png", x)
    save_preview(tmp_path / "noisy.png", x + 0.2 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1)))
    noisy = ask(picture=tmp_path / "noisy.png", name="noisy.png", trouble="fix")
    outcome = restorer.restore(noisy, Progress(), tmp_path)
    assert outcome.settings["task"] == "denoising"
    assert outcome.settings["noise (gray levels)"] == pytest.approx(25.5, rel=0.15)
    assert "its noise is removed" in outcome.notes[0]
    stronger = restorer.restore(replace(noisy, strength=2.0), Progress(), tmp_path).settings
    assert stronger["sigma"] == pytest.approx(2 * outcome.settings["sigma"], rel=1e-3)
    clean = replace(noisy, picture=tmp_path / "clean.png", name="clean.png")
    found = restorer.several([noisy, clean, replace(noisy, name="b/noisy.png")], Progress(), tmp_path)
    assert [name for _, name in found.pictures] == ["noisy.png", "b/noisy.png"]
    with ZipFile(found.archive) as archive:
        assert len(set(archive.namelist())) == 2
        assert len({archive.read(name) for name in archive.namelist()}) == 1
    assert [note for note in found.notes if note.startswith("clean.png: ") and "it needs nothing" in note]


def test_canceling_stops_at_the_next_network_call(ask, restorer, tmp_path):
    calls, stop = [], threading.Event()

    def report(done, total, line):
        calls.append(done)
        if done == 3:
            stop.set()

    with pytest.raises(CanceledError):
        restorer.restore(ask(steps=20), Progress(report, stop.is_set), tmp_path)
    assert calls == [0, 1, 2, 3]
    restorer.restore(ask(), Progress(), tmp_path)  # the next one's turn comes
    with restorer.turn(Progress()), pytest.raises(CanceledError):  # who cancels need not wait for the one before
        restorer.restore(ask(), Progress(stopped=stop.is_set), tmp_path)
    with pytest.raises(CanceledError):  # nor is the picture read when the turn comes, and the client has gone
        restorer.restore(ask(picture=tmp_path / "none.png"), Progress(stopped=stop.is_set), tmp_path)
    with pytest.raises(RequestError, match="there is no model '/etc/passwd' here: tiny"):
        restorer.restore(ask(model="/etc/passwd"), Progress(), tmp_path)


def test_more_steps_trade_distortion_for_perception_on_the_same_picture(ask, restorer, tmp_path):
    rows, plot = restorer.compare_steps(ask(clean=True, noise=20.0), Progress(), tmp_path)
    assert [(row["N"], row["calls"]) for row in rows] == [(N, 2 * N) for N in STEPS_COMPARED]
    assert Path(plot).is_file()
    first, last = (read_picture(rows[i]["picture"][0]) for i in (0, -1))
    assert not torch.equal(first, last)
    rows, plot = restorer.compare_steps(ask(noise=20.0), Progress(), tmp_path)
    assert plot is None
    assert not any("psnr" in row for row in rows)


def test_the_trajectory_ends_where_a_restoration_does(ask, restorer, tmp_path):
    request = ask(clean=True, noise=20.0, steps=3)
    states, iterates = restorer.trajectory(request, Progress(), tmp_path, 2)
    assert [caption for _, caption in states] == [
        "x at t = 0: noise", "x at t = 0.33", "x at t = 0.67", "x at t = 1: the result"
    ]  # fmt: skip
    assert [caption for _, caption in iterates] == ["x, k = 1", "z, k = 1", "x, k = 2", "z, k = 2"]
    outcome = restorer.restore(request, Progress(), tmp_path)
    assert torch.equal(read_picture(states[-1][0]), read_picture(outcome.files["same"]))
    assert not torch.equal(read_picture(iterates[0][0]), read_picture(iterates[1][0]))
    assert len({path for path, _ in states + iterates}) == 8
    with pytest.raises(RequestError, match="at most 10 steps"):
        restorer.trajectory(replace(request, steps=11), Progress(), tmp_path, 1)


def test_large_pictures_are_shown_smaller_and_deviations_in_gray_levels(tmp_path):
    assert save_heat_map(tmp_path / "map.png", torch.full((1, 3, 20, 30), 2 / 255)) == pytest.approx(1.0)
    large = save_preview(tmp_path / "large.png", torch.zeros(1, 3, 4000, 1000))
    assert read_picture(large).shape == (3, 1600, 400)


def test_what_is_painted_is_where_a_layer_is_not_clear(tmp_path):
    layer = np.zeros((6, 8, 4), np.uint8)
    layer[2:4, 5] = (255, 0, 0, 128)
    Image.fromarray(layer).save(tmp_path / "layer.png")
    Image.fromarray(np.zeros((6, 8, 4), np.uint8)).save(tmp_path / "clear.png")
    mask = painted([(tmp_path / "layer.png").read_bytes(), (tmp_path / "clear.png").read_bytes()])
    assert np.argwhere(mask).tolist() == [[2, 5], [3, 5]]
    assert painted([(tmp_path / "clear.png").read_bytes()]) is None
    assert painted([]) is None


def test_temporary_files_go_after_a_request_at_the_end_and_after_a_crash(tmp_path):
    left, mine = tmp_path / f"{PREFIX}999999999-x", tmp_path / f"{PREFIX}{os.getpid()}-y"
    left.mkdir()
    mine.mkdir()
    workspace = Workspace(tmp_path)
    assert (left.exists(), mine.exists()) == (False, True)
    with workspace.results() as folder:
        (folder / "result.png").write_bytes(b"x")
    assert not folder.exists()
    workspace.remove()
    assert not workspace.root.exists()
