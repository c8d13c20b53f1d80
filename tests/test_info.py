"""``firm models`` and ``firm info``."""

import json

import pytest
from helpers import save_pictures, says
from typer.testing import CliRunner

import firm
from firm.cli import app


def shown(*arguments):
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    return result.exit_code, result.output


def test_models_lists_the_bundled_ones_and_the_baselines():
    code, text = shown("models")
    assert code == 0
    line = next(line for line in text.splitlines() if line.split()[:1] == ["face-128"])
    assert "8.41 M" in line
    assert "CelebA" in line
    assert "non-commercial" in text
    names = {line.split()[0] for line in text.splitlines() if line.split()}
    assert {*firm.bundled(), "face-prior", "face-ista-net-random-inpainting"} <= names


def test_info_of_a_model_reads_its_header_only():
    code, text = shown("info", "face-128")
    assert code == 0
    for fact in ("8,411,568", "UNet", "rho", "trained_for", "minutes", "28.4"):
        assert fact in text
    assert says(text, "weight 1.5, name random-inpainting, sigma [0.002, 0.05], missing [0.4, 0.85]")


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


def test_info_of_a_picture(tmp_path):
    save_pictures(tmp_path, 1, (40, 30))
    code, text = shown("info", str(tmp_path / "000.png"))
    assert code == 0
    for fact in ("PNG", "40", "30", "RGB", "noise", "of 255"):
        assert fact in text


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x08\x00\x00\x00\x00\x00\x00\x00{}      "])
def test_what_cannot_be_read_is_said(tmp_path, content):
    for name in ("m.safetensors", "p.png"):
        (tmp_path / name).write_bytes(content)
        code, text = shown("info", str(tmp_path / name))
        assert code == 2
        assert "Traceback" not in text
    assert shown("info", str(tmp_path))[0] == 2
    assert says(shown("info", "no-such-model")[1], "no model 'no-such-model'")
