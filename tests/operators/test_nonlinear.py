"""Nonlinear operators: the step against a brute-force minimizer, its gradients, and the checks where they enter."""

import copy
from itertools import pairwise

import pytest
import torch
from helpers import Shrink, Watch, rand, randn, relative_error

import firm
from firm.acceleration.graphs import structure
from firm.operators import (
    Blur,
    Clipping,
    Coded,
    Compose,
    Identity,
    Magnitude,
    Mask,
    Oversampled,
    Stack,
    Transmission,
    data_consistency,
    dot_test,
    from_functions,
    gaussian_kernel,
    jacobian_test,
    nonlinear,
    operator_norm,
    prox_test,
    random_phases,
)
from firm.operators.base import synchronizes
from firm.operators.complex import AsReal
from firm.operators.compose import Repeated, group

W = randn(7, 5) / 2
TOLERANT = dict(eps=1e-4, atol=1e-4, rtol=1e-3, fast_mode=True)  # the objective tells x to half its digits only


def bent(x):
    return torch.sin(x @ W.T) + 0.3 * (x @ W.T) ** 2


def spectrum(x):
    return torch.fft.fft(x + 0.2 * x**3, norm="ortho")


def objective(op, x, z, y, rho):
    """F of every sample."""
    rho = torch.as_tensor(rho, dtype=x.dtype).expand(len(x))
    return ((op.A(x) - y).abs().square().flatten(1).sum(1) + rho * (x - z).square().flatten(1).sum(1)) / 2


def minimized(op, z, y, rho, start=None):
    """The minimum of F near z by torch's L-BFGS: no Jacobians, no Gauss-Newton."""
    x = (z if start is None else start).clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [x], max_iter=500, tolerance_grad=1e-11, tolerance_change=1e-15, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        value = objective(op, x, z, y, rho).sum()
        value.backward()
        return value

    optimizer.step(closure)
    return x.detach()


def ct():
    m = randn(9, 12) / 4
    return Transmission(from_functions(lambda x: x.flatten(1) @ m.T, lambda y: (y @ m).reshape(-1, 1, 3, 4)), 0.8)


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        (nonlinear(bent, (5,), newton_steps=15), (5,)),
        (nonlinear(spectrum, (5,), newton_steps=15), (5,)),
        (ct(), (1, 3, 4)),
    ],
    ids=["bent", "complex", "transmission"],
)
def test_the_step_is_the_minimum_and_its_gradients_are_right(op, shape):
    op.newton_steps = 15
    x, z = 0.5 * randn(3, *shape), 0.5 * randn(3, *shape, seed=1)
    y = op.A(x) + 0.1
    rho = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    found = data_consistency(op, z, y, rho)
    assert relative_error(found, minimized(op, z, y, rho, start=found)) < 1e-6
    assert (objective(op, found, z, y, rho) <= objective(op, minimized(op, z, y, rho), z, y, rho) * (1 + 1e-6)).all()
    inputs = [v.clone().requires_grad_() for v in (z, y, rho)]
    assert torch.autograd.gradcheck(lambda z, y, rho: data_consistency(op, z, y, rho), inputs, **TOLERANT)


def test_a_linear_function_is_solved_as_a_linear_operator():
    blur = Blur(gaussian_kernel(3, 1.0)).double()
    op = nonlinear(blur.A, (2, 6, 6), newton_steps=1, cg_iterations=60)
    z, y = randn(2, 2, 6, 6), randn(2, 2, 6, 6, seed=1)
    torch.testing.assert_close(data_consistency(op, z, y, 0.05), data_consistency(blur, z, y, 0.05))
    torch.testing.assert_close(op.A_adjoint(y), blur.A_adjoint(y))


def test_the_objective_never_rises_where_a_whole_step_would_raise_it():
    op = nonlinear(lambda x: 3 * torch.sin(4 * x), (4,), newton_steps=1)
    z, y = randn(64, 4), randn(64, 4, seed=1)
    before = objective(op, z, z, y, 0.1)
    slope = 12 * torch.cos(4 * z)
    whole = z + slope * (y - op.A(z)) / (slope**2 + 0.1)
    assert (objective(op, whole, z, y, 0.1) > before).any()
    assert (objective(op, data_consistency(op, z, y, 0.1), z, y, 0.1) <= before).all()


@pytest.mark.parametrize(
    "low_high", [(-0.5, 0.4), (torch.tensor([-0.9, -0.2]).double(), torch.tensor([0.1, 0.6]).double())]
)
def test_clipping_is_minimized_exactly(low_high):
    op = Clipping(*low_high)
    z, y = 2 * randn(2, 1, 8, 8), op.A(randn(2, 1, 8, 8, seed=1)) + 0.2 * randn(2, 1, 8, 8, seed=2)
    rho = torch.tensor([0.2, 1.5], dtype=torch.float64)
    grid = torch.linspace(-8, 8, 160_001, dtype=torch.float64)
    found = data_consistency(op, z, y, rho)
    for b in range(2):
        low, high = (float(v.flatten()[min(b, v.numel() - 1)]) for v in (op.low, op.high))
        for z_i, y_i, x_i in zip(z[b].flatten()[:40], y[b].flatten()[:40], found[b].flatten()[:40], strict=True):
            F = (grid.clamp(low, high) - y_i) ** 2 + rho[b] * (grid - z_i) ** 2
            assert float((x_i.clamp(low, high) - y_i) ** 2 + rho[b] * (x_i - z_i) ** 2) <= float(F.min()) + 1e-9
    inputs = [v.clone().requires_grad_() for v in (z, y, rho)]
    assert torch.autograd.gradcheck(lambda z, y, rho: data_consistency(op, z, y, rho), inputs, fast_mode=True)


def test_a_saturated_pixel_keeps_what_is_brighter():
    op = Clipping(-1, 0.5)
    z = torch.tensor([[[[0.9, 0.2, -0.3]]]])
    x = data_consistency(op, z, torch.tensor([[[[0.5, 0.5, 0.1]]]]), 0.25)
    torch.testing.assert_close(x, torch.tensor([[[[0.9, (0.5 + 0.25 * 0.2) / 1.25, (0.1 - 0.25 * 0.3) / 1.25]]]]))
    with pytest.raises(ValueError, match="low must be less than high"):
        Clipping(0.5, 0.5)


def magnitudes():
    phases = random_phases((6, 6), 3, torch.Generator().manual_seed(0)).to(torch.complex128)
    return {
        "oversampled": Magnitude(Oversampled(2)),
        "coded": Magnitude(Coded(phases)),
        "masked": Magnitude(Mask(rand(6, 6).double())),
    }


@pytest.mark.parametrize("kind", magnitudes())
def test_magnitudes_go_down_to_a_minimum(kind):
    op = magnitudes()[kind]
    x = rand(2, 1, 6, 6).double() * 2 - 1
    z, y, rho = x + 0.3 * randn(2, 1, 6, 6, seed=1), op.A(x), torch.tensor([0.05, 0.5], dtype=torch.float64)
    values = []
    for op.iterations in (0, 1, 2, 5, 2000):
        values.append(objective(op, data_consistency(op, z, y, rho), z, y, rho))
    assert op.A_adjoint(y).dtype == y.dtype
    assert all((b <= a + 1e-12).all() for a, b in pairwise(values))
    assert (values[1] < values[0]).all()
    found = data_consistency(op, z, y, rho)
    assert relative_error(found, minimized(op, z, y, rho, start=found)) < 1e-5
    op.iterations = 3
    inputs = [v.clone().requires_grad_() for v in (z, y)]
    assert torch.autograd.gradcheck(lambda z, y: data_consistency(op, z, y, 0.1), inputs, fast_mode=True)


@pytest.mark.parametrize("op", [Oversampled(2), Oversampled(3), Coded(random_phases((6, 6), 3))])
def test_the_transforms_behind_them_are_linear_isometries(op):
    op = copy.deepcopy(op)
    assert dot_test(op, (2, 3, 6, 6)) < 1e-5
    assert prox_test(op, (2, 3, 6, 6), 0.1) < 1e-5
    x = rand(2, 3, 6, 6)
    torch.testing.assert_close(op.A_adjoint(op.A(x)), x)
    assert float(operator_norm(op, (1, 3, 6, 6))) == 1


def test_magnitudes_do_not_tell_an_image_from_its_mirror():
    op, x = Magnitude(Oversampled(2)), rand(1, 1, 6, 6) * 2 - 1
    torch.testing.assert_close(op.A(x.flip(-2, -1)), op.A(x))


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda x: x.detach() ** 2, "differs from its finite difference"),
        (lambda x: torch.round(20 * x) / 20, "differs from its finite difference"),
        (lambda x: x.numpy() and x, "cannot be differentiated"),
        (lambda x: x.sum(0, keepdim=True), "not one measurement per image"),
    ],
)
def test_functions_that_have_no_jacobian_are_refused(f, message):
    with pytest.raises(ValueError, match=message):
        jacobian_test(nonlinear(f, (3, 8, 8)), (2, 3, 8, 8))


def test_they_are_checked_where_they_enter_and_only_there():
    model, y = firm.Firm(Shrink(), firm.Solver(K=2)), rand(2, 3, 8, 8)
    broken = nonlinear(lambda x: x.detach() ** 2, guess=lambda y: y)
    with pytest.raises(ValueError, match="differs from its finite difference"):
        firm.prepare(model, broken, y)
    kinked = nonlinear(lambda x: 40 * x.abs() + 5, guess=lambda y: (y - 5) / 40)  # an offset, a norm of 40: no matter
    assert jacobian_test(kinked, (2, 3, 8, 8)) < 0.1
    restored = firm.restore(model, kinked, kinked.A(y), samples=2, sigma=0.01)  # warnings are errors here
    assert restored.samples.shape == (2, 2, 3, 8, 8)
    with pytest.raises(ValueError, match="is not linear, and has no norm"):
        operator_norm(kinked, (1, 3, 8, 8))
    with pytest.raises(ValueError, match="give image_shape"):
        nonlinear(torch.sin)


def test_among_linear_operators():
    clip, mask = Clipping(-0.5, 0.5), Mask(rand(8, 8))
    x, z = randn(4, 3, 8, 8).float(), randn(4, 3, 8, 8, seed=1).float()
    curved = nonlinear(torch.tanh, (3, 8, 8))
    op, y = group([(clip, clip.A(x[:1])), (mask, mask.A(x[1:2])), (curved, curved.A(x[2:]))])
    assert not op.linear
    together = data_consistency(op, z, y, torch.tensor([0.1, 0.2, 0.3, 0.4]))
    apart = [data_consistency(o, z[i:j], o.A(x[i:j]), r) for o, i, j, r in (
        (clip, 0, 1, 0.1), (mask, 1, 2, 0.2), (curved, 2, 4, torch.tensor([0.3, 0.4])),
    )]  # fmt: skip
    torch.testing.assert_close(together, torch.cat(apart))
    for inner in (clip, curved):
        many = Repeated(inner, 2)
        assert not many.linear
        torch.testing.assert_close(
            data_consistency(many, z, inner.A(x), 0.2), data_consistency(inner, z, inner.A(x), 0.2)
        )
    for joined in (lambda: Compose(Mask(rand(8, 8)), clip), lambda: Stack(Identity(), clip, image_shape=(3, 8, 8))):
        with pytest.raises(ValueError, match=r"Clipping\(-0.5, 0.5\) is not linear"):
            joined()


def test_complex_images():
    op = AsReal(nonlinear(lambda x: (x * x.conj()).real, guess=lambda y: torch.complex(y, y)))
    assert not op.linear
    assert op.A_adjoint(rand(2, 1, 4, 4)).shape == (2, 2, 4, 4)


def test_nothing_is_read_from_the_device():
    x, z = rand(2, 3, 8, 8), rand(2, 3, 8, 8, seed=1)
    for op in (Clipping(-0.5, 0.5), Magnitude(Oversampled()), Transmission(Mask(rand(8, 8)))):
        assert not synchronizes(op)
        assert structure(op) is not None
        y = op.A(x)
        data_consistency(op, z, y, 0.1)
        with Watch() as watch:
            data_consistency(op, z, y, 0.1)
        assert not watch.waits()
    assert structure(nonlinear(torch.sin, (3, 8, 8))) is None  # nobody knows what a function holds
