"""Arrays in units of their own: from training to the restored file."""

import json

import numpy as np
import pytest
import torch
from helpers import call

import firm
from firm.restoration.output import write_array

LOW, HIGH = 100.0, 4196.0


@pytest.fixture
def scans(tmp_path):
    """Twelve images of 16x16 in [LOW, HIGH], a model that knows this range, and one image as a file."""
    values = np.random.default_rng(0).uniform(LOW, HIGH, (12, 1, 16, 16)).astype(np.float32)
    np.save(tmp_path / "stack.npy", values)
    np.save(tmp_path / "one.npy", values[0])
    card = {"size": 16, "channels": 1, "value_range": [LOW, HIGH], "trained_for": [{"name": "denoising"}]}
    net = firm.UNet(1, side=16, ch=8, mult=(1,), blocks=1, attention=(), groups=4, noise_level=True)
    firm.Firm(net, firm.Solver(K=1, output="correction"), card).save(tmp_path / "model.safetensors")
    return tmp_path


def run(*arguments):
    result = call(*arguments)
    assert result.exit_code == 0, result.output


def test_restored_arrays_and_their_deviations_are_in_the_units_of_the_input(scans, restore):
    out, truth = scans / "out", np.load(scans / "one.npy")
    words = [scans / "one.npy", "--simulate", "denoising", "--model", scans / "model.safetensors"]
    restore(*words, "--sigma", 0)
    restored = np.load(out / "one_restored.npy")
    assert restored.dtype == np.float32
    assert np.abs(restored - truth).max() < 0.1 * (HIGH - LOW)  # no noise: the solve returns the image almost as it is
    assert abs(restored.mean() - truth.mean()) < 0.02 * (HIGH - LOW)
    restore(*words, "--samples", 5, "--force")
    samples = np.stack([np.load(out / f"one_sample_{i:02d}.npy") for i in range(1, 6)])
    np.testing.assert_allclose(np.load(out / "one_std.npy"), samples.std(0, ddof=1), rtol=1e-3, atol=1e-4)


def test_deviations_of_complex_arrays_are_those_of_both_parts(tmp_path):
    z = torch.tensor([0.5, 0.25]).reshape(2, 1, 1)  # of the real and of the imaginary part
    write_array(tmp_path / "z.npy", z, complex_image=True, value_range=(0.0, 8.0), deviation=True)
    assert np.load(tmp_path / "z.npy").item() == 4 + 2j


def test_the_range_of_training_is_the_default_and_can_be_given(scans):
    common = ["--dataset", "arrays", "--data", scans / "stack.npy", "--tasks", "denoising", "--steps", 1, "--limit", 4]
    run("evaluate", scans / "model.safetensors", *common, "--out", scans / "a")
    run("evaluate", "degraded", *common, "--value-range", f"{LOW},{HIGH}", "--out", scans / "b")
    psnr = [
        json.loads((scans / f / "results.json").read_text())["summary"]["denoising"]["degraded"]["psnr"] for f in "ab"
    ]
    assert psnr[0] == pytest.approx(20, abs=0.6)  # sigma 0.2 of images in [-1, 1], as the protocol says
    assert psnr[0] == psnr[1]


def test_training_records_the_range(scans):
    (scans / "c.yaml").write_text(
        f"{{dataset: arrays, data: {scans / 'stack.npy'}, channels: 1, size: 16, batch_size: 2, epochs: 1, K: 1, "
        f"steps_per_epoch: 1, val_images: 2, out: {scans / 'run'}, task: denoising, value_range: [{LOW}, {HIGH}], "
        "network: {ch: 8, mult: [1], blocks: 1, attention: [], groups: 4}, warm_start_epochs: 0, ema_from_epoch: 0}"
    )
    run("train", scans / "c.yaml")
    assert firm.load(scans / "run" / "model.safetensors").card["value_range"] == [LOW, HIGH]


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_arrays_of_any_number_of_channels_go_through_a_model_for_color(channels, restore, tmp_path):
    values = np.random.default_rng(0).uniform(-0.9, 0.9, (channels, 36, 44)).astype(np.float32)
    np.save(tmp_path / "a.npy", values)
    restore(tmp_path / "a.npy", "--task", "denoising", "--sigma", 0.1, "--samples", 2)
    assert np.load(tmp_path / "out" / "a_restored.npy").shape == (channels, 36, 44)
    assert np.load(tmp_path / "out" / "a_std.npy").shape == (channels, 36, 44)
