"""Groups with and without closed forms, modules and plain classes."""

import copy

import pytest
import torch
from helpers import dense_solve, randn, relative_error

from firm.operators import Blur, Fourier, Identity, data_consistency, dot_test, from_functions, gaussian_kernel
from firm.operators.compose import group


class Plain:
    """No module, no closed form."""

    def A(self, x):
        return x.cumsum(-1)[..., :3, :]

    def A_adjoint(self, y):
        x = y.new_zeros(*y.shape[:-2], 5, 5)
        x[..., :3, :] = y.flip(-1).cumsum(-1).flip(-1)
        return x


def make():
    ops = [Identity(), Plain(), Fourier(torch.rand(5, 5)), Blur(gaussian_kernel(3, 1.0), boundary="valid")]
    sizes = [1, 2, 1, 2]
    parts = [(op, op.A(x)) for op, x in zip(ops, randn(6, 1, 5, 5).split(sizes), strict=True)]
    return sizes, parts, *group(parts)


@pytest.mark.parametrize("rho", [0.1, torch.tensor(0.1), torch.tensor([0.01, 0.1, 1.0, 0.02, 0.5, 0.3]).double()])
def test_every_group_is_solved(rho):
    sizes, parts, op, y = make()
    op = op.double()
    assert y.shape == (6, 50)
    z = randn(6, 1, 5, 5, seed=1)
    x = data_consistency(op, z, y, rho)
    columns = torch.as_tensor(rho, dtype=torch.float64).expand(6)
    for (part, y_i), z_i, rho_i, x_i in zip(parts, z.split(sizes), columns.split(sizes), x.split(sizes), strict=True):
        part = part if not isinstance(part, Plain) else from_functions(part.A, part.A_adjoint)
        assert relative_error(x_i, dense_solve(copy.deepcopy(part), z_i, y_i, rho_i)) < 1e-9
    assert dot_test(op, (6, 1, 5, 5), dtype=torch.float64) < 1e-12
    assert sorted(key for key, _ in op.named_buffers()) == ["registered.1.mask", "registered.2.kernel"]


def test_closed_forms_receive_gamma_itself():
    seen = []

    class Closed(Identity):
        def prox_l2(self, z, y, gamma):
            seen.append(gamma)
            return super().prox_l2(z, y, gamma)

    x = randn(2, 1, 4, 4)
    op, y = group([(Closed(), x)])
    gamma = torch.tensor([49.0, 98.0], dtype=torch.float64).reshape(2, 1, 1, 1)
    op.prox_l2(x, y, gamma)
    op.prox_l2(x, y, 49.0)  # 1 / (1 / 49) is another number
    assert torch.equal(seen[0], gamma)
    assert seen[1] == 49.0


def test_gradients_reach_z_and_y_of_every_group():
    _, _, op, y = make()
    op = op.double()
    z, y = randn(6, 1, 5, 5, seed=1).requires_grad_(), y.requires_grad_()
    assert torch.autograd.gradcheck(lambda z, y: data_consistency(op, z, y, 0.3), (z, y), fast_mode=True)


def test_odd_lengths_beside_complex_measurements():
    x = randn(2, 1, 5, 5)
    wide = from_functions(lambda x: torch.cat([x, x, x], -1), lambda y: sum(y.chunk(3, -1)))
    fourier = Fourier(torch.ones(5, 5)).double()
    op, y = group([(fourier, fourier.A(x[:1])), (wide, wide.A(x[1:]))])
    assert y.shape == (2, 75)
    assert torch.equal(op.A(x), y)
    assert torch.equal(op.unpack(y)[0], fourier.A(x[:1]))
