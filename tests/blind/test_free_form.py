"""Kernels of any form: the two steps beside dense solutions, and the whole on a picture with edges."""

import pytest
import torch
from torch.nn import functional as F

from blind_helpers import alike, blurred, hook, leaves
from firm.blind import free_form as module
from firm.blind.free_form import free_form


def dense(kernel, shape):
    """The matrix of the valid convolution of images of this shape, entry by entry."""
    rows = [blurred(e.reshape(1, 1, *shape), kernel, 0).flatten() for e in torch.eye(shape[0] * shape[1])]
    return torch.stack(rows, 1)


def test_the_gradients_are_the_dense_solution(monkeypatch):
    monkeypatch.setattr(module, "ITERATIONS", 300)
    g = torch.Generator().manual_seed(0)
    kernel, x = hook()[::2, ::2] + 0.01, torch.randn(2, 16, 18, generator=g)
    kernel = kernel[:5, :5] / kernel[:5, :5].sum()
    gamma, level = torch.rand(2, 16, 18, generator=g) + 0.05, 0.1
    y = torch.randn(2, 12, 14, generator=g)
    found = module._gradients_given(y, x, kernel, gamma, level)
    H = dense(kernel, (16, 18)).double()
    for c in range(2):
        M = H.T @ H / level + torch.diag(1 / gamma[c].flatten().double())
        solved = torch.linalg.solve(M, H.T @ y[c].flatten().double() / level)
        torch.testing.assert_close(found[c].flatten().double(), solved, atol=1e-3, rtol=1e-3)


def test_from_the_true_gradients_comes_the_true_kernel():
    x = torch.randn(2, 60, 60, generator=torch.Generator().manual_seed(0))
    y = blurred(x[None], hook(), 0)[0]
    kernel = torch.full((11, 11), 1 / 121)
    for _ in range(8):  # the matrix is approximate at the rim, the gradient is not
        kernel = module._kernel_given(y, x, kernel, torch.tensor(0.0))
    torch.testing.assert_close(kernel, hook(), atol=2e-3, rtol=0)


def test_the_fit_is_the_best_non_negative_one():
    """By the conditions of Karush, Kuhn and Tucker."""
    g = torch.Generator().manual_seed(0)
    A = torch.randn(40, 25, generator=g)
    G, c = A.T @ A, torch.randn(25, generator=g)
    k = module._non_negative(G, c, torch.full((25,), 0.04))
    slope = G @ k + c
    assert float(k.min()) >= 0
    assert float((k > 0).sum()) > 3
    assert float((k == 0).sum()) > 3
    assert float(slope[k > 0].abs().max()) < 1e-3
    assert float(slope[k == 0].min()) > -1e-3


@pytest.fixture(scope="module")
def found():
    return free_form(blurred(leaves(), hook()).mean(1)[0], 0.006, 25)


def test_a_kernel_is_found_from_the_picture_alone(found):
    assert alike(found, hook()) > 0.8
    assert alike(found, hook()) > alike(found, hook().flip(0, 1)) + 0.1  # its mirror image has the same spectrum


def test_it_is_a_kernel_and_lies_in_the_middle(found):
    assert found.shape == (25, 25)
    assert float(found.min()) >= 0
    assert float(found.sum()) == pytest.approx(1, abs=1e-5)
    offsets = torch.arange(25.0) - 12
    assert abs(float((found.sum(1) * offsets).sum())) < 0.75
    assert abs(float((found.sum(0) * offsets).sum())) < 0.75


def test_what_is_moved_to_the_middle_is_the_same_kernel():
    aside = F.pad(hook(), (10, 0, 8, 2))
    assert alike(module._centered(aside), hook()) == pytest.approx(1, abs=1e-5)


def test_quick_sizes_have_no_large_prime_factors():
    assert [module._quick(n) for n in (7, 16, 191, 491, 500)] == [6, 16, 180, 486, 500]
