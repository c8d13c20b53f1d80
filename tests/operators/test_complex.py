"""Complex images: against a dense complex solve, through conjugate gradients, and as real ones."""

import torch
from helpers import randn
from torch.autograd import gradcheck, gradgradcheck

from firm.operators import (
    Fourier,
    as_real,
    data_consistency,
    dot_test,
    from_functions,
    prox_test,
    random_mask,
    to_complex,
    to_real,
)


def test_complex_fourier_equals_a_dense_complex_solve():
    H, W = 4, 5
    mask = random_mask((H, W), 0.5, torch.Generator().manual_seed(0)).double() * 1.5
    dft = torch.kron(*(torch.fft.fft(torch.eye(n, dtype=torch.complex128), norm="ortho") for n in (H, W)))
    matrix = mask.flatten()[:, None] * dft
    op = Fourier(mask, complex_images=True)
    z, x = (torch.complex(randn(2, 3, H, W, seed=s), randn(2, 3, H, W, seed=s + 5)) for s in (0, 1))
    y = op.A(x) + 0.1 * torch.complex(randn(2, 3, H, W, seed=7), randn(2, 3, H, W, seed=8))
    torch.testing.assert_close(op.A(x).flatten(2), x.flatten(2) @ matrix.T)
    iterated = from_functions(op.A, op.A_adjoint)
    for rho in (0.01, torch.tensor([0.01, 2.0])):
        column = torch.as_tensor(rho, dtype=torch.float64).reshape(-1, 1, 1)
        left = matrix.mH @ matrix + column * torch.eye(H * W)
        right = (matrix.mH @ y.flatten(2).mT).mT + column * z.flatten(2)
        expected = torch.linalg.solve(left, right.mT).mT.unflatten(2, (H, W))
        for each in (op, iterated):
            torch.testing.assert_close(data_consistency(each, z, y, rho), expected)
            torch.testing.assert_close(data_consistency(as_real(each), to_real(z), y, rho), to_real(expected))
    assert dot_test(op, (2, 3, H, W), dtype=torch.complex128) < 1e-12
    assert prox_test(iterated, (2, 3, H, W), dtype=torch.complex128) < 1e-9


def test_complex_conjugate_gradients_are_differentiable_twice():
    fourier = Fourier(randn(4, 5), complex_images=True)
    op = from_functions(fourier.A, fourier.A_adjoint, cg_tol=1e-15)
    z = torch.complex(randn(2, 1, 4, 5), randn(2, 1, 4, 5, seed=1))
    inputs = [v.requires_grad_() for v in (z, op.A(z).detach(), torch.tensor([0.05, 0.7], dtype=torch.float64))]

    def solve(z, y, rho):
        return data_consistency(op, z, y, rho)

    assert gradcheck(solve, inputs, fast_mode=True)
    assert gradgradcheck(solve, inputs, fast_mode=True)


def test_real_and_complex_images():
    x = torch.complex(randn(2, 3, 4, 5), randn(2, 3, 4, 5, seed=1))
    assert torch.equal(to_real(x)[:, :3], x.real)
    assert torch.equal(to_complex(to_real(x)), x)
    op = from_functions(lambda x: x, lambda y: y, cg_tol=0.1, cg_iterations=7)
    assert (as_real(op).cg_tol, as_real(op).cg_iterations) == (0.1, 7)
    assert repr(as_real(Fourier(torch.ones(4, 4), True))) == "as_real(Fourier(4x4, complex_images=True))"
