"""Names of pictures that collide, are too long or cannot be printed; and runs that fail or end half way."""

import json
import os
import sys
import time

import numpy as np
import pytest
import torch
from helpers import says
from PIL import Image
from typer.testing import CliRunner

from firm._util.machine import Ranks
from firm.cli import app
from firm.restoration import output as module
from firm.restoration import run
from firm.restoration.output import result_names

ALONE = Ranks(0, 1, torch.device("cpu"))


def call(*arguments):
    return CliRunner().invoke(app, ["restore", *map(str, arguments)])


def names_of(tmp_path, *files):
    return result_names([tmp_path / name for name in files], tmp_path)


def test_names_with_endings_never_meet_names_that_look_like_them(tmp_path):
    found = names_of(tmp_path, "a.jpg", "a.png", "a_png.gif", "b.png")
    assert [found[0], found[2], found[3]] == ["a_jpg", "a_png", "b"]
    assert found[1].startswith("a_png-")
    found = names_of(tmp_path, "a.jpg", "a.png", "a_png.gif", f"{found[1]}.png")  # an adversary knows the rule
    assert len(set(found)) == 4


def test_names_that_some_disks_take_for_the_same(tmp_path):
    found = names_of(tmp_path, "A.png", "a.png", "B/x.png", "b/x.png", "caf\u00e9.png", "cafe\u0301.png")
    assert len({name.casefold() for name in found}) == 6


def test_any_set_of_names_stays_different_and_fits(tmp_path):
    draw = np.random.default_rng(0)
    pieces = ["a", "A", "_", ".", "png", "jpg", "é", "\u2028", "\udcff", "[b]", "x" * 120, "restored", "sample_01", "/"]
    files = set()
    while len(files) < 2000:
        name = "".join(draw.choice(pieces, draw.integers(1, 6))).strip("/.")
        if name and "//" not in name and "/." not in name and "./" not in name:
            files.add(tmp_path / f"{name}.{draw.choice(['png', 'jpg', 'PNG', 'gif'])}")
    found = result_names(sorted(files), tmp_path)
    assert len({module._key(name) for name in found}) == len(found)
    for name in found:
        assert name.isprintable()
        assert len(name.rpartition("/")[2].encode()) <= module.LONGEST
        assert not any(part.lower().endswith(module.ENDINGS) for part in name.split("/")[:-1])


def test_names_take_linear_time(tmp_path):
    files = [tmp_path / f"{i // 2}.{'png' if i % 2 else 'jpg'}" for i in range(6_000)]
    start = time.perf_counter()
    assert len(set(result_names(files, tmp_path))) == 6_000
    assert time.perf_counter() - start < 30  # counting every name in the list of all is quadratic


@pytest.mark.skipif(sys.platform != "linux", reason="names that only Linux allows")
def test_a_folder_of_hostile_names(model_file, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "write_side_by_side", lambda path, rows: path.touch())  # slow
    root, out = tmp_path / "in", tmp_path / "out"
    (root / "a_restored.png").mkdir(parents=True)  # a folder, called like a result
    good = ["a.jpg", "a.png", "a_png.gif", "[bold red]x.png", "line\u2028break\n.png", "n" * 240 + ".png",
            os.fsdecode(b"bytes\xff\xfe.png"), "a_restored.png/b.png"]  # fmt: skip
    for i, name in enumerate(good):
        Image.new("RGB", (8, 8), (9 * i, 0, 0)).save(root / name)
    (root / "broken[").mkdir()
    (root / "broken[" / os.fsdecode(b"x]\xff.png")).write_bytes(b"no picture")  # [/x] would close what is not open
    result = call(root, "--task", "denoising", "--sigma", 0.1, "--steps", 1, "--model", model_file, "--out", out)
    assert result.exit_code == 1, result.output
    assert not result.exception or isinstance(result.exception, SystemExit)
    assert says(result.output, "broken[/x]\\udcff.png: no picture")
    assert says(result.output, "[bold red]x.png")
    rows = json.loads((out / "restore.json").read_text())
    assert {row["picture"] for row in rows if "error" not in row} == {str(root / name) for name in good}
    assert len(list(out.rglob("*_restored.png"))) == len(good)
    for row in rows:
        if "error" not in row:
            assert row["written"][0] == str(out / f"{row['name']}_restored.png")
            assert os.path.exists(row["written"][0])


@pytest.mark.skipif(sys.platform != "linux", reason="names that only Linux allows")
def test_one_picture_whose_name_cannot_be_printed(model_file, tmp_path):
    picture = tmp_path / os.fsdecode(b"\xff[red].png")
    picture.write_bytes(b"no picture")
    result = call(picture, "--task", "denoising", "--model", model_file, "--out", tmp_path / "out")
    assert result.exit_code == 2, repr(result.exception)
    assert says(result.output, "\\udcff[red].png: no picture")


def job(tmp_path):
    return run.Job(None, None, 1, 1, 0, tmp_path)


def test_any_error_is_that_of_one_picture(tmp_path, monkeypatch):
    def restore_file(job, path, name, device):
        if name == "b":
            raise RuntimeError("out of memory")
        return {"nfe": 1}

    monkeypatch.setattr(run, "_restore_file", restore_file)
    rows = run.restore_files(job(tmp_path), [tmp_path / n for n in ("a.png", "b.png", "c.png")], tmp_path, ALONE)
    assert [row.get("error") for row in rows] == [None, f"{tmp_path / 'b.png'}: RuntimeError: out of memory", None]


def test_the_report_is_there_when_the_run_is_stopped(tmp_path, monkeypatch):
    seen = []

    def restore_file(job, path, name, device):
        seen.append((tmp_path / "restore.json").is_file())
        if name == "c":
            raise KeyboardInterrupt
        return {"nfe": 1}

    monkeypatch.setattr(run, "_restore_file", restore_file)
    with pytest.raises(KeyboardInterrupt):
        run.restore_files(job(tmp_path), [tmp_path / n for n in ("a.png", "b.png", "c.png")], tmp_path, ALONE)
    assert seen == [False, True, True]  # after the first picture, had it been killed
    assert [row["name"] for row in json.loads((tmp_path / "restore.json").read_text())] == ["a", "b"]


def test_the_report_of_many_pictures_is_not_written_for_each(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr("firm.restoration.earlier.write_atomically", lambda path, data: written.append(path))
    monkeypatch.setattr(run, "_restore_file", lambda job, path, name, device: {"nfe": 1})
    run.restore_files(job(tmp_path), [tmp_path / f"{i}.png" for i in range(2000)], tmp_path, ALONE, progress=False)
    assert 2 <= len(written) < 20
