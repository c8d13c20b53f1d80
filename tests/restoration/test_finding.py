"""Which pictures a folder stands for: results of earlier runs are not among them, nor is what is no file."""

import os
import socket

import numpy as np
import pytest
from helpers import save_pictures, says

from firm.restoration.earlier import find_pictures
from restoration_helpers import rows


def results(folder):
    """A folder as `firm restore` leaves it, with a picture in a folder of its own."""
    (folder / "sub").mkdir(parents=True)
    (folder / "restore.json").write_text("[]")
    save_pictures(folder, 1, (20, 20))
    save_pictures(folder / "sub", 1, (20, 20))
    return folder


def test_earlier_results_are_skipped(folder, restore, tmp_path):
    inner = results(folder / "outputs" / "restore")
    results(folder / "old")
    results(inner / "again")  # within another: counts once
    save_pictures(folder / "more", 1, (20, 20))
    files, root, notes = find_pictures([folder], tmp_path / "out")
    assert [path.relative_to(root).as_posix() for path in files] == ["000.png", "001.png", "002.png", "more/000.png"]
    assert notes[0].startswith("skipped 2 sub-folders with earlier results")
    assert says(restore(folder, "--task", "denoising", "--sigma", 0.1), f"note: {notes[0]}")
    assert len(rows(tmp_path / "out")) == 4


def test_a_folder_that_is_named_is_taken_and_the_output_folder_is_not_mentioned(folder, tmp_path):
    old = results(folder / "old")
    for named, out, count in (([old], "out", 2), ([folder, old], "out", 5), ([folder], "in/old", 3)):
        files, _, notes = find_pictures(named, tmp_path / out)
        assert (len(files), notes) == (count, [])


def test_nothing_but_results(tmp_path):
    results(tmp_path / "in" / "old")
    with pytest.raises(FileNotFoundError, match="no pictures in it but results of earlier runs"):
        find_pictures([tmp_path / "in"], tmp_path / "out")
    one = save_pictures(tmp_path, 1, (20, 20)) / "000.png"
    assert find_pictures([one, tmp_path / "in"], tmp_path / "out")[0] == [one]
    np.save(tmp_path / "in" / "a.npy", np.zeros((3, 8, 8), np.float32))
    files, _, _ = find_pictures([tmp_path / "in"], tmp_path / "out")  # results are pictures, what was restored is not
    assert [path.name for path in files] == ["a.npy"]


@pytest.mark.skipif(os.name == "nt", reason="pipes and sockets have no names there")
def test_what_is_no_file_is_named_and_not_waited_for(folder, restore, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # names of sockets must be short
    os.mkfifo("pipe.png")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.png")
        kinds = {"pipe.png": "a pipe", "socket.png": "a socket", "/dev/zero": "a device"}
        for place, kind in kinds.items():
            for words in (["denoising", place], ["inpainting", folder, "--mask", place],
                          ["deblurring", folder, "--kernel", place]):  # fmt: skip
                assert says(restore("--task", *words, code=2), f"{place} is {kind}, not a file: save what comes out")
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / "restore.json")  # nor is what lies in the place of a report
    restore(folder / "000.png", "--task", "denoising", "--sigma", 0.1)
    assert rows(tmp_path / "out")[0]["name"] == "000"
