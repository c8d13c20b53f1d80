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
    told = call(*words, "--out", folder / "not").output
    assert says(told, "there is a scale for N = 1, K = 1, not for N = 1, K = 2")


PRESETS = {"fast": [1, 3], "faithful": [2, 1], "detailed": [4, 2]}


@pytest.fixture(scope="module")
def model(folder):
    return tiny_model(folder / "presets.safetensors", TASK, depths=[1, 2, 3], presets=PRESETS)


@pytest.mark.parametrize(
    ("words", "N", "calls"),
    [([], 2, 4), (["--quality", "faithful"], 2, 2), (["--quality", "fast"], 1, 3), (["--quality", "detailed"], 4, 8),
     (["--quality", "detailed", "--steps", "3"], 3, 6), (["--quality", "detailed", "--iterations", "3"], 4, 12),
     (["--quality", "fast", "--steps", "2", "--iterations", "2"], 2, 4)],
)  # fmt: skip
def test_a_quality_is_a_pair_that_steps_and_iterations_take_the_place_of(folder, model, words, N, calls):
    """Without a quality: the steps of "faithful", and the model's own two iterations."""
    out = folder / "-".join(["quality", *words])
    said = call(
        "restore", folder / "pictures" / "000.png", "--task", "denoising", "--sigma", "0.2", "--model", model,
        "--out", out, *words,
    )  # fmt: skip
    assert said.exit_code == 0, said.output
    assert "note:" not in said.output
    (row,) = json.loads((out / "restore.json").read_text())
    assert (row["N"], row["nfe"]) == (N, calls)


@pytest.mark.parametrize(
    ("words", "rows"),
    [(["--quality", "fast"], {"FIRM K=3 N=1": 3}),
     (["--quality", "detailed", "--iterations", "1"], {"FIRM K=1 N=4": 4}),
     (["--quality", "fast", "--steps", "1,2"], {"FIRM K=3 N=1": 3, "FIRM K=3 N=2": 6})],
)  # fmt: skip
def test_a_quality_is_a_row_of_a_table(folder, model, words, rows):
    out = folder / "-".join(["table", *words])
    said = call(
        "evaluate", model, "--data", folder / "pictures", "--tasks", "denoising", "--limit", "1", "--size", "32",
        "--out", out, *words,
    )  # fmt: skip
    assert said.exit_code == 0, said.output
    summary = json.loads((out / "results.json").read_text())["summary"]["denoising"]
    assert {label: row["nfe"] for label, row in summary.items() if "FIRM" in label} == rows


def test_several_models_each_have_their_own_pair(folder, model):
    other = firm.load(folder / "taught.safetensors")
    other.estimator.stem.conv.weight.data += 1
    other.save(folder / "without.safetensors")
    said = call(
        "evaluate", model, folder / "without.safetensors", "--data", folder / "pictures", "--tasks", "denoising",
        "--limit", "1", "--size", "32", "--quality", "detailed", "--out", folder / "pairs",
    )  # fmt: skip
    assert said.exit_code == 0, said.output
    summary = json.loads((folder / "pairs" / "results.json").read_text())["summary"]["denoising"]
    assert {"presets K=2 N=4", "without K=2 N=25"} <= summary.keys()  # a card without pairs: 25 steps


def test_a_quality_without_a_model_is_noted(folder):
    said = call(
        "evaluate", "degraded", "--data", folder / "pictures", "--tasks", "denoising", "--limit", "1", "--size", "32",
        "--quality", "fast", "--out", folder / "no-model",
    )  # fmt: skip
    assert says(said.output, "note: --quality is for models, and had no effect here")


def test_the_speed_of_a_quality(folder, model):
    out = folder / "speed.json"
    said = call("bench", "sample", model, "--quality", "detailed", "--seconds", "0", "--no-naive", "--out", out)
    assert said.exit_code == 0, said.output
    assert {(row["N"], row["nfe"]) for row in json.loads(out.read_text())["rows"]} == {(4, 8)}
