"""``--task file.py:Class``: real measurements, pictures and arrays, of a task of the user's own."""

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import rand, says
from PIL import Image

import firm
from firm._util.checks import image_size
from firm.restoration import Problem, ProblemError
from firm.restoration.calibration import Calibration, TaskScale, save
from restoration_helpers import rows

OWN = str(Path(__file__).parent / "instruments.py")


def measured(path, name, **more):
    """The problem of a file with a task of `instruments.py`."""
    settings = more.pop("settings", {})
    return Problem.from_measurement(path, f"{OWN}:{name}", settings, **more)


def saved(path, y):
    """An array as it is, or a picture in [-1, 1], (C, H, W)."""
    if path.suffix == ".npy":
        np.save(path, y)
    elif path.suffix == ".npz":
        np.savez(path, y)
    else:
        pixels = ((torch.as_tensor(y) + 1) * 127.5).round().byte()
        Image.fromarray(pixels.permute(1, 2, 0).squeeze(2).numpy()).save(path)
    return path


def grid(*shape):
    """Random pixels that a picture of 8 bits holds exactly."""
    return (rand(*shape) * 255).round() / 127.5 - 1


# What y is, and how large the image


@pytest.mark.parametrize(("leave_out", "ending"), [(0, ".npy"), (1, ".npz")])
def test_an_array_is_y_as_it_is(tmp_path, leave_out, ending):
    task = firm.Task(f"{OWN}:Scan", (12, 10), sigma=0)
    x = rand(1, 3, 12, 10)
    y = task.operator().A(x)
    p = measured(saved(tmp_path / f"y{ending}", y.numpy()[(0,) * leave_out].astype(np.complex128)), "Scan")
    assert p.y.dtype == torch.complex64
    torch.testing.assert_close(p.y, y)
    torch.testing.assert_close(p.op.A(x), y)
    assert (p.array, p.complex, p.truth, p.value_range) == (True, False, None, None)
    assert p.shown.shape == (1, 3, 12, 10)  # A'y: what was measured is no picture


def test_the_size_follows_from_the_adjoint(tmp_path):
    """Of a window, y has 8x16 pixels of an image of 12x20, and that is what the task must be made for."""
    x = rand(1, 3, 12, 20)
    y = (torch.linspace(0.5, 1.5, 12)[:, None] * x)[..., 2:-2, 2:-2]
    p = measured(saved(tmp_path / "y.npy", y[0].numpy()), "Window")
    assert p.op.A_adjoint(p.y).shape == (1, 3, *p.op.made_for) == (1, 3, 12, 20)
    torch.testing.assert_close(p.op.A(x), y)
    torch.testing.assert_close(p.y, y)


def test_a_vector_needs_the_size(tmp_path):
    x = rand(1, 3, 12, 10)
    file = saved(tmp_path / "y.npy", x.sum(3).flatten().numpy() / 3)
    with pytest.raises(ProblemError, match=r"\(36,\) values do not tell the size of the image: give it with --size"):
        measured(file, "Sums")
    p = measured(file, "Sums", size=(12, 10))
    torch.testing.assert_close(p.op.A(x), p.y)


def test_a_complex_image_is_known_by_its_operator(tmp_path):
    file = saved(tmp_path / "y.npy", np.full((2, 12, 10), 1 + 2j))
    p = measured(file, "Scan", channels=4, settings={"images": "complex"})
    assert p.complex
    assert p.op.A_adjoint(p.y).shape == (1, 4, 12, 10)
    assert p.shown.shape == (1, 2, 12, 10)
    real = measured(saved(tmp_path / "real.npy", np.ones((3, 4, 4))), "Scan")  # may be a complex measurement, too
    assert real.y.dtype == torch.complex64


# Pictures


def test_a_picture_is_measured_in_all_its_channels(tmp_path):
    y = grid(3, 8, 16)
    p = measured(saved(tmp_path / "y.png", y), "Window")
    torch.testing.assert_close(p.y[0], y)
    torch.testing.assert_close(p.shown[0], y)
    assert p.op.A_adjoint(p.y).shape == (1, 3, 12, 20)
    assert (p.array, p.gray, p.sigma, p.settings["estimated"]) == (False, False, 0.03, False)


def test_a_gray_picture_has_independent_noise_in_three_channels(tmp_path):
    """As one that was simulated with the same task."""
    y = grid(1, 64, 64)
    p = measured(saved(tmp_path / "y.png", y), "Window", settings={"rim": 0})
    same = Problem.simulated(tmp_path / "y.png", f"{OWN}:Window", {"rim": 0})
    assert (p.gray, p.sigma, p.noise_factor) == (True, same.sigma, same.noise_factor)
    torch.testing.assert_close(p.y.mean(1), y)
    assert float(p.y.std(1).mean()) > 0


def test_a_mosaic_is_gray_and_its_image_in_color(tmp_path):
    y = grid(1, 8, 9)
    p = measured(saved(tmp_path / "y.png", y), "Mosaic")
    torch.testing.assert_close(p.y[0], y)
    assert not p.gray
    assert p.op.A_adjoint(p.y).shape == (1, 3, 8, 9)
    with pytest.raises(ProblemError, match=r"measures one channel, and the picture has colors$"):
        measured(saved(tmp_path / "c.png", grid(3, 8, 9)), "Mosaic")


def test_a_model_for_gray_restores_the_channels_one_by_one(tmp_path):
    y = grid(3, 8, 16)
    p = measured(saved(tmp_path / "y.png", y), "Window", channels=1)
    torch.testing.assert_close(p.y[:, 0], y)
    assert p.finish(p.op.A_adjoint(p.y)).shape == (1, 3, 12, 20)


def test_transparency_is_kept_where_the_image_has_the_size_of_the_picture(tmp_path):
    pixels = (rand(8, 16, 4) * 255).byte().numpy()
    Image.fromarray(pixels).save(tmp_path / "y.png")
    for rim, kept in ((0, True), (2, False)):
        p = measured(tmp_path / "y.png", "Window", settings={"rim": rim})
        assert (p.alpha is not None) == kept
        assert p.notes == (() if kept else ("the picture's transparency is lost: the image is larger",))


def test_the_librarys_tasks_may_be_named_like_ones_own(tmp_path):
    p = Problem.from_measurement(saved(tmp_path / "y.npy", ONES), "firm.tasks.denoising:Denoising", {})
    card = {"trained_for": [{"name": "denoising", "sigma": [0.05, 0.4]}]}
    assert (p.settings["task"], firm.advice(card, p)) == ("denoising", [])


# What is refused

ONES = np.ones((3, 8, 16), np.float32)
WRONG = [
    ("Window", {}, ONES + 1j, "measures real values, and the file holds complex ones$"),
    ("Window", {}, ONES.astype(np.uint16), "holds uint16; a measurement is taken as it is.* save floats$"),
    ("Window", {}, np.where(ONES > 0, np.nan, 1), "NaN or infinite values$"),
    ("Window", {}, ONES[:2], r"measures \(1, 3, 8, 16\) of an image \(1, 3, 12, 20\), .*\(1, 2, 8, 16\)"),
    ("Window", {}, ONES.transpose(1, 2, 0), "taken to have .* --size gives another size; arrays have their channels"),
    ("Window", {"rim": "x"}, ONES, "rim must be a whole number, got .x.$"),  # --size would not help
    ("Square", {}, ONES, r"ValueError: the sensor has 32x32 pixels \(.* to have 16x8 pixels: --size gives"),
    ("Scan", {}, grid(3, 8, 16), "measures what no picture can hold: give an array file"),
    ("Scan", {"sigma": 7}, ONES, "sigma must be from 0 to 2"),
    ("Scan", {"sigma": (0.1, 0.2)}, ONES, "a range is for training; sigma must be one value here"),
    ("Nothing", {}, ONES, "nothing: what A returns must be a torch tensor, got NoneType"),
    ("NoOperator", {}, ONES, "the error is in your task NoOperator, .*: operator returned None; it must return"),
]


@pytest.mark.parametrize(("task", "settings", "y", "message"), WRONG)
def test_what_is_wrong_with_a_measurement_or_its_task_is_told(tmp_path, task, settings, y, message):
    file = saved(tmp_path / ("y.png" if isinstance(y, torch.Tensor) else "y.npy"), y)
    with pytest.raises(ProblemError, match=message):
        measured(file, task, settings=settings)


def test_sizes():
    assert (image_size("32"), image_size("192x128")) == ((32, 32), (128, 192))
    for text in ("0", "3x", "1x2x3", "-4"):
        with pytest.raises(ValueError, match="--size takes the side of a square image, or WIDTHxHEIGHT"):
            image_size(text)


# The command


def test_the_command_gives_what_python_gives(restore, model_file, tmp_path):
    task, out = firm.Task(f"{OWN}:Window", (36, 44), rim=3, sigma=0.1), tmp_path / "out"
    op, y = task.measure(rand(1, 3, 36, 44) * 2 - 1)
    file = saved(tmp_path / "y.npy", y[0].numpy())
    words = ["--task", f"{OWN}:Window", "--set", "rim=3", "--sigma", 0.1, "--seed", 4, "--samples", 2]
    restore(file, *words, "--precision", "float32")
    model = firm.tiled(firm.fast(firm.load(model_file), "float32"))
    r = firm.restore(model, op, y, 1, 2, seed=4, sigma=0.1)
    np.testing.assert_allclose(np.load(out / "y_restored.npy"), r.image[0], atol=1e-5)
    np.testing.assert_allclose(np.load(out / "y_mean.npy"), r.mean[0], atol=1e-5)
    (row,) = rows(out)
    assert (row["task"], row["rim"], row["sigma"], row["estimated"]) == (f"{OWN}:Window", 3, 0.1, False)
    assert row["advice"] == ["the model was not trained for Window"]


def test_the_command_with_a_size(restore, tmp_path):
    words = [saved(tmp_path / "y.npy", np.zeros(3 * 24, np.float32)), "--task", f"{OWN}:Sums"]
    assert says(restore(*words, code=2), "give it with --size")
    told = restore(*words, "--max-megapixels", 1e-5, code=2)
    assert says(told, "(72,) values are more than 1e-05 megapixels in three channels")
    restore(*words, "--size", "32x24")
    assert np.load(tmp_path / "out" / "y_restored.npy").shape == (3, 24, 32)
    assert says(restore(*words, "--size", "40x24", code=2), "is a result of a run with other settings")


def test_a_calibration_of_the_task_is_found(restore, model_file, tmp_path):
    fingerprint = firm.load(model_file).fingerprint()
    scale = TaskScale({"measured": 2.0, "missing": 2.0}, {"rim": 2}, 0.8, 0.9)
    words = [saved(tmp_path / "y.npy", ONES / 2), "--task", f"{OWN}:Window", "--samples", 2]
    for name, code in (("window", 0), ("scan", 2)):
        save(tmp_path / "scale.json", [Calibration(fingerprint, 1, 2, 2, 4, {name: scale})])
        output = restore(*words, "--calibration", tmp_path / "scale.json", "--out", tmp_path / name, code=code)
    assert says(output, "there is no scale for window, only for scan")
