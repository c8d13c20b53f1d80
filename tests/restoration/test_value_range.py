"""Arrays in units of their own: from training to the restored file."""

import json

import numpy as np
import pytest
import torch
from helpers import says
from typer.testing import CliRunner

import firm
from firm.cli import app
from firm.data import load_images
from firm.restoration.output import write_deviation

LOW, HIGH = 100.0, 4196.0


@pytest.fixture
def scans(tmp_path):
    """Twelve images of 16x16 in [LOW, HIGH], a model that knows this range, and one image as a file."""
    values = np.random.default_rng(0).uniform(LOW, HIGH, (12, 1, 16, 16)).astype(np.float32)
    np.save(tmp_path / "stack.npy", values)
    np.save(tmp_path / "one.npy", values[0])
    net = firm.UNet(1, side=16, ch=8, mult=(1,), blocks=1, attention=(), groups=4, noise_level=True)
    card = {"size": 16, "channels": 1, "value_range": [LOW, HIGH], "trained_for": [{"name": "denoising"}]}
    firm.Firm(net, firm.Solver(K=1, output="correction"), card).save(tmp_path / "model.safetensors")
    return tmp_path


def run(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_restored_arrays_have_the_values_of_the_input(scans):
    model, out = scans / "model.safetensors", scans / "out"
    run("restore", scans / "one.npy", "--simulate", "denoising", "--sigma", "0", "--model", model, "--out", out)
    restored, truth = np.load(out / "one_restored.npy"), np.load(scans / "one.npy")
    assert restored.dtype == np.float32
    assert np.abs(restored - truth).max() < 0.1 * (HIGH - LOW)  # no noise: the solve returns the image almost as it is
    assert abs(restored.mean() - truth.mean()) < 0.02 * (HIGH - LOW)


def test_standard_deviations_of_arrays_are_numbers_in_their_units(scans):
    out = scans / "out"
    run("restore", scans / "one.npy", "--simulate", "denoising", "--samples", 5, "--model", scans / "model.safetensors",
        "--out", out)  # fmt: skip
    samples = np.stack([np.load(out / f"one_sample_{i:02d}.npy") for i in range(1, 6)])
    np.testing.assert_allclose(np.load(out / "one_std.npy"), samples.std(0, ddof=1), rtol=1e-3, atol=1e-4)
    z = torch.tensor([0.5, 0.25]).reshape(2, 1, 1)  # of the real and of the imaginary part
    write_deviation(scans / "z.npy", z, complex_image=True, value_range=(0.0, 8.0))
    assert np.load(scans / "z.npy").item() == 4 + 2j


def test_the_range_of_training_is_the_default_and_can_be_given(scans):
    model = scans / "model.safetensors"
    data = ("--dataset", "arrays", "--data", scans / "stack.npy")
    common = (*data, "--tasks", "denoising", "--steps", "1", "--limit", 4)
    run("evaluate", model, *common, "--out", scans / "a")
    run("evaluate", "degraded", *common, "--value-range", f"{LOW},{HIGH}", "--out", scans / "b")
    psnr = [
        json.loads((scans / f / "results.json").read_text())["summary"]["denoising"]["degraded"]["psnr"] for f in "ab"
    ]
    assert psnr[0] == pytest.approx(20, abs=0.6)  # sigma 0.2 of images in [-1, 1], as the protocol says
    assert psnr[0] == psnr[1]
    result = CliRunner().invoke(app, ["evaluate", str(model), *map(str, common), "--value-range", "1;2"])
    assert result.exit_code == 2
    assert says(result.output, "--value-range takes two numbers, low,high")


def test_training_records_the_range(scans):
    settings = {
        "dataset": "arrays", "data": scans / "stack.npy", "channels": 1, "size": 16, "batch_size": 2, "epochs": 1,
        "steps_per_epoch": 1, "val_images": 2, "out": scans / "run", "K": 1, "task": "denoising",
        "value_range": [LOW, HIGH],
        "network": "{ch: 8, mult: [1], blocks: 1, attention: [], groups: 4}", "warm_start_epochs": 0,
        "ema_from_epoch": 0,
    }  # fmt: skip
    empty = scans / "empty.yaml"
    empty.write_text("seed: 1\n")
    run("train", empty, *(f"{key}={value}" for key, value in settings.items()))
    assert firm.load(scans / "run" / "model.safetensors").card["value_range"] == [LOW, HIGH]
    images = load_images("arrays", scans / "stack.npy", size=16, value_range=(LOW, HIGH))
    assert float(images.data.min()) >= -1 - 1e-5
    assert torch.isfinite(images.data).all()


def test_a_picture_has_no_range(scans):
    from firm.data.sets import portrait_file

    net = firm.UNet(3, side=16, ch=8, mult=(1,), blocks=1, attention=(), groups=4)
    firm.Firm(net, firm.Solver(K=1), {"value_range": [LOW, HIGH]}).save(scans / "rgb.safetensors")
    run("restore", portrait_file(), "--task", "denoising", "--model", scans / "rgb.safetensors", "--out", scans / "p")
    assert (scans / "p" / "astronaut_restored.png").is_file()
