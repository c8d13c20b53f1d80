"""Total variation of the CT comparison, against another optimizer; slices as attenuation."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from experiments.ct.total_variation import divergence, gradient, objective, total_variation
from firm.operators import Radon


def test_the_divergence_is_the_negative_adjoint_of_the_gradient():
    generator = torch.Generator().manual_seed(0)
    x, q = torch.randn(1, 1, 5, 7, generator=generator), torch.randn(2, 1, 1, 5, 7, generator=generator)
    assert float((gradient(x) * q).sum()) == pytest.approx(-float((x * divergence(q)).sum()), rel=1e-5)


@pytest.mark.parametrize("weight", [0.3, 3.0])
def test_total_variation_finds_the_minimum_that_a_bounded_newton_method_finds(weight):
    op = Radon([i * math.pi / 4 for i in range(4)], 6).double()
    generator = torch.Generator().manual_seed(0)
    truth = torch.full((1, 1, 6, 6), -1.0, dtype=torch.float64)
    truth[..., 1:4, 2:5] = 0.5
    y = op.A(truth)
    W = torch.rand(y.shape, generator=generator, dtype=torch.float64) * 3 + 0.5
    y = y + torch.randn(y.shape, generator=generator, dtype=torch.float64) / W
    found = total_variation(op, y, W, weight, torch.zeros_like(truth), 1500)

    def smoothed(v):
        x = torch.from_numpy(v).reshape(1, 1, 6, 6).requires_grad_()
        variation = (gradient(x).square().sum(0) + 1e-10).sqrt().sum()
        value = (W * (op.A(x) - y)).square().sum() / 2 + weight * variation
        value.backward()
        return float(value.detach()), x.grad.flatten().numpy()

    other = minimize(smoothed, np.zeros(36), jac=True, method="L-BFGS-B", bounds=[(-1, 1)] * 36,
                     options=dict(maxiter=5000, maxfun=10000, ftol=1e-14, gtol=1e-9))  # fmt: skip
    mine = objective(op, y, W, weight, found)
    assert mine <= other.fun * (1 + 1e-3)
    assert float(found.min()) >= -1
