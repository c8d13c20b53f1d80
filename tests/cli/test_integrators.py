"""``--integrator``: the commands integrate the flow as `firm.sample` does, count its network calls, and record it."""

import csv
import json

import numpy as np
import pytest
import torch
from helpers import call, save_pictures, says, tiny_model

import firm
from firm._util.checks import generator_for
from firm.data import load_images
from firm.metrics import psnr
from firm.restoration import Problem

SIZE, K = 32, 2
CALLS = {"euler": 3 * K, "midpoint": 6 * K, "heun": 5 * K}  # of three steps; Heun's last one is an Euler step


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("integrators")
    (folder / "pictures").mkdir()
    save_pictures(folder / "pictures", 2, (SIZE, SIZE))
    tiny_model(folder / "model.safetensors", [{"name": "random-inpainting"}], size=SIZE)
    return folder


def restore(place, out, *more):
    picture, model = place / "pictures" / "000.png", place / "model.safetensors"
    how = ["--simulate", "random-inpainting", "--steps", 3, "--format", "npy", "--precision", "float32", "--seed", 7]
    return call("restore", picture, "--model", model, *how, "--out", out, *more)


def test_a_restored_picture_is_the_sample_of_this_method(place, tmp_path):
    """All of them: their pictures differ."""
    model = firm.load(place / "model.safetensors")
    problem = Problem.simulated(place / "pictures" / "000.png", "random-inpainting", {}, seed=7)
    pictures = []
    for method, calls in CALLS.items():
        out = tmp_path / method
        result = restore(place, out, *([] if method == "euler" else ["--integrator", method]))
        assert result.exit_code == 0, result.output
        x = firm.sample(
            model, problem.op, problem.y, 3, sigma=problem.sigma, integrator=method,
            generator=torch.Generator().manual_seed(7),
        )  # fmt: skip
        pictures.append(np.load(out / "000_restored.npy"))
        wanted = ((problem.finish(x)[0] + 1) / 2).permute(1, 2, 0)
        np.testing.assert_allclose(pictures[-1], wanted.numpy(), atol=1e-5)
        row = json.loads((out / "restore.json").read_text())[0]
        assert (row["N"], row["integrator"], row["nfe"]) == (3, method, calls)
    assert all(np.abs(a - b).max() > 1e-3 for a, b in zip(pictures, [*pictures[1:], pictures[0]], strict=True))


def test_rows_of_an_evaluation_are_the_samples_of_this_method(place, tmp_path):
    model = firm.load(place / "model.safetensors")
    task = firm.Task("random-inpainting", SIZE)
    images = load_images("folder", place / "pictures", size=SIZE, progress=False)
    common = ["--data", place / "pictures", "--tasks", "random-inpainting", "--steps", 3, "--out", tmp_path]
    for method in CALLS:
        result = call("evaluate", place / "model.safetensors", *common, "--integrator", method)
        assert result.exit_code == 0, result.output
    lines = csv.DictReader((tmp_path / "images.csv").read_text().splitlines())
    rows = {(row["method"], int(row["index"])): row for row in lines}
    for method, calls in CALLS.items():
        label = "FIRM N=3" if method == "euler" else f"FIRM N=3 {method}"
        for i in range(2):
            x = images.batch(range(i, i + 1))
            op, y = task.measure(x, 42, i)
            start = generator_for(42, i, "method")
            restored = firm.sample(model, op, y, 3, sigma=task.sigma, integrator=method, generator=start)
            row = rows[label, i]
            assert float(row["psnr"]) == pytest.approx(float(psnr(restored, x)), abs=1e-4)
            assert int(row["nfe"]) == calls
            print_ = firm.fast(model, "float32").fingerprint()
            assert row["fingerprint"] == (print_ if method == "euler" else f"{print_}-{method}")


def test_a_method_without_a_model_is_refused(place, tmp_path):
    result = call("evaluate", "degraded", "--data", place / "pictures", "--out", tmp_path, "--integrator", "heun")
    assert (result.exit_code, says(result.output, "--integrator heun is for models, and none is named")) == (2, True)
