"""Names of pictures that collide, are too long or cannot be printed; and runs that fail or end half way."""

import errno
import os
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import says
from PIL import Image

from firm._util.machine import Ranks
from firm.restoration import output as module
from firm.restoration import run
from firm.restoration.output import result_names
from restoration_helpers import rows

ALONE = Ranks(0, 1, torch.device("cpu"))


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
def test_a_folder_of_hostile_names(restore, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "write_side_by_side", lambda path, rows, origin: path.touch())  # slow
    root, out = tmp_path / "in", tmp_path / "out"
    (root / "a_restored.png").mkdir(parents=True)  # a folder, called like a result
    good = ["a.jpg", "a.png", "a_png.gif", "[bold red]x.png", "line\u2028break\n.png", "n" * 240 + ".png",
            os.fsdecode(b"bytes\xff\xfe.png"), "a_restored.png/b.png"]  # fmt: skip
    for i, name in enumerate(good):
        Image.new("RGB", (8, 8), (9 * i, 0, 0)).save(root / name)
    (root / "broken[").mkdir()
    bad = root / "broken[" / os.fsdecode(b"x]\xff.png")  # [/x] would close what is not open
    bad.write_bytes(b"no picture")
    output = restore(root, "--task", "denoising", "--sigma", 0.1, "--format", "png", code=1)
    assert says(output, "broken[/x]\\udcff.png: no picture")
    assert says(output, "[bold red]x.png")
    done = [row for row in rows(out) if "error" not in row]
    assert {row["picture"] for row in done} == {str(root / name) for name in good}
    assert len(list(out.rglob("*_restored.png"))) == len(good)
    for row in done:
        assert row["written"][0] == str(out / f"{row['name']}_restored.png")
        assert os.path.exists(row["written"][0])
    assert says(restore(bad, "--task", "denoising", "--out", tmp_path / "one", code=2), "\\udcff.png: no picture")


@pytest.fixture
def restored(tmp_path, monkeypatch):
    """Restore pictures of these names without a model, but with a function in its place: name -> row."""

    def start(names, one):
        monkeypatch.setattr(run, "_restore_file", lambda job, path, name, device: one(name))
        job = run.Job(SimpleNamespace(estimator=torch.nn.Identity()), None, 1, 1, 0, tmp_path)
        return run.restore_files(job, [tmp_path / f"{name}.png" for name in names], tmp_path, ALONE, progress=False)

    return start


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), OSError(errno.EFBIG, "File too large")])
def test_any_error_is_that_of_one_picture(tmp_path, restored, error):
    def one(name):
        if name == "b":
            raise error
        return {"nfe": 1}

    errors = [row.get("error") for row in restored("abc", one)]
    assert errors == [None, f"{tmp_path / 'b.png'}: {type(error).__name__}: {error}", None]


def test_the_report_is_there_when_the_run_is_stopped(tmp_path, restored):
    seen = []

    def one(name):
        seen.append((tmp_path / "restore.json").is_file())
        if name == "c":
            raise KeyboardInterrupt
        return {"nfe": 1}

    with pytest.raises(KeyboardInterrupt):
        restored("abc", one)
    assert seen == [False, True, True]  # after the first picture, had it been killed
    assert [row["name"] for row in rows(tmp_path)] == ["a", "b"]


def test_the_report_of_many_pictures_is_not_written_for_each(restored, monkeypatch):
    written = []
    monkeypatch.setattr("firm.restoration.earlier.write_atomically", lambda path, data: written.append(path))
    restored(range(2000), lambda name: {"nfe": 1})
    assert 2 <= len(written) < 20
