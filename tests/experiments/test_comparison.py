"""Tables 1 and 2, the large ones, the efficiency table and the figure of both: the commands, on two small pictures."""

import json
import re
import shutil
from dataclasses import asdict

import pytest
import torch
from helpers import save_celeba, save_pictures, says
from PIL import Image
from typer.testing import CliRunner

import firm
from experiments import published
from experiments.celeba.study import TABLES
from experiments.cost import study as cost
from experiments.shared import AFHQ, CELEBA, Settings, beside, differences
from experiments.tables import markdown, read_table
from firm._model import save_network
from firm._util import locks
from firm.cli import app
from firm.evaluation.methods import NamedMethod
from firm.networks import PriorUNet
from firm.tasks import tables

DENOISING, DEBLURRING, SUPER, RANDOM, BOX = tables()


# Rows


def test_a_comparison_has_ours_beside_the_papers():
    rows = [NamedMethod(label, None) for label in ("degraded", "FIRM N=2", "FIRM N=3")]
    numbers = dict(psnr=1.0, psnr_std=0.1, ssim=2.0, ssim_std=0.2, lpips=3.0, lpips_std=0.3)
    summary = {DENOISING: {"degraded": numbers, "FIRM N=2": numbers, "FIRM N=3": numbers}, BOX: {"FIRM N=2": numbers}}
    table = beside("title", summary, rows, published.CELEBA)
    assert [line.label for line in table.lines] == ["Degraded", "FIRM N=2", "FIRM N=3"]
    assert table.lines[0].ours == {"denoising psnr": 1.0, "denoising ssim": 2.0, "denoising lpips": 3.0}
    assert table.lines[1].ours["box-inpainting psnr"] == 1.0
    assert table.lines[1].paper["box-inpainting psnr"] == 33.25
    assert table.lines[0].paper["denoising lpips"] == 0.371
    assert table.lines[2].paper == {}
    assert [column.group for column in table.columns] == [DENOISING] * 3 + [BOX] * 3
    large = beside("title", summary, rows, published.CELEBA_1000, deviations=True)
    assert large.lines[1].ours["denoising lpips"] == (3.0, 0.3)
    assert large.lines[1].paper["denoising lpips"] == (0.034, 0.013)


def test_the_rows_of_the_efficiency_table():
    rows = [
        {"method": "OT-ODE", "mode": "fast", "forward": 60, "backward": 60, "nfe": 180, "seconds": 0.12345,
         "peak_mb": 700.4, "images/s": 12.34, "batch": 100},
        {"method": "D-Flow", "mode": "plain", "forward": None, "backward": None, "nfe": None, "seconds": 9.0,
         "peak_mb": 1.0},
        {"method": "PnP-HQS", "mode": "plain", "forward": 24, "backward": 0, "nfe": None, "seconds": 1.0,
         "peak_mb": 1.0},
    ]  # fmt: skip
    assert markdown(cost.table(rows, torch.device("cuda"))).splitlines() == [
        "|  |  | how | s/image | peak MB | network calls | NFE | images/s |",
        "|---|---|---|---|---|---|---|---|",
        "| OT-ODE | ours | fast | **0.1235** | *700* | 60 + 60 back | 180 | 12.3 (batch 100) |",
        "|  | paper | - | **6.37** | **743** | - | 180 | - |",
        "| D-Flow, plain | ours | plain | 9.0000 | **1** | - | - | - |",
        "|  | paper | - | *299.25* | *6124* | - | - | - |",
        "| PnP-HQS, plain | ours | plain | *1.0000* | **1** | 24 | - | - |",
    ]


# The commands, on two pictures in CelebA's layout


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Data, weights of a small prior and a small model; what the commands write."""
    root = tmp_path_factory.mktemp("reproduce")
    save_celeba(root / "celeba")
    (root / "weights").mkdir()
    torch.manual_seed(0)
    settings = dict(side=128, ch=4, mult=(1,), blocks=1, groups=2, attention=(), unshuffle=8)
    nets = PriorUNet(3, **settings), firm.UNet(3, **settings)
    for net in nets:
        for p in net.parameters():
            p.data = 0.1 * torch.randn(p.shape)
    for name in ("face-prior", "face-denoiser"):
        save_network(root / "weights" / f"{name}.safetensors", nets[0], "prior", {})
    firm.Firm(nets[1], firm.Solver(K=2)).save(root / "tiny.safetensors")
    return root


QUICK = ("--precision", "float32", "--limit", "1")


def reproduce(root, command, *more, out=None):
    common = ["--data", str(root / "celeba"), "--model", str(root / "tiny.safetensors")]
    common += ["--weights", str(root / "weights"), "--out", str(out or root / "out")]
    return CliRunner().invoke(app, ["reproduce", command, *common, *more])


def results(root, name):
    return json.loads((root / "out" / name / "results.json").read_text())


@pytest.fixture(scope="module")
def table(root):
    result = reproduce(root, "celeba", "--methods", "pnp-hqs,pnp-flow1", "--steps", "1,2", *QUICK)
    assert result.exit_code == 0, result.output
    return results(root, "celeba") | {"printed": result.output}


@pytest.fixture(scope="module")
def times(root):
    more = ("--methods", "pnp-hqs", "--steps", "1,2", "--images", "1", "--batches", "2", "--skip", "flower,pnp-hqs")
    result = reproduce(root, "cost", *more)
    assert result.exit_code == 0, result.output
    return results(root, "cost")


def test_celeba_writes_the_table(root, table):
    labels = ["Degraded", "PnP-HQS", "PnP-Flow1", "FIRM N=1", "FIRM N=2"]
    (written,) = table["tables"]
    lines = {line["label"]: line for line in written["lines"]}
    assert list(lines) == labels
    assert (table["study"], table["images"], table["seed"], table["quick"]) == ("celeba", 1, 42, False)
    assert table["model"] == str(root / "tiny.safetensors")
    done = {label: [task for task in tables() if f"{task} psnr" in line["ours"]] for label, line in lines.items()}
    assert done["PnP-HQS"] == [DENOISING, DEBLURRING, SUPER, RANDOM]
    assert done["PnP-Flow1"] == list(tables())
    summary = table["numbers"]["summary"]
    assert lines["FIRM N=2"]["ours"]["box-inpainting psnr"] == summary[BOX]["FIRM N=2"]["psnr"]
    assert lines["PnP-Flow1"]["paper"]["box-inpainting ssim"] == published.CELEBA["PnP-Flow1"][BOX]["ssim"]
    text = (root / "out" / "celeba" / "table.md").read_text()
    assert text == markdown(read_table(written))
    assert [line.split("|")[1].strip() for line in text.splitlines()[2:] if "| ours |" in line] == labels
    assert text.count("| paper |") == 4  # the paper has no FIRM with one step
    assert r"\begin{tabular}{l *{15}{c}}" in (root / "out" / "celeba" / "table.tex").read_text()
    assert re.search(r"PnP-Flow1\s+-?\d+\.\d\d\s", table["printed"])
    assert "(31.75)" in table["printed"]


def test_the_table_follows_the_images_and_steps_given(root, table):
    """Two images are another mean than one; what is not asked for is not there."""
    other = reproduce(root, "celeba", "--methods", "", "--steps", "2", "--precision", "float32", "--limit", "2",
                      out=root / "two")  # fmt: skip
    assert other.exit_code == 0, other.output
    found = json.loads((root / "two" / "celeba" / "results.json").read_text())
    assert found["images"] == 2
    lines = {line["label"]: line["ours"] for line in found["tables"][0]["lines"]}
    assert list(lines) == ["Degraded", "FIRM N=2"]
    before = {line["label"]: line["ours"] for line in table["tables"][0]["lines"]}
    assert lines["FIRM N=2"]["deblurring psnr"] != before["FIRM N=2"]["deblurring psnr"]


def test_celeba_continues(root, table, monkeypatch):
    monkeypatch.setattr("firm.evaluation.run.restore_chunk", lambda *_: pytest.fail("computed again"))
    again = reproduce(root, "celeba", "--methods", "pnp-hqs", "--steps", "2", *QUICK)
    assert again.exit_code == 0, again.output
    now = {line["label"]: line for line in results(root, "celeba")["tables"][0]["lines"]}
    assert list(now) == ["Degraded", "PnP-HQS", "FIRM N=2"]
    assert now["PnP-HQS"] in table["tables"][0]["lines"]


def test_the_large_table_takes_what_another_study_has_restored(root, table, monkeypatch):
    monkeypatch.setattr("firm.evaluation.run.restore_chunk", lambda *_: pytest.fail("computed again"))
    large = reproduce(root, "celeba-1000", "--methods", "pnp-flow1", "--steps", "2", *QUICK)
    assert large.exit_code == 0, large.output
    found = results(root, "celeba-1000")
    lines = {line["label"]: line for line in found["tables"][0]["lines"]}
    before = {line["label"]: line["ours"] for line in table["tables"][0]["lines"]}
    assert lines["PnP-Flow1"]["ours"]["denoising psnr"] == [before["PnP-Flow1"]["denoising psnr"], 0.0]
    assert lines["PnP-Flow1"]["paper"]["denoising psnr"] == [31.79, 1.21]
    assert found["study"] == "celeba-1000"


def test_cats_are_beside_the_papers_cats(root):
    folder = root / "afhq" / "test" / "cat"
    folder.mkdir(parents=True)
    save_pictures(folder, 2, (300, 300))
    for name, published_row in (("afhq", published.AFHQ), ("afhq-400", published.AFHQ_400)):
        words = ["--afhq", str(root / "afhq"), "--model", str(root / "tiny.safetensors"), "--out", str(root / "cats")]
        done = CliRunner().invoke(app, ["reproduce", name, *words, "--methods", "", "--steps", "2", *QUICK])
        assert done.exit_code == 0, done.output
        found = json.loads((root / "cats" / name / "results.json").read_text())
        degraded, ours = found["tables"][0]["lines"]
        assert (degraded["label"], ours["label"], found["images"]) == ("Degraded", "FIRM N=2", 1)
        theirs = published_row["FIRM N=2"][SUPER]["lpips"]
        assert ours["paper"]["super-resolution lpips"] == (theirs if name == "afhq" else list(theirs))
        assert found["tables"][0]["title"].endswith("of AFHQ-Cat")
    assert [path.name for path in (root / "cats" / "evaluations").iterdir()] == ["afhq-1"]


def test_the_notes_name_the_model_given():
    """The bundled ones' size would say nothing of another."""
    bundled, other = (differences(Settings(model=model), CELEBA)[1] for model in (None, "mine.safetensors"))
    assert "8 M parameters" in bundled
    assert "34.5 M" in bundled
    assert "mine.safetensors" in other
    assert "34.5 M" in other
    assert "8 M" not in other


def test_how_many_images_the_papers_tables_have():
    found = {name: (table.subject.dataset, table.images, table.deviations) for name, table in TABLES.items()}
    assert found == {
        "celeba": ("celeba", 100, False), "celeba-1000": ("celeba", 1000, True),
        "afhq": ("afhq", 100, False), "afhq-400": ("afhq", 400, True),
    }  # fmt: skip
    assert (CELEBA.size, AFHQ.size) == (128, 256)


def test_two_studies_that_share_an_evaluation_do_not_work_in_it_together(root, tmp_path):
    shared = tmp_path / "evaluations" / "celeba-1"
    shared.mkdir(parents=True)
    (shared / locks.NAME).write_text(json.dumps(asdict(locks._myself("firm of somebody else"))))
    told = reproduce(root, "celeba", "--methods", "", "--steps", "1", *QUICK, out=tmp_path)
    assert told.exit_code == 2
    assert says(told.output, "celeba-1 is in use by firm of somebody else")
    assert not (tmp_path / "celeba").exists()
    assert [path.name for path in shared.iterdir()] == [locks.NAME]


def test_cost_measures_every_row(root, times):
    rows = times["numbers"]["rows"]
    assert [(row["method"], row["mode"], row["forward"], row["nfe"]) for row in rows] == [
        ("FIRM N=1", "plain", 2, 2), ("FIRM N=2", "plain", 4, 4), ("FIRM N=1", "fast", 2, 2),
        ("FIRM N=2", "fast", 4, 4), ("PnP-HQS", "fast", 24, None),
    ]  # fmt: skip
    assert all(row["seconds"] > 0 for row in rows)
    assert all(("images/s" in row) == (row["mode"] == "fast") for row in rows)
    assert {row["batch"] for row in rows if row["mode"] == "fast"} == {2}
    assert json.loads((root / "out" / "cost" / "rows.json").read_text()) == rows
    text = (root / "out" / "cost" / "table.md").read_text()
    assert text == markdown(read_table(times["tables"][0])) == markdown(cost.table(rows, torch.device("cpu")))
    assert "| PnP-HQS | ours | fast |" in text
    assert text.count("0.24**") == 2  # the paper's, of FIRM with two steps


def test_cost_may_be_quick(root):
    """Three images one by one, and no batches."""
    more = ("--methods", "none", "--steps", "1", "--images", "1")
    result = reproduce(root, "cost", "--quick", *more, out=root / "quick")
    assert result.exit_code == 0, result.output
    found = json.loads((root / "quick" / "cost" / "results.json").read_text())
    assert found["quick"] is True
    assert [row["mode"] for row in found["numbers"]["rows"]] == ["fast"]
    assert "images/s" not in found["numbers"]["rows"][0]
    assert any("peak MB on a CPU is that of the whole process" in note for note in found["notes"])


def test_pareto_draws_both(root, table, times):
    result = CliRunner().invoke(app, ["reproduce", "pareto", "--out", str(root / "out")])
    assert result.exit_code == 0, result.output
    found = results(root, "pareto")
    assert found["figures"][0]["free"] is True
    assert found["quick"] is False
    assert found["numbers"]["seconds"]["FIRM N=2"] == times["numbers"]["rows"][3]["seconds"]
    assert found["numbers"]["psnr"]["FIRM N=2"][BOX] == table["numbers"]["summary"][BOX]["FIRM N=2"]["psnr"]
    with Image.open(root / "out" / "pareto" / "pareto.png") as picture:
        assert picture.width > 1000
        assert len(set(picture.convert("RGB").get_flattened_data())) > 50


def test_pareto_is_as_quick_as_what_it_is_drawn_from(root, table, times, tmp_path):
    for name, quick in (("celeba", True), ("cost", False)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(json.dumps(results(root, name) | {"quick": quick}))
    result = CliRunner().invoke(app, ["reproduce", "pareto", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "pareto" / "results.json").read_text())["quick"] is True


def test_pareto_refuses_two_models_and_no_times(root, table, times, tmp_path):
    for name in ("celeba", "cost"):
        shutil.copytree(root / "out" / name, tmp_path / name)
    cost = json.loads((tmp_path / "cost" / "results.json").read_text())
    (tmp_path / "cost" / "results.json").write_text(json.dumps(cost | {"model": "another"}))
    told = CliRunner().invoke(app, ["reproduce", "pareto", "--out", str(tmp_path)])
    assert (told.exit_code, says(told.output, "cost with another: run one of them again")) == (2, True)
    plain = [row | {"mode": "plain"} for row in cost["numbers"]["rows"]]
    (tmp_path / "cost" / "results.json").write_text(json.dumps(cost | {"numbers": {"rows": plain}}))
    told = CliRunner().invoke(app, ["reproduce", "pareto", "--out", str(tmp_path)])
    assert (told.exit_code, says(told.output, "has no times of the mode fast")) == (2, True)


def test_cost_times_no_more_images_than_there_are(root, tmp_path):
    """Two test faces, three asked for; nothing is skipped, and the list of batches is named in its message."""
    more = ("--methods", "none", "--steps", "1", "--modes", "fast", "--skip", "none", "--images", "3", "--batches", "2")
    told = reproduce(root, "cost", *more, out=tmp_path)
    assert told.exit_code == 0, told.output
    assert json.loads((tmp_path / "cost" / "results.json").read_text())["images"] == 2
    told = reproduce(root, "cost", "--methods", "none", "--batches", "0", out=tmp_path)
    assert (told.exit_code, says(told.output, "--batches takes different whole numbers")) == (2, True)


def test_what_is_missing_is_said_before_any_work(root, tmp_path):
    arguments = ["--model", str(root / "tiny.safetensors"), "--out", str(tmp_path)]
    for command in ("celeba", "celeba-1000", "cost"):
        there = ["reproduce", command, *arguments, "--data", str(root / "celeba")]
        result = CliRunner().invoke(app, [*there, "--weights", str(tmp_path), "--methods", "pnp-hqs"])
        assert result.exit_code == 2
        assert says(result.output, "face-denoiser.safetensors: no such weights")
        result = CliRunner().invoke(app, [*there, "--methods", "flow"])
        assert says(result.output, "flow: no such file, and no model of this name")
        result = CliRunner().invoke(app, ["reproduce", command, *arguments, "--data", str(tmp_path / "no")])
        assert result.exit_code == 2
        assert says(result.output, "img_align_celeba")
    result = CliRunner().invoke(app, ["reproduce", "pareto", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert says(result.output, "run `firm reproduce celeba` and `firm reproduce cost` first")
    assert not list(tmp_path.iterdir())
