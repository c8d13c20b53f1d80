"""Measurements as they were before tasks became one class a file (commit 220285f): published numbers depend on them."""

import pytest
import torch

import firm
from firm.tasks import Rows
from firm.training.config import TrainConfig
from firm.training.objectives import Batch

# (task, size, seed, index, settings): some entries of y, and the sum of their magnitudes
FROZEN = {
    ("denoising", 16, 42, 0, ""): (0.0455578, -0.285108, 0.679551, 0.643339, 983.207),
    ("denoising", 32, 7, 5, ""): (0.0114678, 0.262615, 0.839537, -1.18589, 3995.31),
    ("denoising", (24, 32), 42, 3, ""): (0.161199, -0.891503, -0.432049, 0.761771, 2988.61),
    ("deblurring", 16, 42, 0, ""): (0.0321827, -0.377449, 0.637597, 0.490283, 831.99),
    ("deblurring", 32, 7, 5, ""): (-0.13005, 0.278251, 0.15449, -0.283707, 2670.23),
    ("deblurring", (24, 32), 42, 3, ""): (-0.0189715, -0.579354, -0.190749, 0.231497, 1987.07),
    ("super-resolution", 16, 42, 0, ""): (0.0113895, -0.580025, 0.915327, 0.660889, 244.249),
    ("super-resolution", 32, 7, 5, ""): (0.00286694, 0.303318, 0.965911, -0.927373, 978.809),
    ("super-resolution", (24, 32), 42, 3, ""): (0.0402997, -0.926903, -0.564449, 0.735339, 735.447),
    ("random-inpainting", 16, 42, 0, ""): (0.00227789, 0.0182729, -0.0135142, 0.000794606, 300.863),
    ("random-inpainting", 32, 7, 5, ""): (0.000573389, 0.301371, -0.00581273, -1.0088, 1178.68),
    ("random-inpainting", (24, 32), 42, 3, ""): (0.00805994, -0.852383, 0.00730836, 0.952138, 905.057),
    ("random-inpainting", 16, 42, 2, "fresh"): (8.68159e-05, 0.0158625, -3.97005e-05, 0.0020703, 324.635),
    ("box-inpainting", 16, 42, 0, ""): (0.0113895, -0.559202, 0.882265, 0.63142, 883.36),
    ("box-inpainting", 32, 7, 5, ""): (0.00286694, 0.293212, 0.926728, -1.04608, 3558.24),
    ("box-inpainting", (24, 32), 42, 3, ""): (0.0402997, -0.860619, -0.541674, 0.91206, 2707.74),
    ("fourier", 16, 42, 0, ""): (0.00438265, 0.0157566, 0.0736683, -0.00105241, 25.8276),
    ("fourier", 32, 7, 5, ""): (0.0948462, -0.045927, 0.122544, -0.0131789, 175.254),
    ("fourier", (24, 32), 42, 3, ""): (0.0649204, -0.0189229, -0.0129047, -0.0260138, 123.502),
    ("fourier", 16, 42, 2, "fresh"): (0.00407278, 0.0123924, 0.0714592, -0.000103807, 20.9574),
    ("stroke-inpainting", 16, 42, 0, ""): (0.00227789, -0.632294, 0.936322, 0.628242, 856.993),
    ("stroke-inpainting", 32, 7, 5, ""): (0.000573389, 0.301371, 0.949979, -1.0088, 3340.2),
    ("stroke-inpainting", (24, 32), 42, 3, ""): (0.00805994, -0.852383, -0.570908, 0.952138, 2591.04),
    ("stroke-inpainting", 16, 42, 2, "fresh"): (8.68159e-05, -0.634704, 0.949796, 0.629517, 791.063),
}

MIXTURE = [
    {"name": "denoising", "sigma": [0.05, 0.4]},
    {"name": "deblurring", "blur": [0.5, 2.0], "sigma": [0.01, 0.1]},
    {"name": "super-resolution"},
    {"name": "random-inpainting", "missing": [0.4, 0.85]},
    {"name": "box-inpainting", "box": [3, 9]},
    {"name": "stroke-inpainting", "width": [2, 5]},
    {"name": "fourier", "lines": [4, 10]},
]
SIGMA = (0.137522, 0.38825, 0.0342592, 0.0788739, 0.05, 0.05, 0.01, 0.01, 0.05, 0.05, 0.01, 0.01, 0.002, 0.002)
DRAWN = {  # sums of |y| and of |A'y| of every sample
    "fresh": (
        (492.368, 523.742, 302.408, 295.163, 121.514, 121.505, 152.995, 213.81, 375.844, 375.74, 181.843, 225.502,
         98.4281, 93.8508),
        (492.368, 523.742, 187.632, 175.348, 121.514, 121.505, 148.87, 210.315, 368.327, 368.387, 177.801, 222.269,
         487.676, 486.117),
    ),
    "shared": (
        (492.368, 523.742, 302.408, 295.163, 121.514, 121.505, 142.569, 155.977, 462.656, 472.94, 425.671, 431.045,
         12.6796, 12.7543),
        (492.368, 523.742, 187.632, 175.348, 121.514, 121.505, 138.404, 151.449, 460.69, 471.904, 424.896, 430.311,
         40.1563, 40.6041),
    ),
}  # fmt: skip


def image(n, h, w):
    i = torch.arange(n * 3 * h * w, dtype=torch.float64).reshape(n, 3, h, w)
    return torch.sin(0.37 * i).float()


@pytest.mark.parametrize(("case", "expected"), FROZEN.items(), ids=lambda v: "-".join(map(str, v[:4])))
def test_the_protocols_measurements(case, expected):
    name, size, seed, index, mask = case
    h, w = (size, size) if isinstance(size, int) else size
    task = firm.Task(name, size, **({"mask": mask} if mask else {}))
    _, y = task.measure(image(2, h, w), seed, index)
    flat = torch.view_as_real(y).flatten(1) if y.is_complex() else y.flatten(1)
    m = flat.shape[1]
    found = (flat[0, 0], flat[0, m // 2], flat[1, m // 3], flat[1, -1], flat.double().abs().sum())
    assert [float(v) for v in found] == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("mask", ["fresh", "shared"])
def test_training_draws(mask):
    of_masks = ("missing", "width", "lines") if mask == "shared" else ()  # one mask has one value, the paper's
    entries = [{key: value for key, value in entry.items() if key not in of_masks} for entry in MIXTURE]
    tasks = TrainConfig(size=16, mixture=tuple(entries), mask=mask, network={"noise_level": True}).make_tasks()
    torch.manual_seed(11)
    op, y, sigma = Batch(image(14, 16, 16), torch.zeros(14), [Rows(4, 1, 3)] * 7, tasks).measure()
    assert sigma.tolist() == pytest.approx(SIGMA, rel=1e-5)
    measured, back = DRAWN[mask]
    assert y.double().abs().sum(1).tolist() == pytest.approx(measured, rel=1e-5)
    assert op.A_adjoint(y).double().abs().sum((1, 2, 3)).tolist() == pytest.approx(back, rel=1e-5)
