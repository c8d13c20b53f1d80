"""``--iterations``: the depth K of Algorithm 3, chosen when restoring, evaluating, calibrating and measuring speed."""

import json

import pytest
from helpers import call, save_pictures, says, tiny_model

import firm

TASK = [{"name": "denoising", "sigma": 0.2}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("depth")
    save_pictures(root / "pictures", 3, (32, 32))
    tiny_model(root / "taught.safetensors", TASK, depths=[1, 2, 3])
    tiny_model(root / "other.safetensors", TASK, depths=[firm.load(root / "taught.safetensors").solver.K])
    return root


def restored(folder, model, *words):
    out = folder / f"{model}{''.join(words)}"
    said = call(
        "restore", folder / "pictures" / "000.png", "--task", "denoising", "--sigma", "0.2", "--steps", "2",
        "--model", folder / f"{model}.safetensors", "--out", out, "--format", "npy", *words,
    )  # fmt: skip
    assert said.exit_code == 0, said.output
    rows = json.loads((out / "restore.json").read_text())
    return said.output, rows, (out / "000_restored.npy").read_bytes()


def test_fewer_iterations_take_fewer_calls(folder):
    own = firm.load(folder / "taught.safetensors").solver.K
    output, rows, image = restored(folder, "taught", "--iterations", "1")
    assert "note:" not in output
    assert rows[0]["nfe"] == 2
    _, usual, other = restored(folder, "taught")
    assert usual[0]["nfe"] == 2 * own
    assert image != other
    assert restored(folder, "taught", "--iterations", str(own))[2] == other


def test_a_depth_it_was_not_trained_for_is_a_note(folder):
    output, _, _ = restored(folder, "other", "--iterations", "7")
    assert says(output, "note: this model was trained for 2 iterations, not for 7")
    said = call("restore", folder / "pictures", "--task", "denoising", "--iterations", "0")
    assert said.exit_code == 2
    assert says(said.output, "must be a whole number of at least 1, got 0")


def test_a_table_names_the_depth(folder):
    said = call(
        "evaluate", folder / "taught.safetensors", "--data", folder / "pictures", "--tasks", "denoising", "--steps",
        "1", "--iterations", "1", "--size", "32", "--out", folder / "table",
    )  # fmt: skip
    assert said.exit_code == 0, said.output
    summary = json.loads((folder / "table" / "results.json").read_text())["summary"]["denoising"]
    assert summary["FIRM K=1 N=1"]["nfe"] == 1


def test_a_calibration_holds_for_one_depth(folder):
    model, scales = folder / "taught.safetensors", folder / "scales.json"
    said = call(
        "calibrate", model, "--data", folder / "pictures", "--out", scales, "--tasks", "denoising", "--steps", "1",
        "--iterations", "1", "--samples", "2", "--limit", "2", "--size", "32",
    )  # fmt: skip
    assert said.exit_code == 0, said.output
    assert says(said.output, "--steps 1 --iterations 1 --samples 2")
    words = ["restore", folder / "pictures" / "000.png", "--simulate", "denoising", "--model", model, "--steps", "1",
             "--samples", "2", "--calibration", scales]  # fmt: skip
    assert call(*words, "--iterations", "1", "--out", folder / "fits").exit_code == 0
    assert says(call(*words, "--out", folder / "not").output, "another model")
