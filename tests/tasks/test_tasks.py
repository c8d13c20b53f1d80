"""Tasks of the paper: their settings, masks, noise and measurements, and what is refused."""

import math
from pathlib import Path

import pytest
import torch

import firm
from firm.operators import dot_test
from firm.tasks import Rows, built_in

OWN = f"{Path(__file__).parent / 'own_tasks.py'}"
NAMES = pytest.mark.parametrize("name", [name for name in built_in() if name != "mri"])  # complex: see test_mri.py
OTHERWISE = (
    "mri",
    "clipping",
    "ct",
    "microscopy",
    "jpeg",
    "camera-denoising",
    "poisson-denoising",
    "poisson-inpainting",
)  # noise is not added
ADDED = pytest.mark.parametrize("name", [name for name in built_in() if name not in OTHERWISE])


def images(n=3, size=32, seed=0):
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(seed)) * 2 - 1


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("denoising", [{"sigma": 0.2}] * 2),
        ("deblurring", [{"sigma": 0.05, "blur": blur, "kernel_size": 61} for blur in (1.0, 3.0)]),
        ("super-resolution", ({"sigma": 0.05, "factor": 2}, {"sigma": 0.05, "factor": 4})),
        ("random-inpainting", [{"sigma": 0.01, "missing": 0.7}] * 2),
        ("box-inpainting", ({"sigma": 0.05, "box": 40}, {"sigma": 0.05, "box": 80})),
        ("fourier", ({"sigma": 0.002, "lines": 28}, {"sigma": 0.002, "lines": 56})),
    ],
)
def test_settings_are_the_papers(name, settings):
    for size, expected in zip((128, 256), settings, strict=True):
        task = firm.Task(name, size)
        assert {key: getattr(task, key) for key in expected} == expected


def test_the_shared_mask_is_the_protocols():
    assert int(firm.Task("random-inpainting", 128).operator().mask.sum()) == 4827
    assert int(firm.Task("random-inpainting", 256).operator().mask.sum()) == 19559
    assert float(firm.Task("fourier", 256).operator().mask.mean()) == 0.21875


@NAMES
def test_measurements_do_not_depend_on_the_batch(name):
    x = images(5)
    for mask in ("shared", "fresh") if name in ("random-inpainting", "fourier") else (None,):
        task = firm.Task(name, 32, mask=mask)
        op, y = task.measure(x, seed=1, index=10)
        for i in range(5):
            op_i, y_i = task.measure(x[i : i + 1], seed=1, index=10 + i)
            assert torch.equal(y_i[0], y[i])
            torch.testing.assert_close(op_i.A(x[i : i + 1])[0], op.A(x)[i])
        random = name != "jpeg"  # in which nothing is drawn
        assert torch.equal(task.measure(x, seed=2, index=10)[1], y) != random
        assert torch.equal(task.measure(x, seed=1, index=11)[1], y) != random


def test_measurements_do_not_depend_on_the_default_device():
    task, x = firm.Task("random-inpainting", size=16), torch.zeros(2, 3, 16, 16)
    with torch.device("meta"):
        elsewhere = task.measure(x)[1]
    assert torch.equal(elsewhere, task.measure(x)[1])


@ADDED
def test_the_noise_has_the_stated_level_everywhere(name):
    task = firm.Task(name, 64, sigma=0.3)
    x = images(8, size=64)
    op, y = task.measure(x)
    noise = y - op.A(x)
    assert float(noise.abs().square().mean().sqrt()) == pytest.approx(0.3, rel=0.02)  # masked entries too
    if name == "fourier":
        assert float(noise.real.std()) == pytest.approx(0.3 / math.sqrt(2), rel=0.02)


@NAMES
def test_operators_are_sound(name):
    op = firm.Task(name, 32).operator()
    assert dot_test(op, (2, 3, 32, 32)) < 1e-5


def test_fresh_masks_differ_between_images_and_shared_ones_do_not():
    x = images(2)
    fresh, _ = firm.Task("random-inpainting", 32, mask="fresh").measure(x)
    assert fresh.mask.shape == (2, 1, 32, 32)
    assert not torch.equal(fresh.mask[0], fresh.mask[1])
    shared, _ = firm.Task("random-inpainting", 32).measure(x, seed=7, index=3)
    assert torch.equal(shared.mask, firm.Task("random-inpainting", 32).operator().mask)


def test_fourier_masks_of_training_keep_the_lowest_frequencies():
    """As those of the protocol: 8 % of the columns, zero frequency in their middle, whatever else is drawn."""
    torch.manual_seed(0)
    task = firm.Task("fourier", 64, mask="fresh", lines=[6, 30])
    columns = task.draw_operator(Rows(200, 0, 200), torch.device("cpu")).mask[:, 0, 0]
    assert columns[:, [0, 1, 2, -1, -2]].all()  # int(0.08 * 64) = 5 of them
    assert torch.equal(columns[:, 1:], columns[:, 1:].flip(1))  # symmetric: k and -k
    assert {6, 30} <= set(columns.sum(1).int().tolist()) <= set(range(6, 31))
    assert columns[:, 3:32].mean(0).max() < 0.5  # none of the others is favored


def test_every_parameter_is_open():
    x = images(1, size=48)
    assert firm.Task("super-resolution", 48, factor=5).measure(x)[1].shape == (1, 3, 10, 10)
    assert int((firm.Task("box-inpainting", 48, box=7).operator().mask == 0).sum()) == 49
    kept = firm.Task("random-inpainting", 48, missing=0.2).operator().mask.mean()
    assert float(kept) == pytest.approx(0.8, abs=0.05)
    assert firm.Task("deblurring", 48, blur=2.0, kernel_size=9).operator().kernel.shape == (9, 9)
    assert int(firm.Task("fourier", 48, lines=12).operator().mask[0].sum()) == 12
    _, y = firm.Task("denoising", 48, sigma=0.0).measure(x)
    assert torch.equal(x, y)


def test_a_range_is_measured_at_the_papers_value_or_at_its_nearest_end():
    for ends, sigma in (([0.01, 0.05], 0.05), ([0.3, 0.5], 0.3), ([0.1, 0.3], 0.2), ([0.2, 0.2], 0.2)):
        task = firm.Task("denoising", 64, sigma=ends)
        x = images(4, size=64)
        _, y = task.measure(x)
        assert task.sigma == sigma
        assert float((y - x).std()) == pytest.approx(sigma, rel=0.02)
    box = firm.Task("box-inpainting", 128, box=[24, 32])
    assert (box.box, type(box.box), box.ranges) == (32, int, {"box": (24, 32)})
    assert firm.Task("denoising", 8, sigma=["1e-3", "2e-1"]).ranges == {"sigma": (0.001, 0.2)}  # to YAML these are text
    assert box != firm.Task("box-inpainting", 128, box=32)
    with pytest.raises(ValueError, match="a range is for training; box must be one value"):
        box.require_values()


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("debluring", {}, "no task 'debluring'; there are denoising, deblurring"),
        ("denoising", {"factor": 2}, "the task denoising has no setting 'factor'; it has sigma"),
        ("denoising", {"sigma": -0.1}, "sigma, the noise level.*, must be 0 or more"),
        ("deblurring", {"kernel_size": (5, 9)}, "kernel_size cannot be a range"),
        ("deblurring", {"kernel_size": 5.5}, "must be a whole number, got 5.5"),
        ("deblurring", {"blur": (2, 1)}, r"a number or a range \[low, high\]"),
        ("deblurring", {"blur": ((1, 2), 3)}, r"a number or a range \[low, high\]"),
        ("deblurring", {"blur": (0, 2)}, "must be above 0, got 0"),
        ("deblurring", {"blur": "wide"}, "blur must be a number, got 'wide'"),
        ("random-inpainting", {"missing": (0.5, 1.0)}, "share of pixels lost, must be 0 or more and below 1"),
        ("random-inpainting", {"mask": "new"}, "must be shared or fresh"),
        (f"{OWN}:Gain", {"power": 5}, "1 or more and at most 4, got 5"),
        (f"{OWN}:Gain", {"note": 5}, "must be text, got 5"),
        (f"{OWN}:NoBuild", {}, "must define build"),
    ],
)
def test_settings_that_are_refused(name, settings, message):
    with pytest.raises(ValueError, match=message):
        firm.Task(name, **{"size": 8, **settings}).operator()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x: x.numpy(), r"x must be a torch tensor, got a NumPy array: torch\.from_numpy makes"),
        (lambda x: x.to_sparse(), "x must be a dense tensor"),
        (lambda x: x.to("meta"), "must be floats with values, .* on meta"),
        (lambda x: x.int(), "must be floats with values, got torch.int32"),
        (lambda x: x[..., :16], r"images of shape \(3, 3, 32, 16\), expected \(B, C, 32, 32\)"),
    ],
)
def test_what_cannot_be_measured(wrong, message):
    with pytest.raises(ValueError, match=message):
        firm.Task("denoising", 32).measure(wrong(images()))


def test_names_of_classes_and_what_is_no_name():
    class MRI(firm.tasks.BaseTask):
        pass

    class SparseViewCT2D(firm.tasks.BaseTask):
        pass

    assert (MRI.name, SparseViewCT2D.name) == ("mri", "sparse-view-ct2-d")
    with pytest.raises(TypeError, match="a class of your own is called itself"):
        firm.Task(MRI)
