"""``firm restore`` from the command line: files in, files out."""

import zlib

import numpy as np
import pytest
import torch
from helpers import run_two_processes, says

import firm
from firm.restoration import Problem, run
from firm.restoration.output import write_picture
from restoration_helpers import pixels, rows, save_gray


def size_of(path):
    return pixels(path).shape[1::-1]


def floats(path):
    """A picture that was written as an array, (C, H, W) in [0, 1]."""
    return torch.from_numpy(np.load(path)).permute(2, 0, 1)


def test_one_picture(folder, restore, tmp_path):
    out = tmp_path / "out"
    restore(folder / "000.png", "--task", "denoising", "--sigma", 0.1, "--steps", 2)
    assert sorted(p.name for p in out.iterdir()) == ["000_compare.png", "000_restored.png", "restore.json"]
    assert size_of(out / "000_restored.png") == (44, 36)
    (row,) = rows(out)
    assert (row["nfe"], row["sigma"], row["N"]) == (4, 0.1, 2)
    assert "psnr" not in row


def test_the_python_twin_gives_the_same_pixels_and_samples_are_written_as_they_are_drawn(
    folder, restore, model_file, tmp_path, monkeypatch
):
    """And not kept: mean, deviation and files are those of the samples all the same."""
    kept, real, out = [], run.restore, tmp_path / "out"
    monkeypatch.setattr(run, "restore", lambda *a, **k: kept.append(real(*a, **k)) or kept[-1])
    how = ["--seed", 5, "--samples", 4, "--precision", "float32", "--format", "npy", "--no-compare"]
    output = restore(folder / "001.png", "--task", "denoising", "--sigma", 0.1, *how)
    assert not says(output, "see before and after")
    assert kept[0].samples.shape == (0, 1, 3, 36, 44)
    problem = Problem.from_file(folder / "001.png", "denoising", sigma=0.1)
    model = firm.tiled(firm.fast(firm.load(model_file), "float32"))
    r = firm.restore(model, problem.op, problem.y, 1, 4, seed=5, sigma=0.1)
    for i, sample in enumerate(r.samples, start=1):
        assert torch.equal(floats(out / f"001_sample_{i:02d}.npy"), (sample[0] + 1) / 2)
    for what, expected in (("restored", (r.image[0] + 1) / 2), ("mean", (r.mean[0] + 1) / 2), ("std", r.std[0] / 2)):
        torch.testing.assert_close(floats(out / f"001_{what}.npy"), expected, rtol=1e-4, atol=1e-6)
    names = {f"001_{what}.npy" for what in ("restored", "mean", "std", *(f"sample_{i:02d}" for i in range(1, 5)))}
    assert {p.name for p in out.iterdir()} == {*names, "001_std.png", "restore.json"}


def test_the_noise_that_makes_gray_channels_independent_is_not_that_of_the_start(restore, tmp_path):
    """It would be one noise twice, and a note of the row would say so."""
    gray = save_gray(tmp_path / "gray.png", np.tile(np.arange(100, 148, dtype=np.uint8), (40, 1)))
    restore(gray, "--task", "denoising", "--sigma", 0.3, "--steps", 2)
    assert "resembles the noise" not in " ".join(rows(tmp_path / "out")[0]["advice"])


def test_a_simulation_is_scored(folder, restore, tmp_path):
    output = restore(folder / "000.png", "--simulate", "random-inpainting", "--samples", 3)
    (row,) = rows(tmp_path / "out")
    assert row["nfe"] == 6
    assert {"psnr", "ssim", "lpips", "psnr of the mean"} <= row.keys()
    assert "PSNR" in output
    assert size_of(tmp_path / "out" / "000_std.png") == (44, 36)


def test_a_folder_goes_on_after_a_broken_picture(folder, restore, tmp_path):
    (folder / "sub").mkdir()
    (folder / "000.png").rename(folder / "sub" / "a.png")
    (folder / "001b.jpg").write_bytes(b"no picture")
    out = tmp_path / "out"
    output = restore(folder, "--task", "denoising", code=1)
    assert says(output, "001b.jpg: no picture in a format that Pillow reads")
    names = sorted(p.relative_to(out).as_posix() for p in out.rglob("*_restored.png"))
    assert names == ["001_restored.png", "002_restored.png", "sub/a_restored.png"]
    assert [("error" in row) for row in rows(out)] == [False, True, False, False]
    assert says(output, "(est.)")


def test_png_with_16_bits(tmp_path):
    x = torch.rand(3, 5, 7, generator=torch.Generator().manual_seed(0)) * 2.4 - 1.2
    expected = (((x + 1) / 2).clamp(0, 1) * 65535).round().to(torch.int32).permute(1, 2, 0).numpy()
    write_picture(tmp_path / "gray.png", x[:1], "png16")
    np.testing.assert_array_equal(pixels(tmp_path / "gray.png"), expected[:, :, 0])
    write_picture(tmp_path / "rgb.png", x, "png16")
    data = (tmp_path / "rgb.png").read_bytes()
    body = data[data.index(b"IDAT") + 4 : data.index(b"IEND") - 8]
    raw = np.frombuffer(zlib.decompress(body), np.uint8).reshape(5, -1)[:, 1:].copy()
    np.testing.assert_array_equal(raw.view(">u2").reshape(5, 7, 3), expected)


def test_torchrun_shares_a_folder(folder, restore, model_file, tmp_path):
    words = [folder, "--task", "denoising", "--sigma", 0.1, "--steps", 1, "--model", model_file, "--out"]
    run_two_processes("-m", "firm", "restore", *words, tmp_path / "two")
    restore(*words, tmp_path / "one")
    assert [row["picture"] for row in rows(tmp_path / "two")] == [row["picture"] for row in rows(tmp_path / "one")]
    for i in range(3):
        name = f"00{i}_restored.png"
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
    assert not list((tmp_path / "two").glob("restore.*.json"))


@pytest.mark.parametrize("kind", ["--task", "--simulate"])
def test_one_line_says_what_was_done_and_where_to_look(folder, restore, tmp_path, kind):
    output, out = restore(folder, kind, "denoising", "--sigma", "25/255"), tmp_path / "out"
    last = next(line for line in reversed(output.splitlines()) if line.strip())
    assert last.startswith("3 pictures restored by denoising in ")
    noise = "noise of 25 of 255 levels" if kind == "--task" else "noise 0.196 in [-1, 1] = 25/255"
    assert f"{noise}; see before and after in {out / '000_compare.png'}" in last
    assert rows(out)[0]["sigma"] == 0.19608
