"""Results of an earlier run: continued where it stopped, never replaced unasked."""

import json
import os

import pytest
from helpers import save_pictures, says
from PIL import Image

from firm.restoration import run
from firm.restoration.earlier import BEGUN
from restoration_helpers import rows


@pytest.fixture
def denoised(restore):
    """Restore pictures into tmp_path/out."""
    return lambda *words, **how: restore("--task", "denoising", "--sigma", 0.1, *words, **how)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(out):
    return [row["name"] for row in rows(out)]


@pytest.fixture
def counted(monkeypatch):
    """The pictures that are really restored."""
    seen, real = [], run._restore_file

    def restore_file(job, path, name, device):
        seen.append(name)
        return real(job, path, name, device)

    monkeypatch.setattr(run, "_restore_file", restore_file)
    return seen


def test_other_settings_are_refused_before_any_work(folder, denoised, tmp_path, counted):
    denoised(folder / "001.png")
    before = contents(tmp_path / "out")
    counted.clear()
    for change in (["--sigma", 0.2], ["--seed", 1], ["--format", "npy"], ["--samples", 2], ["--no-compare"],
                   ["--integrator", "heun"], ["--overlap", 24], ["--model", "face-128"]):  # fmt: skip
        output = denoised(folder, *change, code=2)
        assert says(output, "001_restored.png is a result of a run with other settings: nothing was done")
        assert says(output, "--force")
    assert counted == []
    assert contents(tmp_path / "out") == before


def test_another_picture_of_the_same_name_and_one_that_has_changed(folder, denoised, tmp_path):
    denoised(folder / "000.png")
    before = contents(tmp_path / "out")
    for other, told in ((tmp_path / "000.jpg", f"made from {folder / '000.png'}"), (folder / "000.png", "of a run")):
        Image.new("RGB", (40, 40), "red").save(other)
        assert says(denoised(other, code=2), f"is a result {told}")
    assert contents(tmp_path / "out") == before


def test_a_result_that_was_changed_is_not_done(folder, denoised, tmp_path):
    denoised(folder)
    result, other = (tmp_path / "out" / f"{name}_restored.png" for name in ("000", "001"))
    whole = result.read_bytes()
    for changed in (whole[:-9], whole + b"x", other.read_bytes()):
        result.write_bytes(changed)
        assert says(denoised(folder, code=2), "000_restored.png is a result that was changed after it was written")
        assert result.read_bytes() == changed
    for lost in (lambda: result.write_bytes(b""), result.unlink):  # what a crash leaves is done again
        lost()
        denoised(folder)
        assert result.read_bytes() == whole


def test_a_picture_that_changes_while_it_is_restored_is_not_done(folder, denoised, monkeypatch):
    """The result is that of what was read, and the next run must not take it for that of what is there now."""
    real = run.restore

    def saved_again(*given, **how):
        Image.new("RGB", (40, 40), "red").save(folder / "000.png")
        return real(*given, **how)

    monkeypatch.setattr(run, "restore", saved_again)
    denoised(folder / "000.png")
    monkeypatch.setattr(run, "restore", real)
    assert says(denoised(folder / "000.png", code=2), "nothing was done")
    denoised(folder / "000.png", "--force")
    assert says(denoised(folder / "000.png"), "nothing to do")


def test_a_mask_that_has_changed_is_another(folder, restore, tmp_path):
    for size, code in ((5, 0), (5, 0), (6, 2)):
        holes = Image.new("L", (44, 36))
        holes.paste(255, (0, 0, size, size))
        holes.save(tmp_path / "mask.png")
        words = ["--task", "inpainting", "--mask", tmp_path / "mask.png", "--sigma", 0.1]
        restore(folder / "000.png", *words, code=code)


def test_the_same_run_again_does_what_is_left(folder, denoised, tmp_path, counted):
    denoised(folder / "000.png", folder / "001.png")
    assert counted == ["000", "001"]
    counted.clear()
    (tmp_path / "out" / "001_compare.png").write_bytes(b"")  # as a crash of the machine may leave it
    output = denoised(folder)
    assert counted == ["001", "002"]
    assert says(output, "2 pictures restored by denoising")
    assert says(output, "1 by an earlier run (--force does them again)")
    assert names(tmp_path / "out") == ["000", "001", "002"]
    assert says(denoised(folder), "nothing to do: 3 pictures")


def test_a_run_that_was_stopped_goes_on(folder, denoised, tmp_path, monkeypatch):
    real, out = run._restore_file, tmp_path / "out"

    def stopped(job, path, name, device):
        row = real(job, path, name, device)  # has written its files
        if name == "001":
            os.utime(out / "000_restored.png", (1, 1))
            raise KeyboardInterrupt  # and never gets into the report
        return row

    monkeypatch.setattr(run, "_restore_file", stopped)
    denoised(folder, code=130)
    assert names(out) == ["000"]
    assert (out / BEGUN).is_file()
    monkeypatch.setattr(run, "_restore_file", real)
    other = denoised(folder, "--sigma", 0.2, code=2)  # no license to replace what the stopped one left
    assert says(other, "and those of 1 more pictures")
    denoised(folder)
    assert names(out) == ["000", "001", "002"]
    assert (out / "000_restored.png").stat().st_mtime == 1  # was not done again
    assert not (out / BEGUN).exists()


def test_force_replaces_all_that_was_there(folder, denoised, tmp_path):
    denoised(folder / "000.png", "--samples", 3, "--format", "npy")
    denoised(folder / "001.png")
    denoised(folder / "000.png", "--sigma", 0.2, "--force")
    found = {path.name for path in (tmp_path / "out").iterdir()}
    assert found == {f"{n}_{what}.png" for n in ("000", "001") for what in ("restored", "compare")} | {"restore.json"}
    levels = {row["name"]: row["sigma"] for row in rows(tmp_path / "out")}
    assert levels == {"000": 0.2, "001": 0.1}  # the other picture's row is kept


def test_a_report_cannot_have_other_files_deleted(folder, denoised, tmp_path):
    denoised(folder / "000.png")
    found, out = rows(tmp_path / "out"), tmp_path / "out"
    mine = [tmp_path / "mine.png", out / "mine.png", tmp_path / "000_x.png", out / "000_x.py"]
    for path in mine:
        path.touch()
    found[0]["written"] += [*map(str, mine), str(out / ".." / "000_x.png"), 7]
    (out / "restore.json").write_text(json.dumps(found))
    denoised(folder / "000.png", "--sigma", 0.2, "--force")
    assert all(path.exists() for path in mine)


@pytest.mark.parametrize(
    "content", ["", "[1, null, {}]", '{"a": 1}', '[{"name": "000", "written": 3}]', "\0", "[" * 10**5]
)
def test_damaged_reports(folder, denoised, tmp_path, content):
    """Without a report, files that are in the way are still not replaced."""
    (tmp_path / "out").mkdir()
    for name in ("restore.json", BEGUN):
        (tmp_path / "out" / name).write_text(content)
    denoised(folder / "001.png")
    (tmp_path / "out" / "000_restored.png").write_text("mine")
    assert says(denoised(folder / "000.png", code=2), "nothing was done")
    assert (tmp_path / "out" / "000_restored.png").read_text() == "mine"


def test_several_pictures_and_folders(denoised, tmp_path, counted):
    """Results lie below --out as the pictures lie below the folder that they have in common; each is done once."""
    root = tmp_path / "in"
    for place in ("one", "two/deep", "three"):
        (root / place).mkdir(parents=True)
        save_pictures(root / place, 1, (20, 20))
    odd = root / "two" / ".." / "one" / "000.png"  # the same picture, spelled otherwise
    denoised(root / "one" / "000.png", root / "two", odd, root / "one")
    assert counted == ["one/000", "two/deep/000"]
    assert (tmp_path / "out" / "two" / "deep" / "000_restored.png").is_file()
    assert says(denoised(root / "three" / "000.png", root / "none.png", code=1), "none.png: no such file")
    assert (tmp_path / "out" / "three" / "000_restored.png").is_file()


def test_results_are_found_from_wherever_the_command_is_given(folder, denoised, tmp_path, monkeypatch):
    """Another folder to work in, another place of the results: they are still another run's."""
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    one = folder / "001.png"
    denoised(one, "--out", "out")
    before = contents(tmp_path / "out")
    monkeypatch.chdir(tmp_path / "below")
    assert says(denoised(one, "--out", "../out", "--sigma", 0.4, code=2), "of a run with other settings")
    assert contents(tmp_path / "out") == before
    (tmp_path / "out").rename(tmp_path / "moved")
    denoised(one, "--out", "../moved", "--sigma", 0.4, code=2)
    denoised(one, "--out", "../moved")  # the same settings: done already
    assert contents(tmp_path / "moved")["001_restored.png"] == before["001_restored.png"]
    denoised(one, "--out", "../moved", "--format", "npy", "--force")
    assert not (tmp_path / "moved" / "001_restored.png").exists()  # what it replaces is gone


def test_what_other_processes_had_done_is_not_done_again(folder, denoised, tmp_path, counted):
    """A run of several processes that was killed leaves a report of each."""
    denoised(folder)
    out, first = tmp_path / "out", list(counted)
    found = rows(out)
    (out / "restore.json").write_text(json.dumps(found[:1]))
    (out / "restore.1.json").write_text(json.dumps(found[1:-1]))
    for file in found[-1]["written"]:
        os.remove(file)
    counted.clear()
    denoised(folder)
    assert counted == first[-1:]
    assert names(out) == [row["name"] for row in found]
    assert not (out / "restore.1.json").exists()


@pytest.mark.parametrize("option", ["--simulate", "--task"])
def test_results_of_a_custom_task_before_an_edit_are_of_another_run(folder, restore, tmp_path, counted, option):
    file, out = tmp_path / "mine.py", tmp_path / "out"
    file.write_text("from firm.tasks.denoising import Denoising\n\n\nclass Mine(Denoising):\n    pass\n")
    words = [folder / "000.png", option, f"{file}:Mine"]
    for _ in range(2):  # the second time there is nothing to do
        restore(*words)
        assert counted == ["000"]
    before = contents(out)
    file.write_text(file.read_text() + "\n# edited\n")
    told = restore(*words, code=2)
    assert says(told, f"other settings, or with {file}:Mine as it was before an edit: nothing was done")
    assert contents(out) == before
