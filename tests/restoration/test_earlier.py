"""Results of an earlier run: continued where it stopped, never replaced unasked."""

import json
import os

import pytest
from helpers import call, save_pictures, says
from PIL import Image
from typer.testing import CliRunner

from firm.cli import app
from firm.restoration import run
from firm.restoration.earlier import BEGUN


@pytest.fixture
def restored(model_file, tmp_path):
    """Restore pictures into tmp_path/out."""
    words = ["--task", "denoising", "--steps", 1, "--model", model_file, "--out", tmp_path / "out"]
    return lambda *arguments: call("restore", *arguments, *words)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(out):
    return [row["name"] for row in json.loads((out / "restore.json").read_text())]


@pytest.fixture
def counted(monkeypatch):
    """The pictures that are really restored."""
    seen, real = [], run._restore_file

    def restore_file(job, path, name, device):
        seen.append(name)
        return real(job, path, name, device)

    monkeypatch.setattr(run, "_restore_file", restore_file)
    return seen


def test_other_settings_are_refused_before_any_work(folder, restored, tmp_path, counted):
    assert restored(folder / "001.png", "--sigma", 0.1).exit_code == 0
    before = contents(tmp_path / "out")
    counted.clear()
    for change in (["--sigma", 0.2], ["--sigma", 0.1, "--seed", 1], ["--sigma", 0.1, "--format", "npy"],
                   ["--sigma", 0.1, "--samples", 2], ["--sigma", 0.1, "--no-compare"]):  # fmt: skip
        result = restored(folder, *change)
        assert result.exit_code == 2
        assert says(result.output, "001_restored.png is a result of a run with other settings: nothing was done")
        assert says(result.output, "--force")
    assert counted == []
    assert contents(tmp_path / "out") == before


def test_another_picture_of_the_same_name(folder, restored, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    Image.new("RGB", (40, 40), "red").save(other / "000.jpg")
    assert restored(folder / "000.png", "--sigma", 0.1).exit_code == 0
    before = contents(tmp_path / "out")
    result = restored(other / "000.jpg", "--sigma", 0.1)
    assert result.exit_code == 2
    assert says(result.output, f"is a result made from {folder / '000.png'}: nothing was done")
    assert contents(tmp_path / "out") == before


def test_a_picture_that_has_changed_is_another(folder, restored):
    assert restored(folder / "000.png", "--sigma", 0.1).exit_code == 0
    Image.new("RGB", (40, 40), "red").save(folder / "000.png")
    assert says(restored(folder / "000.png", "--sigma", 0.1).output, "nothing was done")


def test_a_mask_that_has_changed_is_another(folder, model_file, tmp_path):
    mask = tmp_path / "mask.png"
    words = ["restore", folder / "000.png", "--task", "inpainting", "--mask", mask, "--sigma", 0.1, "--steps", 1,
             "--model", model_file, "--out", tmp_path / "out"]  # fmt: skip
    for size, code in ((5, 0), (5, 0), (6, 2)):
        holes = Image.new("L", (44, 36))
        holes.paste(255, (0, 0, size, size))
        holes.save(mask)
        assert CliRunner().invoke(app, [str(w) for w in words]).exit_code == code


def test_the_same_run_again_does_what_is_left(folder, restored, tmp_path, counted):
    assert restored(folder / "000.png", folder / "001.png", "--sigma", 0.1).exit_code == 0
    assert counted == ["000", "001"]
    counted.clear()
    (tmp_path / "out" / "001_compare.png").write_bytes(b"")  # as a crash of the machine may leave it
    result = restored(folder, "--sigma", 0.1)
    assert result.exit_code == 0, result.output
    assert counted == ["001", "002"]
    assert says(result.output, "2 pictures restored by denoising")
    assert says(result.output, "1 by an earlier run (--force does them again)")
    assert names(tmp_path / "out") == ["000", "001", "002"]
    assert says(restored(folder, "--sigma", 0.1).output, "nothing to do: 3 pictures")


def test_a_run_that_was_stopped_goes_on(folder, restored, tmp_path, monkeypatch):
    real = run._restore_file

    def stopped(job, path, name, device):
        row = real(job, path, name, device)  # has written its files
        if name == "001":
            os.utime(tmp_path / "out" / "000_restored.png", (1, 1))
            raise KeyboardInterrupt  # and never gets into the report
        return row

    monkeypatch.setattr(run, "_restore_file", stopped)
    assert restored(folder, "--sigma", 0.1).exit_code == 130
    assert names(tmp_path / "out") == ["000"]
    assert (tmp_path / "out" / BEGUN).is_file()
    monkeypatch.setattr(run, "_restore_file", real)
    other = restored(folder, "--sigma", 0.2)  # no license to replace what the stopped one left
    assert other.exit_code == 2
    assert says(other.output, "and those of 1 more pictures")
    assert restored(folder, "--sigma", 0.1).exit_code == 0
    assert names(tmp_path / "out") == ["000", "001", "002"]
    assert (tmp_path / "out" / "000_restored.png").stat().st_mtime == 1  # was not done again
    assert not (tmp_path / "out" / BEGUN).exists()


def test_force_replaces_all_that_was_there(folder, restored, tmp_path):
    assert restored(folder / "000.png", "--sigma", 0.1, "--samples", 3, "--format", "npy").exit_code == 0
    assert restored(folder / "001.png", "--sigma", 0.1).exit_code == 0
    assert restored(folder / "000.png", "--sigma", 0.2, "--force").exit_code == 0
    found = {path.name for path in (tmp_path / "out").iterdir()}
    assert found == {f"{n}_{what}.png" for n in ("000", "001") for what in ("restored", "compare")} | {"restore.json"}
    rows = {row["name"]: row for row in json.loads((tmp_path / "out" / "restore.json").read_text())}
    assert (rows["000"]["sigma"], rows["001"]["sigma"]) == (0.2, 0.1)  # the other picture's row is kept


def test_a_report_cannot_have_other_files_deleted(folder, restored, tmp_path):
    assert restored(folder / "000.png", "--sigma", 0.1).exit_code == 0
    report = tmp_path / "out" / "restore.json"
    rows = json.loads(report.read_text())
    mine = [tmp_path / "mine.png", tmp_path / "out" / "mine.png", tmp_path / "000_x.png", tmp_path / "out" / "000_x.py"]
    for path in mine:
        path.touch()
    odd = tmp_path / "out" / ".." / "000_x.png"
    rows[0]["written"] += [*map(str, mine), str(odd), 7]
    report.write_text(json.dumps(rows))
    assert restored(folder / "000.png", "--sigma", 0.2, "--force").exit_code == 0
    assert all(path.exists() for path in mine)


@pytest.mark.parametrize("content", ["", "[1, null, {}]", '{"a": 1}', '[{"name": "000", "written": 3}]', "\0"])
def test_damaged_reports(folder, restored, tmp_path, content):
    """Without a report, files that are in the way are still not replaced."""
    (tmp_path / "out").mkdir()
    for name in ("restore.json", BEGUN):
        (tmp_path / "out" / name).write_text(content)
    assert restored(folder / "001.png", "--sigma", 0.1).exit_code == 0
    (tmp_path / "out" / "000_restored.png").write_text("mine")
    result = restored(folder / "000.png", "--sigma", 0.1)
    assert result.exit_code == 2
    assert says(result.output, "nothing was done")
    assert (tmp_path / "out" / "000_restored.png").read_text() == "mine"


def test_several_pictures_and_folders(restored, tmp_path, counted):
    """Results lie below --out as the pictures lie below the folder that they have in common; each is done once."""
    for place in ("one", "two/deep", "three"):
        (tmp_path / "in" / place).mkdir(parents=True)
        save_pictures(tmp_path / "in" / place, 1, (20, 20))
    root = tmp_path / "in"
    odd = root / "two" / ".." / "one" / "000.png"  # the same picture, spelled otherwise
    result = restored(root / "one" / "000.png", root / "two", odd, root / "one", "--sigma", 0.1)
    assert result.exit_code == 0, result.output
    assert counted == ["one/000", "two/deep/000"]
    assert (tmp_path / "out" / "two" / "deep" / "000_restored.png").is_file()
    missing = restored(root / "three" / "000.png", root / "none.png", "--sigma", 0.1)
    assert missing.exit_code == 1
    assert says(missing.output, "none.png: no such file")
    assert (tmp_path / "out" / "three" / "000_restored.png").is_file()


def test_results_are_found_from_wherever_the_command_is_given(folder, model_file, tmp_path, monkeypatch):
    """Another folder to work in, another place of the results: they are still another run's."""

    def call(out, *words):
        usual = ["--task", "denoising", "--steps", 1, "--model", model_file, "--out", out]
        return CliRunner().invoke(app, ["restore", *map(str, [folder / "001.png", *usual, *words])])

    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    assert call("out", "--sigma", 0.1).exit_code == 0
    before = contents(tmp_path / "out")
    monkeypatch.chdir(tmp_path / "below")
    told = call("../out", "--sigma", 0.4)
    assert (told.exit_code, says(told.output, "of a run with other settings")) == (2, True)
    assert contents(tmp_path / "out") == before
    (tmp_path / "out").rename(tmp_path / "moved")
    assert call("../moved", "--sigma", 0.4).exit_code == 2
    assert call("../moved", "--sigma", 0.1).exit_code == 0  # the same settings: done already
    assert contents(tmp_path / "moved")["001_restored.png"] == before["001_restored.png"]
    assert call("../moved", "--sigma", 0.1, "--format", "npy", "--force").exit_code == 0
    assert not (tmp_path / "moved" / "001_restored.png").exists()  # what it replaces is gone


def test_what_other_processes_had_done_is_not_done_again(folder, restored, tmp_path, counted):
    """A run of several processes that was killed leaves a report of each."""
    assert restored(folder, "--sigma", 0.1).exit_code == 0
    out, first = tmp_path / "out", list(counted)
    rows = json.loads((out / "restore.json").read_text())
    (out / "restore.json").write_text(json.dumps(rows[:1]))
    (out / "restore.1.json").write_text(json.dumps(rows[1:-1]))
    for file in rows[-1]["written"]:
        os.remove(file)
    counted.clear()
    assert restored(folder, "--sigma", 0.1).exit_code == 0
    assert counted == first[-1:]
    assert names(out) == [row["name"] for row in rows]
    assert not (out / "restore.1.json").exists()


OWN_TASK = """
from firm.operators import Identity
from firm.tasks import BaseTask


class Mine(BaseTask):
    def build(self, values):
        return Identity()
"""


def simulated(folder, model_file, out, task):
    words = [folder / "000.png", "--simulate", task, "--steps", 1, "--model", model_file, "--out", out]
    return CliRunner().invoke(app, ["restore", *map(str, words)])


def test_results_of_an_own_task_before_an_edit_are_of_another_run(folder, model_file, tmp_path, counted):
    file, out = tmp_path / "mine.py", tmp_path / "out"
    file.write_text(OWN_TASK)
    for done in (["000"], ["000"]):  # the second time there is nothing to do
        assert simulated(folder, model_file, out, f"{file}:Mine").exit_code == 0
        assert counted == done
    before = contents(out)
    file.write_text(OWN_TASK + "\n# edited\n")
    refused = simulated(folder, model_file, out, f"{file}:Mine")
    assert refused.exit_code == 2
    assert says(refused.output, f"other settings, or with {file}:Mine as it was before an edit: nothing was done")
    assert contents(out) == before


WRONG = [
    (["--task", "inpainting", "--mask", "no.png"], "--mask no.png: no such file or folder"),
    (["--task", "deblurring", "--blur", -1], "must be above 0 and at most 10"),
    (["--task", "denoising", "--sigma", "nan"], "such as 25/255"),
    (["--task", "fourier"], "no task 'fourier' for pictures"),
    (["--task", "denosing"], "did you mean 'denoising'?"),
    (["--simulate", "denosing"], "did you mean 'denoising'?"),
    (["--simulate", "denoising", "--blur", 1], "the task denoising has no setting 'blur'"),
    (["--simulate", "denoising", "--sigma", 7], "sigma must be from 0 to 2"),
]


@pytest.mark.parametrize(("words", "message"), WRONG)
def test_wrong_arguments_are_told_before_earlier_results(folder, model_file, tmp_path, words, message):
    """They are wrong whatever lies in the output folder, and however many pictures there are: one error."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "000_restored.png").write_bytes(b"")
    result = call("restore", folder, *words, "--model", model_file, "--out", out)
    assert result.exit_code == 2
    assert says(result.output, message)
    assert not says(result.output, "a result of a run")
