"""Which pictures a folder stands for: results of earlier runs are not among them."""

import json

import numpy as np
import pytest
from helpers import call, save_pictures, says

from firm.cli.picture_files import find_pictures


def results(folder):
    """A folder as `firm restore` leaves it, with a picture in a folder of its own."""
    (folder / "sub").mkdir(parents=True)
    (folder / "restore.json").write_text("[]")
    save_pictures(folder, 1, (20, 20))
    save_pictures(folder / "sub", 1, (20, 20))
    return folder


def test_earlier_results_are_skipped(folder, tmp_path):
    inner = results(folder / "outputs" / "restore")
    results(folder / "old")
    results(inner / "again")  # within another: counts once
    (folder / "more").mkdir()
    save_pictures(folder / "more", 1, (20, 20))
    found = find_pictures([folder], tmp_path / "out")
    names = [path.relative_to(folder).as_posix() for path in found.files]
    assert names == ["000.png", "001.png", "002.png", "more/000.png"]
    assert found.skipped == 2


def test_a_folder_that_is_named_is_taken(folder, tmp_path):
    old = results(folder / "old")
    found = find_pictures([old], tmp_path / "out")
    assert [path.name for path in found.files] == ["000.png", "000.png"]
    assert found.notes() == []
    both = find_pictures([folder, old], tmp_path / "out")
    assert (len(both.files), both.skipped) == (5, 0)


def test_the_output_folder_is_not_mentioned(folder):
    found = find_pictures([folder], results(folder / "old"))
    assert (len(found.files), found.skipped) == (3, 0)


def test_nothing_but_results(tmp_path):
    results(tmp_path / "in" / "old")
    with pytest.raises(FileNotFoundError, match="no pictures in it but results of earlier runs"):
        find_pictures([tmp_path / "in"], tmp_path / "out")
    one = save_pictures(tmp_path, 1, (20, 20)) / "000.png"
    assert find_pictures([one, tmp_path / "in"], tmp_path / "out").files == [one]
    np.save(tmp_path / "in" / "a.npy", np.zeros((3, 8, 8), np.float32))
    found = find_pictures([tmp_path / "in"], tmp_path / "out")  # results are pictures, what was restored is not
    assert [path.name for path in found.files] == ["a.npy"]


def test_the_command_says_what_it_skipped(folder, model_file, tmp_path):
    results(folder / "outputs" / "restore")
    words = ["--task", "denoising", "--sigma", 0.1, "--steps", 1, "--model", model_file, "--out", tmp_path / "out"]
    result = call("restore", folder, *words)
    assert result.exit_code == 0, result.output
    assert says(result.output, "note: skipped 1 sub-folder with earlier results")
    assert len(json.loads((tmp_path / "out" / "restore.json").read_text())) == 3
