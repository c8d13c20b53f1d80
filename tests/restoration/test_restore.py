"""``firm restore`` from the command line: files in, files out."""

import json
import os
import subprocess
import sys
import zlib

import numpy as np
import pytest
import torch
from helpers import says
from PIL import Image
from typer.testing import CliRunner

import firm
from firm.cli import app
from firm.restoration import Problem
from firm.restoration.output import write_picture
from firm.tasks import picture_tasks


def call(*arguments):
    return CliRunner().invoke(app, ["restore", *map(str, arguments)])


def size_of(path):
    with Image.open(path) as picture:
        return picture.size


def pixels_of(path):
    with Image.open(path) as picture:
        return np.asarray(picture).astype(int)


def rows(out):
    return json.loads((out / "restore.json").read_text())


def test_one_picture(folder, model_file, tmp_path):
    out = tmp_path / "out"
    result = call(folder / "000.png", "--task", "denoising", "--sigma", 0.1, "--model", model_file, "--out", out)
    assert result.exit_code == 0, result.output
    assert sorted(p.name for p in out.iterdir()) == ["000_compare.png", "000_restored.png", "restore.json"]
    assert size_of(out / "000_restored.png") == (44, 36)
    row = rows(out)[0]
    assert (row["nfe"], row["sigma"], row["N"]) == (4, 0.1, 2)
    assert "psnr" not in row


def test_the_python_twin_gives_the_same_pixels(folder, model_file, tmp_path):
    out, path = tmp_path / "out", folder / "001.png"
    arguments = ["--task", "denoising", "--sigma", 0.1, "--seed", 5, "--precision", "float32", "--format", "npy"]
    result = call(path, *arguments, "--model", model_file, "--out", out)
    assert result.exit_code == 0, result.output
    problem = Problem.from_file(path, "denoising", sigma=0.1)
    model = firm.tiled(firm.fast(firm.load(model_file), "float32"))
    image = firm.restore(model, problem.op, problem.y, 2, seed=5, sigma=0.1).image
    written = torch.from_numpy(np.load(out / "001_restored.npy")).permute(2, 0, 1)
    torch.testing.assert_close(written, (image[0] + 1) / 2)


def test_the_noise_that_makes_gray_channels_independent_is_not_that_of_the_start(model_file, tmp_path):
    """It would be one noise twice, and a note of the row would say so."""
    Image.fromarray(np.tile(np.arange(100, 148, dtype=np.uint8), (40, 1))).save(tmp_path / "gray.png")
    result = call(
        tmp_path / "gray.png", "--task", "denoising", "--sigma", 0.3, "--model", model_file, "--out", tmp_path / "out"
    )
    assert result.exit_code == 0, result.output
    assert "resembles the noise" not in " ".join(rows(tmp_path / "out")[0]["advice"])


def test_samples_mean_and_deviation(folder, model_file, tmp_path):
    out = tmp_path / "out"
    result = call(
        folder / "000.png", "--simulate", "random-inpainting", "--samples", 3, "--steps", 1, "--format", "npy",
        "--model", model_file, "--out", out,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    samples = np.stack([np.load(out / f"000_sample_{i:02d}.npy") for i in (1, 2, 3)])
    np.testing.assert_allclose(np.load(out / "000_mean.npy"), samples.mean(0), atol=1e-5)
    np.testing.assert_allclose(np.load(out / "000_restored.npy"), samples[0])
    assert size_of(out / "000_std.png") == (44, 36)
    row = rows(out)[0]
    assert row["nfe"] == 6
    assert {"psnr", "ssim", "lpips", "psnr of the mean"} <= row.keys()
    assert "PSNR" in result.output


def test_a_picture_as_an_array_has_its_deviation_and_no_comparison_is_written_unasked(folder, model_file, tmp_path):
    out, arguments = tmp_path / "out", ["--task", "denoising", "--sigma", 0.1, "--samples", 4, "--steps", 1]
    result = call(folder / "000.png", *arguments, "--format", "npy", "--no-compare", "--model", model_file, "-o", out)
    assert result.exit_code == 0, result.output
    assert not says(result.output, "see before and after")
    samples = [f"000_sample_{i:02d}.npy" for i in range(1, 5)]
    others = {f"000_{n}" for n in ("restored.npy", "mean.npy", "std.npy", "std.png")}
    assert {p.name for p in out.iterdir()} == {*samples, *others, "restore.json"}
    expected = np.stack([np.load(out / name) for name in samples]).std(0, ddof=1)
    np.testing.assert_allclose(np.load(out / "000_std.npy"), expected, atol=1e-6)


def test_sizes_of_the_real_tasks(folder, model_file, tmp_path):
    common = ["--steps", 1, "--model", model_file, "--out", tmp_path]
    assert call(folder / "000.png", "--task", "super-resolution", *common).exit_code == 0
    assert size_of(tmp_path / "000_restored.png") == (88, 72)
    assert call(folder / "001.png", "--task", "deblurring", "--blur", 1, *common).exit_code == 0
    assert size_of(tmp_path / "001_restored.png") == (44, 36)


def test_a_folder_goes_on_after_a_broken_picture(folder, model_file, tmp_path):
    (folder / "sub").mkdir()
    (folder / "000.png").rename(folder / "sub" / "a.png")
    (folder / "001b.jpg").write_bytes(b"no picture")
    out = tmp_path / "out"
    result = call(folder, "--task", "denoising", "--steps", 1, "--model", model_file, "--out", out)
    assert result.exit_code == 1
    assert says(result.output, "001b.jpg: no picture in a format that Pillow reads")
    names = sorted(p.relative_to(out).as_posix() for p in out.rglob("*_restored.png"))
    assert names == ["001_restored.png", "002_restored.png", "sub/a_restored.png"]
    assert [("error" in row) for row in rows(out)] == [False, True, False, False]
    assert says(result.output, "(est.)")


def test_results_are_no_pictures_to_restore(folder, model_file):
    arguments = ["--task", "denoising", "--steps", 1, "--model", model_file]
    for _ in range(2):
        assert call(folder, *arguments, "--out", folder / "results").exit_code == 0
    assert len(list((folder / "results").glob("*_restored.png"))) == 3
    result = call(folder, *arguments, "--out", folder)
    assert result.exit_code == 2
    assert says(result.output, "--out is the folder of the pictures")


BAD = [
    ([], "give either --task"),
    (["--task", "denoising", "--simulate", "denoising"], "give either --task"),
    (["--task", "denoising", "--missing", "0.5"], "missing does not belong to denoising but to --simulate"),
    (["--task", "denoising", "--model", "nothing"], "no model 'nothing'"),
    (["--task", "denoising", "--model", "toy"], "does not restore images"),
    (["--task", "denoising", "--tile", "30"], "tile must be a multiple of"),
    (["--simulate", "denoising", "--box", "4"], "no setting 'box'"),
    (["--simulate", "super-resolution", "--scale", str(10**20)], "is larger than the picture's sides"),
    (["--task", "super-resolution", "--scale", "0"], "must be 1 or more and at most 8, got 0"),
    (["--simulate", "denoising", "--seed", str(10**20)], "the seed must be a whole number from 0 to 2^32 - 1"),
    (["--simulate", "denoising", "--set", "b"], "--set takes key=value, got 'b'"),
    (["--task", "denoising", "--max-megapixels", "0.001"], "megapixels, more than the limit of 0.001"),
    (["--task", "denoising", "--max-megapixels", "-1"], "-1"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input_is_named_and_nothing_is_written(folder, model_file, tmp_path, arguments, message):
    out = tmp_path / "out"
    chosen = [] if "--model" in arguments else ["--model", model_file]
    result = call(folder / "000.png", *arguments, *chosen, "--out", out)
    assert result.exit_code == 2
    assert says(result.output, message), result.output
    assert not list(out.glob("*"))


def test_results_need_a_folder(folder, model_file, tmp_path):
    (tmp_path / "file").write_text("mine")
    result = call(folder, "--task", "denoising", "--model", model_file, "--out", tmp_path / "file")
    assert result.exit_code == 2
    assert says(result.output, "is a file; results need a folder")


def test_samples_are_written_as_they_are_drawn(folder, model_file, tmp_path, monkeypatch):
    """And not kept: mean, deviation and files are those of the samples all the same."""
    from firm.restoration import run

    kept, real = [], run.restore
    monkeypatch.setattr(run, "restore", lambda *a, **k: kept.append(real(*a, **k)) or kept[-1])
    result = call(
        folder / "000.png", "--task", "denoising", "--sigma", 0.1, "--samples", 3, "--steps", 1, "--format", "npy",
        "--precision", "float32", "--model", model_file, "--out", tmp_path / "out",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert kept[0].samples.shape == (0, 1, 3, 36, 44)
    problem = Problem.from_file(folder / "000.png", "denoising", sigma=0.1)
    model = firm.tiled(firm.fast(firm.load(model_file), "float32"))
    r = firm.restore(model, problem.op, problem.y, 1, 3, sigma=0.1)
    for i, sample in enumerate(r.samples, start=1):
        written = torch.from_numpy(np.load(tmp_path / "out" / f"000_sample_{i:02d}.npy")).permute(2, 0, 1)
        assert torch.equal(written, (sample[0] + 1) / 2)
    torch.testing.assert_close(kept[0].std, r.std, rtol=1e-4, atol=1e-6)


def test_a_missing_picture_is_named(model_file, tmp_path):
    result = call(tmp_path / "none.png", "--task", "denoising", "--model", model_file, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert says(result.output, "none.png: no such file")


def test_png_with_16_bits(tmp_path):
    x = torch.rand(3, 5, 7, generator=torch.Generator().manual_seed(0)) * 2.4 - 1.2
    expected = (((x + 1) / 2).clamp(0, 1) * 65535).round().to(torch.int32).permute(1, 2, 0).numpy()
    write_picture(tmp_path / "gray.png", x[:1], "png16")
    np.testing.assert_array_equal(pixels_of(tmp_path / "gray.png"), expected[:, :, 0])
    write_picture(tmp_path / "rgb.png", x, "png16")
    np.testing.assert_allclose(pixels_of(tmp_path / "rgb.png"), expected / 257, atol=1)
    data = (tmp_path / "rgb.png").read_bytes()
    body = data[data.index(b"IDAT") + 4 : data.index(b"IEND") - 8]
    raw = np.frombuffer(zlib.decompress(body), np.uint8).reshape(5, -1)[:, 1:].copy()
    np.testing.assert_array_equal(raw.view(">u2").reshape(5, 7, 3), expected)


def test_torchrun_shares_a_folder(folder, model_file, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    settings = ["--task", "denoising", "--sigma", "0.1", "--steps", "1", "--model", str(model_file)]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    launch += ["--rdzv-endpoint", "localhost:0", "-m", "firm", "restore", str(folder), *settings]
    done = subprocess.run([*launch, "--out", str(tmp_path / "two")], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert call(folder, *settings, "--out", tmp_path / "one").exit_code == 0
    assert [row["picture"] for row in rows(tmp_path / "two")] == [row["picture"] for row in rows(tmp_path / "one")]
    for i in range(3):
        name = f"00{i}_restored.png"
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()


def test_small_mistakes_are_told_in_plain_words(folder, model_file, tmp_path):
    common = ["--task", "denoising", "--model", model_file, "--out", tmp_path / "out"]
    for wrong in ("2.5", "0", "-1", "many"):
        for option in ("--steps", "--samples"):
            result = call(folder / "000.png", *common, option, wrong)
            assert result.exit_code == 2
            assert says(result.output, f"'{option}': must be a whole number of at least 1, got {wrong}")
    result = call(f"{tmp_path}/none/", *common)
    assert result.exit_code == 2
    assert says(result.output, "none: no such file or folder")
    Image.new("RGB", (4, 4)).save(tmp_path / "tiny.png")
    result = call(tmp_path / "tiny.png", *common)
    assert result.exit_code == 2
    assert says(result.output, "tiny.png: too few neighboring pixels to estimate the noise from: give its level with")
    assert says(result.output, "--sigma")


def test_the_help_lists_every_task_for_pictures():
    text = CliRunner().invoke(app, ["restore", "--help"], env={"COLUMNS": "200"}).output
    start = text.index("What to undo")
    for name in picture_tasks():
        assert name in text[start : start + 400], name


def test_the_folder_of_a_training_run_is_a_model(folder, model_file, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    words = [folder / "000.png", "--task", "denoising", "--sigma", 0.1, "--steps", 1, "--out", tmp_path / "out"]
    assert says(call(*words, "--model", run).output, "a folder without model.safetensors")
    (run / "model.safetensors").write_bytes(model_file.read_bytes())
    assert call(*words, "--model", run).exit_code == 0
    assert says(call(*words, "--model", model_file).output, "nothing to do")  # the same model
