"""Table 1, the efficiency table and the figure of both: marks and numbers by hand, then the commands themselves."""

import json
import re
from io import StringIO

import numpy as np
import pytest
import torch
from helpers import says
from PIL import Image
from typer.testing import CliRunner

import firm
from firm._model import save_network
from firm.cli import app
from firm.networks import PriorUNet
from firm.reproduce import comparison, cost
from firm.reproduce.published import COST, celeba
from firm.tasks import tables

DENOISING, DEBLURRING, SUPER, RANDOM, BOX = tables()


def scored(psnr, ssim, lpips):
    return {"psnr": psnr, "ssim": ssim, "lpips": lpips}


# Published numbers


def test_published_numbers():
    """Some entries, and sums over the paper's source, which notice a slip in any other."""
    paper = celeba()
    assert paper["Flower5-OT"][DEBLURRING] == scored(35.65, 0.954, 0.031)
    assert paper["FIRM N=2"][BOX] == scored(33.25, 0.960, 0.022)
    assert paper["Degraded"][RANDOM] == scored(11.95, 0.196, 1.041)
    assert paper["D-Flow"][DENOISING] == scored(26.01, 0.606, 0.092)
    assert paper["PnP-HQS"][SUPER] == scored(32.33, 0.911, 0.075)
    assert list(paper["ISTA-Net"]) == [DEBLURRING, SUPER, RANDOM]
    assert list(paper["I2SB"]) == [DEBLURRING, SUPER, RANDOM, BOX]
    for method in ("PnP-GS", "PnP-HQS", "DiffPIR"):
        assert list(paper[method]) == [DENOISING, DEBLURRING, SUPER, RANDOM]
    assert sum(len(row) for row in paper.values()) == 17 * 5 - 3 - 2 - 1
    assert len(paper) == 17
    for metric, total in (("psnr", 2487.88), ("ssim", 69.622), ("lpips", 5.218)):
        assert sum(row[task][metric] for row in paper.values() for task in row) == pytest.approx(total, abs=1e-6)
    totals = [sum(value or 0 for value in column) for column in zip(*COST.values(), strict=True)]
    assert totals == pytest.approx([381.46, 11689, 1685])


def test_published_orders():
    """What the paper says of its table: FIRM with two steps is first in PSNR and SSIM everywhere."""
    paper = celeba()
    for task in tables():
        for metric in ("psnr", "ssim"):
            assert comparison.ranks(paper, task, metric)["FIRM N=2"] == 0
    assert COST["Flower1-OT"] == (2.67, 193, 100)
    assert COST["D-Flow"][2] is None
    assert set(COST) < set(paper)


# Marks


OURS = {
    "Degraded": {DENOISING: scored(20.0, 0.3, 0.5), DEBLURRING: scored(27.0, 0.7, 0.1)},
    "PnP-HQS": {DENOISING: scored(32.004, 0.9001, 0.0304)},  # the same as Flower1-OT, as printed
    "Flower1-OT": {DENOISING: scored(31.996, 0.9004, 0.0299), DEBLURRING: scored(35.0, 0.94, 0.02)},
    "FIRM N=2": {DENOISING: scored(31.5, 0.95, 0.04), DEBLURRING: scored(36.0, 0.95, 0.03)},
}
PAPER = {"Flower1-OT": {DEBLURRING: scored(34.95, 0.947, 0.025)}}


def test_places_are_those_of_the_printed_numbers():
    assert comparison.ranks(OURS, DENOISING, "psnr") == {"Degraded": 2, "PnP-HQS": 0, "Flower1-OT": 0, "FIRM N=2": 1}
    assert comparison.ranks(OURS, DENOISING, "ssim") == {"Degraded": 2, "PnP-HQS": 1, "Flower1-OT": 1, "FIRM N=2": 0}
    assert comparison.ranks(OURS, DENOISING, "lpips") == {"Degraded": 2, "PnP-HQS": 0, "Flower1-OT": 0, "FIRM N=2": 1}
    assert comparison.ranks(OURS, DEBLURRING, "lpips") == {"Degraded": 2, "Flower1-OT": 0, "FIRM N=2": 1}
    assert comparison.ranks(OURS, BOX, "psnr") == {}


def test_markdown():
    lines = comparison.markdown(OURS, PAPER).splitlines()
    assert lines[0] == f"| | | {DENOISING} | {DEBLURRING} | {SUPER} | {RANDOM} | {BOX} |"
    assert lines[1] == "|---|---|---|---|---|---|---|"
    assert lines[2:] == [
        "| Degraded | ours | 20.00 / 0.300 / 0.500 | 27.00 / 0.700 / 0.100 | - | - | - |",
        "| PnP-HQS | ours | **32.00** / *0.900* / **0.030** | - | - | - | - |",
        "| Flower1-OT | ours | **32.00** / *0.900* / **0.030** | *35.00* / *0.940* / **0.020** | - | - | - |",
        "|  | paper | - | **34.95** / **0.947** / **0.025** | - | - | - |",
        "| FIRM N=2 | ours | *31.50* / **0.950** / *0.040* | **36.00** / **0.950** / *0.030* | - | - | - |",
    ]


def test_latex():
    text = comparison.latex(OURS, PAPER)
    assert text.count(r"\begin{tabular}{l *{15}{c}}") == text.count(r"\end{tabular}") == 1
    rows = [line.removesuffix(r" \\").split(" & ") for line in text.splitlines() if line.endswith(r"\\")]
    assert all(len(row) == 16 for row in rows[2:])
    dashes = ["-"] * 9
    by_name = {row[0]: row[1:] for row in rows[2:]}
    flower = [r"\textbf{32.00}", r"\underline{0.900}", r"\textbf{0.030}"]
    flower += [r"\underline{35.00}", r"\underline{0.940}", r"\textbf{0.020}"]
    assert by_name["Flower1-OT"] == [*flower, *dashes]
    assert by_name["PnP-HQS"] == [*flower[:3], *["-"] * 12]
    assert by_name["Degraded"][:3] == ["20.00", "0.300", "0.500"]
    published = [
        r"\color{gray}" + cell for cell in ["-"] * 3 + [rf"\textbf{{{v}}}" for v in ("34.95", "0.947", "0.025")]
    ]
    assert by_name[r"\color{gray}\quad published"][:6] == published
    assert text.count("{") == text.count("}")


def test_the_terminals_table_has_the_papers_numbers_in_brackets():
    from rich.console import Console

    console = Console(width=140, file=StringIO())
    console.print(comparison.terminal(OURS, PAPER))
    (line,) = [line for line in console.file.getvalue().splitlines() if "Flower1-OT" in line]
    assert line.split() == ["Flower1-OT", "32.00", "35.00", "(34.95)", "-", "-", "-"]


def test_the_rows_of_the_efficiency_table():
    rows = [
        {"method": "OT-ODE", "mode": "fast", "forward": 60, "backward": 60, "nfe": 180, "seconds": 0.12345,
         "peak_mb": 700.4, "images/s": 12.34, "batch": 100},
        {"method": "D-Flow", "mode": "plain", "forward": None, "backward": None, "nfe": None, "seconds": 9.0,
         "peak_mb": 1.0},
        {"method": "PnP-HQS", "mode": "plain", "forward": 24, "backward": 0, "nfe": None, "seconds": 1.0,
         "peak_mb": 1.0},
    ]  # fmt: skip
    assert cost.markdown({"rows": rows}).splitlines()[2:] == [
        "| OT-ODE | fast | 0.1235 | 6.37 | 700 | 743 | 60 + 60 back | 180 | 180 | 12.3 (batch 100) |",
        "| D-Flow | plain | 9.0000 | 299.25 | 1 | 6124 | - | - | - | - |",
        "| PnP-HQS | plain | 1.0000 | - | 1 | - | 24 | - | - | - |",
    ]


# The commands, on two pictures in CelebA's layout


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Data, weights of a small prior and a small model; what the commands write."""
    root = tmp_path_factory.mktemp("reproduce")
    faces = root / "celeba" / "img_align_celeba"
    faces.mkdir(parents=True)
    (root / "weights").mkdir()
    generator = np.random.default_rng(0)
    for i in range(4):
        coarse = Image.fromarray(generator.integers(0, 256, (5, 4, 3), dtype=np.uint8))
        coarse.resize((178, 218), Image.Resampling.BICUBIC).save(faces / f"{i:06d}.jpg")
    split = [f"{i:06d}.jpg {2 if i > 1 else 0}" for i in range(4)]  # the last two are for testing
    (root / "celeba" / "list_eval_partition.txt").write_text("\n".join(split) + "\n")
    torch.manual_seed(0)
    settings = dict(side=128, ch=4, mult=(1,), blocks=1, groups=2, attention=(), unshuffle=8)
    nets = PriorUNet(3, **settings), firm.UNet(3, **settings)
    for net in nets:
        for p in net.parameters():
            p.data = 0.1 * torch.randn(p.shape)
    save_network(root / "weights" / "face-prior.safetensors", nets[0], "prior", {})
    firm.Firm(nets[1], firm.Solver(K=2)).save(root / "tiny.safetensors")
    return root


QUICK = ("--precision", "float32", "--limit", "1")


def reproduce(root, command, *more):
    common = ["--data", str(root / "celeba"), "--model", str(root / "tiny.safetensors")]
    common += ["--weights", str(root / "weights"), "--out", str(root / command)]
    return CliRunner().invoke(app, ["reproduce", command, *common, *more])


@pytest.fixture(scope="module")
def table(root):
    result = reproduce(root, "celeba", "--methods", "pnp-hqs,pnp-flow1", "--steps", "1,2", *QUICK)
    assert result.exit_code == 0, result.output
    return json.loads((root / "celeba" / "results.json").read_text()) | {"printed": result.output}


@pytest.fixture(scope="module")
def times(root):
    more = ("--methods", "pnp-hqs", "--steps", "1,2", "--images", "1", "--batches", "2", "--skip", "pnp-hqs")
    result = reproduce(root, "cost", *more)
    assert result.exit_code == 0, result.output
    return json.loads((root / "cost" / "cost.json").read_text())


def test_celeba_writes_the_table(root, table):
    labels = ["Degraded", "PnP-HQS", "PnP-Flow1", "FIRM N=1", "FIRM N=2"]
    assert list(table["ours"]) == labels
    assert table["images"] == 1
    assert list(table["ours"]["PnP-HQS"]) == [DENOISING, DEBLURRING, SUPER, RANDOM]
    assert list(table["ours"]["PnP-Flow1"]) == list(tables())
    assert table["ours"]["FIRM N=2"][BOX]["psnr"] == table["summary"][BOX]["FIRM N=2"]["psnr"]
    assert table["paper"] == celeba()
    text = (root / "celeba" / "table.md").read_text()
    assert text == comparison.markdown(table["ours"], celeba())
    assert [line.split("|")[1].strip() for line in text.splitlines()[2:] if "| ours |" in line] == labels
    assert text.count("| paper |") == 4  # the paper has no FIRM with one step
    assert (root / "celeba" / "table.tex").read_text() == comparison.latex(table["ours"], celeba())
    assert re.search(r"PnP-Flow1\s+-?\d+\.\d\d \(31\.75\)", table["printed"])


def test_celeba_continues(root, table, monkeypatch):
    monkeypatch.setattr("firm.evaluation.run.restore_chunk", lambda *_: pytest.fail("computed again"))
    again = reproduce(root, "celeba", "--methods", "pnp-hqs", "--steps", "2", *QUICK)
    assert again.exit_code == 0, again.output
    now = json.loads((root / "celeba" / "results.json").read_text())["ours"]
    assert list(now) == ["Degraded", "PnP-HQS", "FIRM N=2"]
    assert now["PnP-HQS"] == table["ours"]["PnP-HQS"]


def test_cost_measures_every_row(root, times):
    found = [(row["method"], row["mode"], row["forward"], row["nfe"]) for row in times["rows"]]
    assert found == [
        ("FIRM N=1", "plain", 2, 2), ("FIRM N=2", "plain", 4, 4), ("FIRM N=1", "fast", 2, 2),
        ("FIRM N=2", "fast", 4, 4), ("PnP-HQS", "fast", 24, None),
    ]  # fmt: skip
    assert all(row["seconds"] > 0 for row in times["rows"])
    assert all(("images/s" in row) == (row["mode"] == "fast") for row in times["rows"])
    assert {row["batch"] for row in times["rows"] if row["mode"] == "fast"} == {2}
    text = (root / "cost" / "cost.md").read_text()
    assert text == cost.markdown(times)
    assert "| PnP-HQS | fast |" in text
    assert text.count("| 0.24 |") == 2  # the paper's, of FIRM with two steps


def test_pareto_draws_both(root, table, times, tmp_path):
    arguments = ["--table", str(root / "celeba"), "--times", str(root / "cost"), "--out", str(tmp_path / "p.png")]
    result = CliRunner().invoke(app, ["reproduce", "pareto", *arguments])
    assert result.exit_code == 0, result.output
    with Image.open(tmp_path / "p.png") as picture:
        assert picture.width > 1000
        assert len(set(picture.convert("RGB").get_flattened_data())) > 50


def test_what_is_missing_is_said_before_any_work(root, tmp_path):
    for command in ("celeba", "cost"):
        arguments = ["--data", str(tmp_path / "no"), "--model", str(root / "tiny.safetensors"), "--out", str(tmp_path)]
        missing = ["--weights", str(tmp_path), "--methods", "pnp-hqs"]
        result = CliRunner().invoke(app, ["reproduce", command, *arguments, *missing])
        assert result.exit_code == 2
        assert says(result.output, "face-prior.safetensors: no such weights")
        result = CliRunner().invoke(app, ["reproduce", command, *arguments, "--methods", "flow"])
        assert says(result.output, "no baseline flow; there are all, pnp-flow, flower, pnp-gs")
    result = CliRunner().invoke(app, ["reproduce", "pareto", "--table", str(tmp_path), "--times", str(tmp_path)])
    assert result.exit_code == 2
    assert says(result.output, "run `firm reproduce celeba` and `firm reproduce cost` first")
    assert not list(tmp_path.iterdir())
