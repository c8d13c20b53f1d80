"""Convolution of volumes: the checks of all operators, scipy, a dense solve, and a restored volume."""

import numpy as np
import pytest
import torch
from helpers import dense_solve, randn, relative_error
from scipy import ndimage, signal
from torch.autograd import gradcheck

import firm
from firm.operators import Convolution, data_consistency, dot_test, operator_norm, prox_test

SIZES = [((3, 3, 3), (5, 6, 7)), ((2, 4, 3), (4, 5, 6)), ((1, 5, 2), (3, 8, 5))]  # odd and even, kernel and volume


def kernel(*size):
    return torch.rand(size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("boundary", ["circular", "valid"])
@pytest.mark.parametrize(("k", "size"), SIZES)
def test_the_checks_of_all_operators_and_a_dense_solve(k, size, boundary):
    op = Convolution(kernel(*k), boundary=boundary)
    assert op.closed_form is (boundary == "circular")
    for shape in ((2, *size), (2, 1, *size)):
        dot_test(op, shape, dtype=torch.float64)
        prox_test(op, shape, 0.1, dtype=torch.float64)
        prox_test(op, shape, torch.tensor([0.1, 3.0]), dtype=torch.float64)
    z = randn(1, *size, dtype=torch.float64)
    y = op.A(randn(1, *size, seed=1, dtype=torch.float64))
    assert relative_error(data_consistency(op, z, y, 0.05), dense_solve(op, z, y, 0.05)) < 1e-8


@pytest.mark.parametrize(("k", "size"), SIZES)
def test_it_is_the_convolution_of_scipy(k, size):
    psf, x = kernel(*k), randn(1, *size, dtype=torch.float64)
    valid = Convolution(psf, boundary="valid").A(x)[0]
    np.testing.assert_allclose(valid.numpy(), signal.convolve(x[0].numpy(), psf.numpy(), "valid"), atol=1e-10)
    around = ndimage.convolve(x[0].numpy(), psf.numpy(), mode="wrap")
    np.testing.assert_allclose(Convolution(psf).A(x)[0].numpy(), around, atol=1e-10)


def test_its_norm_and_derivatives():
    op = Convolution(kernel(3, 3, 3) / kernel(3, 3, 3).sum())
    assert operator_norm(op, torch.zeros(1, 4, 5, 6, dtype=torch.float64)) == pytest.approx(1)  # a constant volume's
    z, y = (randn(1, 3, 4, 3, seed=s, dtype=torch.float64).requires_grad_() for s in (0, 1))
    assert gradcheck(lambda z, y: data_consistency(op, z, y, 0.1), (z, y))


class Near(torch.nn.Module):
    """An estimator that smooths, and remembers what it was called with."""

    config = {"channels": 1}  # noqa: RUF012

    def forward(self, x, x_t, t):
        self.seen = tuple(x.shape)
        return torch.nn.functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False)


@pytest.mark.parametrize("boundary", ["circular", "valid"])
def test_a_volume_is_restored_by_a_model_for_pictures(boundary):
    plane = torch.outer(torch.linspace(0, 3, 20).cos(), torch.linspace(0, 2, 16).cos())
    x = torch.tensor([0.5, -0.5, 0.9, 0.1, -0.9, 0.3]).reshape(1, 6, 1, 1) * plane  # smooth in every slice
    psf = Convolution(torch.tensor([0.25, 0.5, 0.25]).reshape(3, 1, 1), boundary=boundary)
    y = psf.A(x)
    net = Near()
    r = firm.restore(firm.Firm(net, firm.Solver(K=20)), psf, y, steps=1, seed=5)
    assert (r.image.shape, net.seen) == (x.shape, (6, 1, 20, 16))  # its slices are the network's batch
    inside = slice(1, 5)
    before = y if boundary == "valid" else y[:, inside]
    assert relative_error(r.image[:, inside], x[:, inside]) < 0.8 * relative_error(before, x[:, inside])


def test_what_it_does_not_take():
    with pytest.raises(ValueError, match=r"kernel must be \(d, h, w\), got"):
        Convolution(torch.ones(3, 3))
    with pytest.raises(ValueError, match="boundary must be"):
        Convolution(torch.ones(1, 3, 3), boundary="mirror")
    with pytest.raises(ValueError, match="no smaller than the kernel"):
        Convolution(torch.ones(5, 3, 3)).A(torch.zeros(1, 4, 8, 8))
