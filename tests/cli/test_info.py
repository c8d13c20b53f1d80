"""``firm models`` and ``firm info``."""

import json
import re

import numpy as np
import pytest
from helpers import call, save_pictures, says, tiny_model
from mri_helpers import scanned, write_fastmri
from PIL import Image, ImageFilter
from typer.testing import CliRunner

import firm
from firm.cli import app
from firm.data.sets import portrait_file
from firm.restoration.calibration import Calibration, TaskScale, in_card
from volume_helpers import nifti, ome_tiff, values


def shown(*arguments):
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    return result.exit_code, result.output


def test_models_lists_the_bundled_ones_and_the_baselines():
    code, text = shown("models")
    lines = text.splitlines()
    assert (code, "parameters" in lines[0]) == (0, True)
    line = next(line for line in lines if line.split()[:1] == ["face-128"])
    assert ("8.20 M" in line, "CelebA" in line) == (True, True)
    names = {line.split()[0] for line in lines if line.split()}
    assert {*firm.bundled(), "face-prior", "face-ista-net-random-inpainting"} <= names
    rows = text[text.index("\nphoto ") : text.index("\ntoy ")]
    assert rows.count("super-resolution") == 1  # a task is named once, and the data in short
    assert ("2600 photographs" in rows, "pixels" in rows) == (True, False)


def test_models_says_whose_terms_they_are_in_80_columns():
    text = shown("models")[1]
    assert "face-128:\n    CelebA is for non-commercial research" in text
    baselines = next(line for line in text.splitlines() if line.endswith("face-prior:"))
    assert {"face-i2sb", "face-ista-net-deblurring"} <= set(baselines.split(", "))
    assert text.count("Trained on CelebA: for non-commercial research.") == 1
    narrow = CliRunner().invoke(app, ["models"], env={"COLUMNS": "80"}).output
    assert "…" not in narrow
    assert max(map(len, narrow.splitlines())) <= 80


def test_info_of_a_model_reads_its_header_only():
    code, text = shown("info", "face-128")
    assert (code, "{" in text) == (0, False)
    for fact in ("8,200,835", "ResUNet", "rho", "trained_for", "minutes", "denoising, FIRM N=2: psnr 33.5"):
        assert fact in text
    assert says(text, "weight 0.6, name random-inpainting, sigma [0.002, 0.05], missing [0.4, 0.85]")


def test_info_of_a_model_has_a_line_for_each_pair_that_was_calibrated(tmp_path):
    tasks = {"denoising": TaskScale({"measured": 2.0}, {"sigma": 0.2}, 0.5, 0.9, {"2": {"measured": 6.0}})}
    card = dict(calibrations=in_card([Calibration("", N, 3, 16, 20, tasks) for N in (1, 10)]))
    code, text = shown("info", str(tiny_model(tmp_path / "model.safetensors", [], **card)))
    lines = [line.strip() for line in text.splitlines() if "N = " in line]
    assert (code, len(lines)) == (0, 2)
    assert lines[1] == "N = 10, K = 3, 16 samples: denoising 2.00"
    code, text = shown("info", str(tiny_model(tmp_path / "odd.safetensors", [], calibrations=[{"tasks": "x"}])))
    assert (code, "is no calibration, or is damaged" in text) == (0, True)


def test_info_knows_the_baselines_networks_that_models_lists():
    """By name; a path is always a path."""
    code, text = shown("info", "face-prior")
    assert (code, "8,027,568" in text, "PriorUNet" in text) == (0, True, True)
    assert shown("info", "./face-prior")[0] == 2


def test_info_of_a_run(tmp_path):
    (tmp_path / "config.yaml").write_text("objective: balanced\nsize: 32\ntask: denoising\nK: 3\n")
    rows = [{"step": 5, "loss": 0.5}, {"step": 10, "loss": 0.25}, {"step": 10, "psnr N=2": 31.5}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step_000000010.pt").touch()
    code, text = shown("info", str(tmp_path))
    assert code == 0
    for fact in ("balanced", "denoising", "0.25", "31.5", "step_000000010", "none"):
        assert fact in text


def test_info_of_an_evaluation(tmp_path):
    config = {"files": ["a", "b"], "tasks": {"denoising": {"sigma": 0.2}}, "convention": "tables", "seed": 42}
    (tmp_path / "config.json").write_text(json.dumps(config))
    code, text = shown("info", str(tmp_path))
    assert (code, "not finished" in text, "tables" in text) == (0, True, True)
    (tmp_path / "results.json").write_text(json.dumps({"methods": {"FIRM N=2": "abc"}}))
    assert "FIRM N=2" in shown("info", str(tmp_path))[1]


def test_info_of_pictures_of_all_kinds(tmp_path):
    """Compression, transparency, blur and saved floats."""
    with Image.open(portrait_file()) as picture:
        portrait = picture.convert("RGB")
    portrait.save(tmp_path / "a.jpg", quality=30)
    portrait.filter(ImageFilter.GaussianBlur(2)).save(tmp_path / "b.png")
    portrait.convert("RGBA").save(tmp_path / "c.png")
    np.save(tmp_path / "d.npy", np.asarray(portrait, np.float32) / 255)
    np.save(tmp_path / "e.npy", np.full((2, 5, 7), 3 + 4j, np.complex64))
    with Image.open(tmp_path / "a.jpg") as once:
        once.save(tmp_path / "f.png")
    np.save(tmp_path / "g.npy", np.zeros((3, 2000, 600), np.uint8))
    for name, facts in (
        ("a.jpg", ["JPEG of quality 30"]), ("c.png", ["transparency"]), ("f.png", ["was a JPEG once"]),
        ("b.png", ["PNG", "128", "RGB", "noise", "of 255", r"blur +(1\.9|2\.)\d* ± 0\.\d+ pixels"]),
        ("d.npy", ["--format npy", r"width +128"]), ("e.npy", ["2 x 5 x 7", "5 to 5, mean 5"]), ("g.npy", ["uint8"]),
    ):  # fmt: skip
        code, text = shown("info", str(tmp_path / name))
        assert (code, "transparency" in text) == (0, name == "c.png")
        assert all(re.search(fact, text) for fact in facts), text
    code, text = shown("info", str(tmp_path / "g.npy"), "--max-megapixels", "1")
    assert (code, "larger than 1 megapixels" in text) == (2, True)


def test_info_of_restored_pictures(tmp_path):
    rows = [{"name": "a", "task": "denoising", "N": 2, "samples": 1, "sigma": 0.1, "psnr": 30.0},
            {"name": "b", "task": "denoising", "N": 2, "samples": 1, "sigma": 0.2, "psnr": 31.0},
            {"name": "c", "error": "broken"}]  # fmt: skip
    (tmp_path / "restore.json").write_text(json.dumps(rows))
    code, text = shown("info", str(tmp_path))
    assert code == 0
    for fact in ("denoising", "0.1 to 0.2 in [-1, 1] = 12.8/255 to 25.5/255", "30.50 dB"):
        assert fact in text
    assert re.search(r"pictures +2\b", text)
    assert re.search(r"failed +1\b", text)
    assert "not finished" not in text
    (tmp_path / ".firm-restore.json").write_text("{}")
    assert "not finished" in shown("info", str(tmp_path))[1]


EVIL = "\x1b[2J\x1b]0;title\x07\u202e"


def test_no_foreign_text_commands_the_terminal(tmp_path, monkeypatch):
    """Cards, names of files and settings of runs: their control characters are spelled out."""
    data, folder, run = tmp_path / "data", tmp_path / f"weights{EVIL}", tmp_path / f"run{EVIL}"
    for place in (data, folder, run):
        place.mkdir()
    card = {"data": f"a\rb{EVIL}", EVIL: [EVIL], "trained_for": [{"name": EVIL}], "license": EVIL, "size": 16}
    model = folder / f"m{EVIL}.safetensors"
    firm.Firm(firm.UNet(3, side=16, ch=8, mult=(1,), blocks=1, attention=(), groups=4), card=card).save(model)
    save_pictures(data, 1, (20, 20))
    (data / f"{EVIL}.png").write_bytes(b"broken")
    (run / "config.yaml").write_text(json.dumps({"objective": EVIL}))
    (run / "metrics.jsonl").write_text(json.dumps({"step": 1, f"psnr{EVIL}": 2, EVIL: EVIL}))
    monkeypatch.setattr("firm.baselines.weights.FOLDER", folder)
    evaluate = ["evaluate", model, "--data", data, "--steps", 1, "--tasks", "denoising", "--out", tmp_path / EVIL]
    for words, code in (
        (["models"], 0), (["info", model], 0), (["info", run], 0), (["info", data / f"{EVIL}.png"], 2),
        (["info", EVIL], 2), (["plot", run], 0), (["plot", folder], 2), (evaluate, 2),
        ([*evaluate, "--skip-broken"], 0),
    ):  # fmt: skip
        found, text = shown(*map(str, words))
        text = text.replace("\r", "") if words[0] == "evaluate" else text  # of its bars
        assert (found, [c for c in text if not c.isprintable() and c != "\n"]) == (code, []), words
        assert "\\x1b[2J" in "".join(text.split()), words


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x08\x00\x00\x00\x00\x00\x00\x00{}      "])
def test_what_cannot_be_read_is_said(tmp_path, content):
    for name in ("m.safetensors", "p.png"):
        (tmp_path / name).write_bytes(content)
        code, text = shown("info", str(tmp_path / name))
        assert code == 2
        assert "Traceback" not in text
    assert shown("info", str(tmp_path))[0] == 2
    assert says(shown("info", "no-such-model")[1], "no model 'no-such-model'")


def test_a_damaged_folder_is_said_to_be(tmp_path):
    for number, (file, content) in enumerate(
        [("config.yaml", "a: [1"), ("config.json", '{"files": 3, "tasks": {}}'), ("results.json", "[]")]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / ("metrics.jsonl" if file == "config.yaml" else "images.csv")).write_text("")
        (folder / file).write_text(content)
        code, text = shown("info", str(folder))
        assert (code, says(text, "damaged")) == (2, True), (file, text)


def test_an_instruments_file_is_read_as_one(tmp_path):
    kspace, _, _ = scanned(1, 4, 48, 40)
    for path, words in (
        (nifti(tmp_path / "brain.nii.gz", values(3)), ("3 slices of 24x20", "--task denoising")),
        (ome_tiff(tmp_path / "cells.ome.tif", values(2)), ("2 slices of 24x20", "--task microscopy")),
        (write_fastmri(tmp_path / "scan.h5", kspace), ("4 coils, 48x40", "--task mri")),
    ):
        done = call("info", path)
        assert done.exit_code == 0
        assert all(says(done.output, word) for word in words), done.output
