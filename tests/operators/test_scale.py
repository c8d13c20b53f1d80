"""The norm of A, and the warning where it is far from 1."""

import warnings

import pytest
import torch
from helpers import Shrink, rand

import firm
from firm.operators import (
    Blur,
    Downsample,
    Fourier,
    Identity,
    Mask,
    Subsample,
    from_functions,
    gaussian_kernel,
    operator_norm,
    random_mask,
)


def matrix(rows, columns, seed=0):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) / columns**0.5


def projections(m):
    return from_functions(lambda x: x.flatten(1) @ m.T, image_shape=(1, 8, 8))


@pytest.mark.parametrize("factor", [1.0, 55.0, 0.02])
def test_it_is_the_largest_singular_value(factor):
    m = factor * matrix(40, 64)
    found, exact = operator_norm(projections(m), (1, 1, 8, 8), iterations=60), float(torch.linalg.matrix_norm(m, 2))
    assert found == pytest.approx(exact, rel=1e-3)
    assert 0.8 * exact < operator_norm(projections(m), (1, 1, 8, 8)) <= exact * (1 + 1e-6)


def test_operators_of_norm_one():
    mask = random_mask((16, 16), 0.7, torch.Generator().manual_seed(0))
    assert operator_norm(Mask(mask), (2, 3, 16, 16)) == pytest.approx(1)
    assert 0.6 < operator_norm(Blur(gaussian_kernel(9, 1.5)), (1, 3, 32, 32)) <= 1 + 1e-6
    assert operator_norm(projections(torch.zeros(40, 64)), (1, 1, 8, 8)) == 0


KNOWN = {
    "identity": Identity(),
    "mask": Mask(0.3 + rand(3, 8, 8)),
    "masks": Mask(rand(2, 1, 8, 8)),
    "blur": Blur(rand(3, 5)),
    "fourier": Fourier(rand(8, 8)),
    "fourier of complex images": Fourier(rand(8, 8), complex_images=True),
    "subsample": Subsample(2),
    "downsample": Downsample(2, rand(3, 3)),
    "valid blur": Blur(rand(3, 3), boundary="valid"),  # found by iterations
}


@pytest.mark.parametrize("op", KNOWN.values(), ids=KNOWN)
def test_operators_know_their_norm(op):
    dtype = torch.complex64 if getattr(op, "complex_images", False) else torch.float32
    many = 2 if op is KNOWN["masks"] else 1
    basis = torch.eye(192, dtype=dtype).reshape(192, 1, 3, 8, 8).expand(-1, many, -1, -1, -1)
    columns = torch.stack([op.A(x) for x in basis])  # of the dense matrix, for each sample
    if columns.is_complex() and not dtype.is_complex:
        columns = torch.view_as_real(columns)
    exact = max(float(torch.linalg.matrix_norm(columns[:, b].flatten(1).T, 2)) for b in range(many))
    assert operator_norm(op, torch.zeros(many, 3, 8, 8, dtype=dtype), iterations=200) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize(("factor", "heard"), [(0.01, True), (0.5, False), (1.0, False), (10.0, True)])
def test_restoring_warns_where_it_is_far_from_one(factor, heard):
    model, op = firm.Firm(Shrink(), firm.Solver()), Mask(factor * torch.ones(1, 8, 8))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        firm.restore(model, op, factor * rand(1, 1, 8, 8), sigma=0.1)
    told = f"the norm of A is about {factor:.3g}, and FIRM is made for one of about 1"
    assert any(str(warning.message).startswith(told) for warning in said) == heard
