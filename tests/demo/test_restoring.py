"""What stands behind the page: results, progress, canceling, files."""

import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from firm.data.picture import read_picture
from firm.demo.folder import PREFIX, Workspace
from firm.demo.pictures import enlarged, painted, save_heat_map, shown
from firm.demo.request import RequestError
from firm.demo.results import score_table, steps_table, summary
from firm.demo.studies import COUNTS, follow, study_steps
from firm.demo.watch import StoppedError, Stops, Watch, Work


def test_a_restoration_has_all_that_the_page_shows(ask, restorer, tmp_path):
    outcome = restorer.restore(ask(clean=True, noise=20.0, samples=3), Watch(), tmp_path)
    for path in (outcome.before, outcome.after, outcome.mean, outcome.heat_map, outcome.truth, *outcome.samples):
        with Image.open(path) as picture:
            assert min(picture.size) >= 40
    assert len(outcome.samples) == 3
    eight, sixteen = read_picture(outcome.png8), Path(outcome.png16).read_bytes()
    assert eight.shape == (3, 40, 48)
    assert sixteen[24] == 16  # bits, in the header of a PNG
    about = json.loads(Path(outcome.settings_file).read_text())
    assert about["network calls"] == 3 * 2 * 2
    assert about["noise (gray levels)"] == pytest.approx(20, abs=0.01)
    assert about["command"] == outcome.command
    assert set(about["scores"]) == {"psnr", "ssim", "lpips"}
    assert f"{about['scores']['psnr']:.2f}" in score_table(outcome)
    assert "12 network calls" in summary(outcome)


def test_a_damaged_picture_has_no_scores_and_one_sample_no_uncertainty(ask, restorer, tmp_path):
    outcome = restorer.restore(ask(trouble="blur"), Watch(), tmp_path)
    assert outcome.settings["scores"] == {}
    assert score_table(outcome) == ""
    assert (outcome.mean, outcome.heat_map, outcome.samples, outcome.truth) == (None, None, [], None)
    assert outcome.notes == ["the model was not trained for deblurring"]
    assert "Note: the model was not trained for deblurring." in summary(outcome)


def test_a_gray_picture_stays_gray(ask, restorer, tmp_path):
    with Image.open(ask().picture) as picture:
        picture.convert("L").save(tmp_path / "gray.png")
    outcome = restorer.restore(ask(picture=tmp_path / "gray.png", clean=True, noise=20.0), Watch(), tmp_path)
    with Image.open(outcome.png8) as picture:
        assert picture.mode == "L"
    assert "psnr" in outcome.settings["scores"]


@pytest.mark.parametrize("name", ["n" * 250 + ".png", "ü" * 125 + ".jpg", "line\nbreak.png", "", "."])
def test_any_name_of_a_file_makes_names_of_results(ask, restorer, tmp_path, name):
    outcome = restorer.restore(ask(name=name), Watch(), tmp_path)
    for path in (outcome.png8, outcome.png16, outcome.settings_file):
        assert Path(path).is_file()
        assert Path(path).name.isprintable()
    assert Path(restorer.restore(ask(), Watch(), tmp_path).png16).name == "photo_restored_16bit.png"


def test_progress_counts_every_network_call_and_tells_the_time_left(ask, restorer, tmp_path):
    told = []
    watch = Watch(tell=lambda done, total, text: told.append((done, total, text)))
    restorer.restore(ask(steps=3, samples=2), watch, tmp_path)
    assert [done for done, _, _ in told] == list(range(6))  # K = 2, and both samples go together
    assert {total for _, total, _ in told} == {6}
    assert told[0][2] == "step 1 of 3"
    assert told[-1][2].startswith("step 3 of 3, about ")
    assert told[-1][2].endswith(" s left")


def test_progress_counts_the_tiles_of_a_large_picture(ask, restorer, tmp_path):
    Image.new("RGB", (700, 300), (90, 120, 30)).save(tmp_path / "wide.png")
    told = []
    watch = Watch(tell=lambda done, total, text: told.append((done, total)))
    restorer.restore(ask(picture=tmp_path / "wide.png", noise=10.0, steps=1), watch, tmp_path)
    assert told[-1] == (3, 4)  # two tiles, K = 2
    assert watch.done == watch.work.total


def test_canceling_stops_at_the_next_network_call(ask, restorer, tmp_path):
    stops = Stops()
    stop = stops.start("visitor")
    other = stops.start("somebody else")
    calls = []

    def tell(done, total, text):
        calls.append(done)
        if done == 3:
            assert stops.stop("visitor") == 1

    with pytest.raises(StoppedError):
        restorer.restore(ask(steps=20), Watch(stop, tell), tmp_path)
    assert calls == [0, 1, 2, 3]
    assert not other.is_set()
    stops.end("visitor", stop)
    assert stops.stop("visitor") == 0
    restorer.restore(ask(), Watch(), tmp_path)  # the next one's turn comes


def test_a_visitor_who_cancels_need_not_wait_for_the_one_before(ask, restorer, tmp_path):
    stop = threading.Event()
    with restorer.turn(Watch()):
        threading.Timer(0.2, stop.set).start()
        start = time.monotonic()
        with pytest.raises(StoppedError):
            restorer.restore(ask(), Watch(stop), tmp_path)
    assert time.monotonic() - start < 1.5


def test_only_offered_models_are_loaded(ask, restorer, tmp_path):
    with pytest.raises(RequestError, match="there is no model '/etc/passwd' here: tiny"):
        restorer.restore(ask(model="/etc/passwd"), Watch(), tmp_path)


def test_more_steps_trade_distortion_for_perception_on_the_same_picture(ask, restorer, tmp_path):
    study = study_steps(restorer, ask(clean=True, noise=20.0), Watch(), tmp_path)
    assert [row["N"] for row in study.rows] == list(COUNTS)
    assert [row["calls"] for row in study.rows] == [2 * N for N in COUNTS]
    assert Path(study.plot).is_file()
    assert steps_table(study.rows).count("\n") == 1 + len(COUNTS)
    pixels = [read_picture(path) for path, _ in study.pictures]
    assert not torch.equal(pixels[0], pixels[-1])
    unknown = study_steps(restorer, ask(noise=20.0), Watch(), tmp_path)
    assert unknown.plot is None
    assert "PSNR" not in steps_table(unknown.rows)


def test_the_trajectory_ends_where_a_restoration_does(ask, restorer, tmp_path):
    request = ask(clean=True, noise=20.0, steps=3)
    found = follow(restorer, request, 2, Watch(), tmp_path)
    assert [caption for _, caption in found.states] == [
        "x at t = 0: noise", "x at t = 0.33", "x at t = 0.67", "x at t = 1: the result"
    ]  # fmt: skip
    assert [caption for _, caption in found.iterates] == ["x, k = 1", "z, k = 1", "x, k = 2", "z, k = 2"]
    outcome = restorer.restore(request, Watch(), tmp_path)
    assert torch.equal(read_picture(found.states[-1][0]), read_picture(outcome.png8))
    assert not torch.equal(read_picture(found.iterates[0][0]), read_picture(found.iterates[1][0]))
    assert len({path for path, _ in found.states + found.iterates}) == 8
    with pytest.raises(RequestError, match="at most 10 steps"):
        follow(restorer, replace(request, steps=11), 1, Watch(), tmp_path)


def test_the_heat_maps_scale_is_in_gray_levels(tmp_path):
    std = torch.full((1, 3, 20, 30), 2 / 255)
    assert save_heat_map(tmp_path / "map.png", std) == pytest.approx(1.0)
    with Image.open(tmp_path / "map.png") as drawn:
        assert drawn.width > 500


def test_large_pictures_are_shown_smaller_and_small_measurements_as_squares():
    assert shown(torch.zeros(1, 3, 4000, 1000)).shape == (1, 3, 1600, 400)
    small = torch.tensor([[[[0.0, 1.0]]]])
    assert enlarged(small, (2, 4)).tolist() == [[[[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0]]]]


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
    left = tmp_path / f"{PREFIX}999999999-x"
    left.mkdir()
    mine = tmp_path / f"{PREFIX}{os.getpid()}-y"
    mine.mkdir()
    workspace = Workspace(tmp_path)
    assert not left.exists()
    assert mine.exists()
    with workspace.results() as folder:
        (folder / "result.png").write_bytes(b"x")
    assert not folder.exists()
    workspace.remove()
    assert not workspace.root.exists()


def test_the_words_of_the_progress():
    watch = Watch()
    watch.begin(Work(steps=2, batches=3, calls=4), "N = 2")
    watch.done = 13
    assert watch.text().startswith("N = 2, samples, part 2 of 3, step 2 of 2, about ")


def test_a_transparent_picture_stays_transparent(ask, restorer, tmp_path):
    """As on the command line."""
    with Image.open(ask().picture) as picture:
        clear = picture.convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(clear.size))
    clear.save(tmp_path / "clear.png")
    outcome = restorer.restore(ask(picture=tmp_path / "clear.png", noise=20.0), Watch(), tmp_path)
    with Image.open(outcome.png8) as picture:
        assert picture.mode == "RGBA"
        assert np.array_equal(np.asarray(picture)[..., 3], np.asarray(clear)[..., 3])
    assert Path(outcome.png16).read_bytes()[25] == 6  # the kind of PNG: color with transparency
