"""Coils beside one another equal a Fourier operator each; what is special about maps and masks is found and right."""

import pytest
import torch
from helpers import randn

from firm.operators import Fourier, MultiCoil, as_real, data_consistency, dot_test, from_functions, operator_norm

MAPS = torch.complex(randn(3, 6, 5), randn(3, 6, 5, seed=1))
X = torch.complex(randn(2, 1, 6, 5, seed=2), randn(2, 1, 6, 5, seed=3))


def test_every_coil_is_a_fourier_operator_on_what_it_sees():
    mask = (randn(6, 5, seed=4) > 0).double()
    one = Fourier(mask, complex_images=True)
    op = MultiCoil(mask, MAPS)
    y = torch.cat([one.A(s * X) for s in MAPS], 1)
    torch.testing.assert_close(op.A(X), y)
    expected = sum(s.conj() * one.A_adjoint(y[:, c : c + 1]) for c, s in enumerate(MAPS))
    torch.testing.assert_close(op.A_adjoint(y), expected)


@pytest.mark.parametrize("size", [(6, 5), (1, 5), (6, 1), (2, 1, 1, 5), (2, 1, 6, 5)])
def test_the_normal_operator_is_the_adjoint_after_the_operator(size):
    op = MultiCoil(randn(*size), MAPS)
    torch.testing.assert_close(op.normal(X), op.A_adjoint(op.A(X)))
    real, view = as_real(op), torch.cat([X.real, X.imag], 1)
    torch.testing.assert_close(real.normal(view), real.A_adjoint(real.A(view)))


def test_samples_have_maps_and_masks_of_their_own():
    maps, mask = torch.stack([MAPS, MAPS.flip(0)]), randn(2, 1, 6, 5)
    both = MultiCoil(mask, maps)
    y = both.A(X)
    z = torch.zeros_like(X)
    for i in range(2):
        one = MultiCoil(mask[i, 0], maps[i])
        torch.testing.assert_close(y[i : i + 1], one.A(X[i : i + 1]))
        solved = data_consistency(one, z[:1], y[i : i + 1], 0.1)
        torch.testing.assert_close(data_consistency(both, z, y, 0.1)[i : i + 1], solved)


def test_closed_forms_are_found_and_equal_conjugate_gradients():
    phase = torch.polar(torch.ones(1, 6, 5, dtype=torch.float64), randn(1, 6, 5))
    for op in (MultiCoil(torch.ones(1, 5), MAPS), MultiCoil(randn(6, 5), phase)):
        assert op.closed_form
        y = op.A(X) + 0.1
        iterated = from_functions(op.A, op.A_adjoint)
        found = data_consistency(op, 0 * X, y, 0.05)
        torch.testing.assert_close(found, data_consistency(iterated, 0 * X, y, 0.05))
        assert operator_norm(op, X) == pytest.approx(operator_norm(iterated, X, iterations=300), rel=1e-5)
    assert not MultiCoil(randn(6, 5), MAPS).closed_form
    assert not MultiCoil(torch.ones(6, 5), MAPS, check=False).closed_form  # nobody looked
    d = op.diagonal(y)
    torch.testing.assert_close(op.A(op.A_adjoint(y)), d * y)


def test_float32_and_double_precision():
    op = MultiCoil(torch.ones(6, 5), MAPS.to(torch.complex64))
    assert op.A(X.to(torch.complex64)).dtype == torch.complex64
    assert dot_test(op, (2, 1, 6, 5), dtype=torch.complex64) < 1e-5
    assert op.double().A(X).dtype == torch.complex128


@pytest.mark.parametrize(
    ("mask", "maps"),
    [
        (torch.ones(5, 6), MAPS),  # turned
        (torch.ones(6, 5), MAPS.real),
        (torch.ones(6, 5), MAPS[0]),
        (torch.ones(3, 1, 6, 5), MAPS[None].repeat(2, 1, 1, 1)),
        (torch.ones(1, 3, 6, 5), MAPS),  # one for each coil
        (torch.ones(6, 5), MAPS * torch.nan),
        (torch.ones(6, 5), MAPS * 0),
        (torch.zeros(6, 5), MAPS),
    ],
)
def test_what_does_not_fit_is_refused(mask, maps):
    with pytest.raises(ValueError, match=r"MultiCoil: .*(maps|mask)"):
        MultiCoil(mask, maps)


def test_images_must_be_complex_and_of_the_size_of_the_maps():
    for x in (X.real, X[..., :4], X.repeat(1, 3, 1, 1)):
        with pytest.raises(ValueError, match=r"takes complex images \(B, 1, 6, 5\)"):
            MultiCoil(torch.ones(6, 5), MAPS).A(x)
