"""The task microscopy: the noise of its measurements, what training draws, and what a stack says of its counts."""

import numpy as np
import pytest
import torch
from helpers import rand

import firm
from firm.noise import PoissonGaussian
from firm.restoration.reading import ProblemError, picture_settings
from firm.tasks import Rows


def test_measurements_have_photon_and_read_noise():
    task = firm.Task("microscopy", 64, gain=0.1, read=0.05)
    x = torch.linspace(-1, 0.8, 4)[:, None, None, None].expand(4, 1, 64, 64)
    op, y = task.measure(x, seed=1)
    for i in range(4):
        expected = (0.1 * (float(x[i, 0, 0, 0]) + 1) + 0.05**2) ** 0.5
        assert float((y - op.A(x))[i].std()) == pytest.approx(expected, rel=0.06)
    assert isinstance(task.noise_for(x), PoissonGaussian)


def test_training_draws_gain_and_read_noise_for_every_sample():
    task = firm.Task("microscopy", 16, gain=[0.002, 0.5], read=[0.005, 0.2])
    torch.manual_seed(0)
    _, y, noise = task.draw(rand(64, 1, 16, 16), Rows(64, 0, 64))
    for drawn, low, high in ((noise.gain, 0.002, 0.5), (noise.sigma, 0.005, 0.2)):
        assert low <= float(drawn.min()) < 3 * low < high / 3 < float(drawn.max()) <= high
    assert y.shape == (64, 1, 16, 16)


def test_the_settings_of_a_stack_are_counts():
    kind, values = picture_settings("microscopy", gain=3.5, read=12, offset=-100)
    assert (kind.name, values) == ("microscopy", {"gain": 3.5, "read": 12, "offset": -100})
    assert picture_settings("microscopy", kernel="psf.png", gain=3.5)[1] == {"gain": 3.5}
    with pytest.raises(ProblemError, match="gain"):
        picture_settings("microscopy", gain=0)
    with pytest.raises(ValueError, match="offset"):
        firm.Task("microscopy", 16, offset=3)  # images have no other black


def test_a_point_spread_function_may_come_with_it():
    y = rand(1, 1, 20, 20)
    op, same, rim = type(firm.Task("microscopy", 16)).from_picture(y, {})
    assert (op.A(y) is y or torch.equal(op.A(y), y), same is y, rim) == (True, True, 0)
    psf = torch.from_numpy(np.outer([1, 2, 1], [1, 2, 1]) / 16).float()
    op, _, rim = type(firm.Task("microscopy", 16)).from_picture(y, {}, psf)
    assert (tuple(op.A(torch.zeros(1, 1, 22, 22)).shape), rim) == ((1, 1, 20, 20), 1)
