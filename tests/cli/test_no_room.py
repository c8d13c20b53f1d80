"""Full disks and killed processes, for the commands that write many files: a sentence, nothing half, and it goes on."""

import csv
import errno
import json
import os

import pytest
from helpers import call, save_pictures, says, tiny_model

from firm.restoration import run as restoration

SIZE = 16


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    return save_pictures(tmp_path / "in", 3, (SIZE, SIZE))


@pytest.fixture
def model(tmp_path):
    return tiny_model(tmp_path / "m.safetensors", [{"name": "denoising"}])


@pytest.fixture
def room(monkeypatch):
    """Call it with the number of writes that still find room."""
    fsync = os.fsync

    def limit(writes):
        left = [writes]

        def full(file):
            if left[0] == 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            left[0] -= 1
            fsync(file)

        monkeypatch.setattr(os, "fsync", full if writes is not None else fsync)

    return limit


def refused(result):
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert says(result.output, "there is no room left on the disk for the results")
    assert says(result.output, "make room, then give the same command again")


def test_restoring_ends_at_the_first_picture_that_finds_no_room(folder, model, tmp_path, room, monkeypatch):
    tried, restore_file = [], restoration._restore_file
    monkeypatch.setattr(restoration, "_restore_file", lambda job, path, *a: tried.append(path) or restore_file(
        job, path, *a))  # fmt: skip
    out = tmp_path / "out"
    command = ["restore", folder, "--task", "denoising", "--sigma", 0.1, "--model", model, "--out", out]
    room(4)  # two files of the first picture, the report, and one file of the second
    refused(call(*command))
    assert [path.name for path in tried] == ["000.png", "001.png"]  # the third would be computed for nothing
    assert [row["name"] for row in json.loads((out / "restore.json").read_text())] == ["000"]
    assert [path.name for path in out.glob(".*")] == [".firm-restore.json"]  # what the run had begun
    room(None)
    assert call(*command).exit_code == 0
    assert not list(out.glob(".*"))
    assert [row["name"] for row in json.loads((out / "restore.json").read_text())] == ["000", "001", "002"]


def test_an_evaluation_keeps_its_rows_and_goes_on(folder, model, tmp_path, room):
    out = tmp_path / "out"
    command = ["evaluate", "degraded", "--data", folder, "--size", SIZE, "--tasks", "denoising", "--out", out]
    room(3)  # config.json and two rows
    refused(call(*command))
    assert not (out / "results.json").exists()
    room(None)
    kept = (out / "images.csv").read_text().splitlines()[:3]
    assert call(*command).exit_code == 0
    lines = (out / "images.csv").read_text().splitlines()
    assert lines[:3] == kept  # not computed again
    assert len({(row["method"], row["index"]) for row in csv.DictReader(lines)}) == len(lines) - 1 == 6


def test_comparison_pictures_are_whole_or_not_there(folder, tmp_path, room):
    out = tmp_path / "out"
    command = ["evaluate", "degraded", "--data", folder, "--size", SIZE, "--tasks", "denoising", "--out", out]
    assert call(*command).exit_code == 0
    room(2)  # config.json and results.json
    refused(call(*command, "--images", 1))
    assert not [path.name for path in out.iterdir() if "png" in path.name]


def test_no_room_for_the_lock_of_any_command(folder, model, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    settings = tmp_path / "c.yaml"
    settings.write_text(f"dataset: folder\ndata: {folder}\nsize: 16\nout: {tmp_path / 'out'}\n")
    monkeypatch.setattr("filelock.FileLock.acquire", full)
    refused(call("train", settings))
    refused(call("evaluate", "degraded", "--data", folder, "--size", SIZE, "--out", tmp_path / "out"))
    refused(call("restore", folder, "--simulate", "denoising", "--model", model, "--out", tmp_path / "out"))
    refused(call("reproduce", "portrait", "--out", tmp_path / "out"))


def test_leftovers_of_killed_processes_are_removed_and_nothing_else(folder, model, tmp_path):
    (folder / "sub").mkdir()
    (folder / "000.png").rename(folder / "sub" / "000.png")
    out = tmp_path / "out"
    leftovers = [".firm-0123456789abcdef.tmp", "sub/.firm-fedcba9876543210.tmp"]
    others = [".report.2024.tmp", ".firm-notes.tmp", "else/.firm-0123456789abcdef.tmp"]
    commands = [
        ["restore", folder, "--simulate", "denoising", "--model", model, "--out", out],
        ["evaluate", "degraded", "--data", folder, "--size", SIZE, "--tasks", "denoising", "--out", out],
    ]
    for command, gone in zip(commands, (leftovers, leftovers[:1]), strict=True):
        for name in (*leftovers, *others):
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(b"half")
        assert call(*command).exit_code == 0
        assert [name for name in leftovers if not (out / name).exists()] == gone
        assert all((out / name).exists() for name in others)
