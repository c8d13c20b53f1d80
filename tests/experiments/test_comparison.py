"""Tables 1 and 2, the large ones, the efficiency table and the figure of both: the commands, on two small pictures."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from helpers import call, says
from PIL import Image

from experiments import published
from experiments.cost import study as cost
from experiments.tables import markdown, read_table
from firm._util import files
from firm.tasks import tables

DENOISING, DEBLURRING, SUPER, RANDOM, BOX = tables()
ONE = ("--precision", "float32", "--limit", 1)


def reproduce(root, name, *more, out="out"):
    """Run a study on the small data; its record, and what was printed."""
    data = ("--afhq", root / "afhq") if "afhq" in name else ("--data", root / "celeba")
    common = [*data, "--model", root / "tiny.safetensors", "--weights", root / "weights", "--out", root / out]
    result = call("reproduce", name, *common, *more)
    assert result.exit_code == 0, result.output
    return json.loads((root / out / name / "results.json").read_text()) | {"printed": result.output}


def lines_of(found):
    return {line["label"]: line for line in found["tables"][0]["lines"]}


@pytest.fixture(scope="module")
def table(root):
    return reproduce(root, "celeba", "--methods", "pnp-hqs,pnp-flow1", "--steps", "1,2", *ONE)


@pytest.fixture(scope="module")
def times(root):
    more = ("--methods", "pnp-hqs", "--steps", "1,2", "--images", 1, "--batches", "2", "--skip", "flower,pnp-hqs")
    return reproduce(root, "cost", *more)


def test_the_rows_of_the_efficiency_table():
    names = ("method", "mode", "forward", "backward", "nfe", "seconds", "peak_mb", "images/s", "batch")
    rows = [
        dict(zip(names, ("OT-ODE", "fast", 60, 60, 180, 0.12345, 700.4, 12.34, 100), strict=True)),
        dict(zip(names, ("D-Flow", "plain", None, None, None, 9.0, 1.0), strict=False)),
        dict(zip(names, ("PnP-HQS", "plain", 24, 0, None, 1.0, 1.0), strict=False)),
    ]
    assert markdown(cost.table(rows, torch.device("cuda"))).splitlines()[2:] == [
        "| OT-ODE | ours | fast | **0.1235** | *700* | 60 + 60 back | 180 | 12.3 (batch 100) |",
        "|  | paper | - | **6.37** | **743** | - | 180 | - |",
        "| D-Flow, plain | ours | plain | 9.0000 | **1** | - | - | - |",
        "|  | paper | - | *299.25* | *6124* | - | - | - |",
        "| PnP-HQS, plain | ours | plain | *1.0000* | **1** | 24 | - | - |",
    ]


def test_celeba_writes_the_table(root, table):
    labels = ["Degraded", "PnP-HQS", "PnP-Flow1", "FIRM N=1", "FIRM N=2"]
    lines = lines_of(table)
    assert list(lines) == labels
    assert (table["study"], table["images"], table["seed"], table["quick"]) == ("celeba", 1, 42, False)
    assert table["model"] == str(root / "tiny.safetensors")
    done = {label: [task for task in tables() if f"{task} psnr" in line["ours"]] for label, line in lines.items()}
    assert done["PnP-HQS"] == [DENOISING, DEBLURRING, SUPER, RANDOM]
    assert done["PnP-Flow1"] == list(tables())
    assert lines["FIRM N=2"]["ours"]["box-inpainting psnr"] == table["numbers"]["summary"][BOX]["FIRM N=2"]["psnr"]
    assert lines["PnP-Flow1"]["paper"]["box-inpainting ssim"] == published.CELEBA["PnP-Flow1"][BOX]["ssim"]
    text = (root / "out" / "celeba" / "table.md").read_text()
    assert text == markdown(read_table(table["tables"][0]))
    assert text.count("| paper |") == 4  # the paper has no FIRM with one step
    assert "(31.75)" in table["printed"]


def test_studies_continue_and_share_what_was_restored(root, table, monkeypatch):
    monkeypatch.setattr("firm.evaluation.run.restore_chunk", lambda *_: pytest.fail("computed again"))
    before, out = lines_of(table), root / "out" / "celeba" / "results.json"
    written = out.read_text()
    now = lines_of(reproduce(root, "celeba", "--methods", "pnp-hqs", "--steps", 2, *ONE))
    out.write_text(written)
    assert list(now) == ["Degraded", "PnP-HQS", "FIRM N=2"]
    assert now["PnP-HQS"] == before["PnP-HQS"]
    large = lines_of(reproduce(root, "celeba-1000", "--methods", "pnp-flow1", "--steps", 2, *ONE))
    assert large["PnP-Flow1"]["ours"]["denoising psnr"] == [before["PnP-Flow1"]["ours"]["denoising psnr"], 0.0]
    assert large["PnP-Flow1"]["paper"]["denoising psnr"] == [31.79, 1.21]


def test_cats_are_beside_the_papers_cats(root):
    for name, paper in (("afhq", published.AFHQ), ("afhq-400", published.AFHQ_400)):
        found = reproduce(root, name, "--methods", "", "--steps", 2, *ONE, out="cats")
        degraded, ours = found["tables"][0]["lines"]
        assert (degraded["label"], ours["label"], found["images"]) == ("Degraded", "FIRM N=2", 1)
        theirs = paper["FIRM N=2"][SUPER]["lpips"]
        assert ours["paper"]["super-resolution lpips"] == (theirs if name == "afhq" else list(theirs))
        assert found["tables"][0]["title"].endswith("of AFHQ-Cat")
    assert [path.name for path in (root / "cats" / "evaluations").iterdir()] == ["afhq-1"]


@pytest.mark.parametrize("used", ["evaluations/celeba-1", "celeba"])
def test_two_studies_do_not_work_in_one_folder(root, tmp_path, used):
    """Neither in that of an evaluation which both need, nor in their own."""
    (tmp_path / used).mkdir(parents=True)
    words = ["--data", root / "celeba", "--model", root / "tiny.safetensors", "--methods", "", "--steps", 1, *ONE]
    with FileLock(tmp_path / used / files.NAME):
        told = call("reproduce", "celeba", *words, "--out", tmp_path)
    assert (told.exit_code, says(told.output, f"{Path(used).name} is in use by")) == (2, True)
    assert not (tmp_path / "celeba" / "results.json").exists()


def test_cost_measures_every_row(root, times):
    rows = times["numbers"]["rows"]
    assert [(row["method"], row["mode"], row["forward"], row["nfe"]) for row in rows] == [
        ("FIRM N=1", "plain", 2, 2), ("FIRM N=2", "plain", 4, 4), ("FIRM N=1", "fast", 2, 2),
        ("FIRM N=2", "fast", 4, 4), ("PnP-HQS", "fast", 24, None),
    ]  # fmt: skip
    assert all(row["seconds"] > 0 for row in rows)
    assert all(row.get("batch") == (2 if row["mode"] == "fast" else None) for row in rows)
    assert json.loads((root / "out" / "cost" / "rows.json").read_text()) == rows
    text = (root / "out" / "cost" / "table.md").read_text()
    assert text == markdown(read_table(times["tables"][0])) == markdown(cost.table(rows, torch.device("cpu")))
    assert "| PnP-HQS | ours | fast |" in text
    assert text.count("0.24**") == 2  # the paper's, of FIRM with two steps


def test_cost_may_be_quick_and_times_no_more_images_than_there_are(root):
    """No batches; two test faces, three asked for; and the list of batches is named in its message."""
    more = ("--methods", "none", "--steps", 1, "--images", 3, "--skip", "none")
    found = reproduce(root, "cost", "--quick", *more, out="quick")
    assert (found["images"], found["quick"], [row["mode"] for row in found["numbers"]["rows"]]) == (2, True, ["fast"])
    assert "images/s" not in found["numbers"]["rows"][0]
    assert any("peak MB on a CPU is that of the whole process" in note for note in found["notes"])
    told = call("reproduce", "cost", "--data", root / "celeba", "--methods", "none", "--batches", "0")
    assert (told.exit_code, says(told.output, "--batches takes different whole numbers")) == (2, True)
    told = call("reproduce", "cost", "--data", root / "celeba", "--modes", "slow", "--out", root / "no")
    assert says(told.output, "no mode slow; there are plain, fast")


def test_pareto_draws_both(root, table, times, tmp_path):
    for name, found in (("celeba", table | {"quick": True}), ("cost", times)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(json.dumps(found))
    for out, quick in ((root / "out", False), (tmp_path, True)):  # as quick as what it is drawn from
        result = call("reproduce", "pareto", "--out", out)
        assert result.exit_code == 0, result.output
        found = json.loads((out / "pareto" / "results.json").read_text())
        assert (found["quick"], found["figures"][0]["free"]) == (quick, True)
    assert found["numbers"]["seconds"]["FIRM N=2"] == times["numbers"]["rows"][3]["seconds"]
    assert found["numbers"]["psnr"]["FIRM N=2"][BOX] == table["numbers"]["summary"][BOX]["FIRM N=2"]["psnr"]
    with Image.open(root / "out" / "pareto" / "pareto.png") as picture:
        assert len(set(picture.convert("RGB").get_flattened_data())) > 50


def test_pareto_refuses_two_models_and_no_times(root, table, times, tmp_path):
    plain = [row | {"mode": "plain"} for row in times["numbers"]["rows"]]
    shutil.copytree(root / "out" / "celeba", tmp_path / "celeba")
    (tmp_path / "cost").mkdir()
    for change, said in (
        ({"model": "another"}, "cost with another: run one of them again"),
        ({"numbers": {"rows": plain}}, "has no times of the mode fast"),
    ):
        (tmp_path / "cost" / "results.json").write_text(json.dumps(times | change))
        told = call("reproduce", "pareto", "--out", tmp_path)
        assert (told.exit_code, says(told.output, said)) == (2, True)


def test_what_is_missing_is_said_before_any_work(root, tmp_path):
    common = ["--model", root / "tiny.safetensors", "--out", tmp_path]
    for command in ("celeba", "celeba-1000", "cost"):
        there = ["reproduce", command, *common, "--data", root / "celeba"]
        for words, said in (
            ([*there, "--weights", tmp_path, "--methods", "pnp-hqs"], "face-denoiser.safetensors: no such weights"),
            ([*there, "--methods", "flow"], "pnp-flow, flower, pnp-gs"),
            (["reproduce", command, *common, "--data", tmp_path / "no"], "img_align_celeba"),
        ):
            result = call(*words)
            assert (result.exit_code, says(result.output, said)) == (2, True)
    result = call("reproduce", "pareto", "--out", tmp_path)
    assert result.exit_code == 2
    assert says(result.output, "run `firm reproduce celeba` and `firm reproduce cost` first")
    assert not list(tmp_path.iterdir())
