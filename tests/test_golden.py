"""Numbers that must not move: restorations of the portrait by the bundled model, attention, the solve in autocast."""

import math

import pytest
import torch

import firm
from firm.data import portrait
from firm.networks.unet import Attention
from firm.operators import Blur, data_consistency, from_functions, gaussian_kernel

# Mean and standard deviation of the restored portrait, then the values at PIXELS; seed 0, float32, on a CPU.
PIXELS = [(0, 20, 20), (0, 64, 64), (0, 100, 40), (1, 30, 90), (1, 64, 64), (1, 110, 110), (2, 50, 50), (2, 90, 70)]
GOLDEN = {
    "super-resolution": [
        0.16596, 0.52462, 0.59468, 0.83269, 0.42996, -0.36608, 0.62252, 0.64760, -0.45848, -0.33570,
    ],
    "random-inpainting": [
        0.16480, 0.52390, 0.61344, 0.84538, 0.38973, -0.37108, 0.60206, 0.65327, -0.42328, -0.26991,
    ],
}  # fmt: skip


@pytest.mark.parametrize("task", GOLDEN)
def test_the_bundled_model_restores_as_it_did(task):
    model, problem = firm.load("face-128"), firm.Task(task, 128)
    op, y = problem.measure(portrait(), seed=42, index=0)
    x = firm.restore(model, op, y, steps=2, seed=0, sigma=problem.sigma).image
    found = [float(x.mean()), float(x.std()), *(float(x[0, c, i, j]) for c, i, j in PIXELS)]
    assert found == pytest.approx(GOLDEN[task], abs=2e-4)


def test_attention_is_softmax_of_scaled_products():
    block = Attention(8, 4).requires_grad_(False)
    for p in block.parameters():
        p.copy_(torch.randn(p.shape))
    x = torch.randn(2, 8, 3, 5)
    q, k, v = (f(block.norm(x)).flatten(2) for f in (block.query, block.key, block.value))  # (B, C, pixels)
    weights = torch.softmax(torch.einsum("bcn,bcm->bnm", q, k) / math.sqrt(8), dim=2)
    mixed = torch.einsum("bnm,bcm->bcn", weights, v).unflatten(2, (3, 5))
    torch.testing.assert_close(block(x), x + block.project(mixed), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_solve_is_in_float32_inside_autocast(dtype):
    """Products of matrices, which autocast would make bfloat16, are in an operator of the user's own."""
    M = torch.randn(16, 16, generator=torch.Generator().manual_seed(0))
    own = from_functions(lambda x: x @ M, lambda y: y @ M.T)
    closed = from_functions(lambda x: x @ M, lambda y: y @ M.T)
    inverse = torch.linalg.inv(M @ M.T + torch.eye(16) / 20)
    closed.prox_l2 = lambda z, y, gamma: (y @ M.T + z / gamma) @ inverse
    z = torch.randn(1, 1, 16, 16).to(dtype)
    for op in (own, closed, Blur(gaussian_kernel(5, 1.0))):
        y = op.A(z.float())
        plain = data_consistency(op, z, y, 0.05)
        with torch.autocast("cpu", torch.bfloat16):
            mixed = data_consistency(op, z, y, 0.05)
        assert mixed.dtype == torch.float32
        assert torch.equal(mixed, plain)


@pytest.mark.parametrize("K", [0, 1])
def test_the_users_operator_is_called_in_float32_inside_autocast(K):
    """Also where the network sees what was measured, in the warm start, and in the backward pass."""
    M, seen = torch.randn(16, 16, generator=torch.Generator().manual_seed(0)), []

    def A(x):
        seen.append((x @ M).dtype)
        return x @ M

    def A_adjoint(y):
        seen.append((y @ M.T).dtype)
        return y @ M.T

    class Sees(torch.nn.Module):
        config = {"extra": ("context",)}  # noqa: RUF012

        def forward(self, x, x_t, measured, where, t):
            return (x + measured + where).requires_grad_()

    model, x = firm.Firm(Sees(), firm.Solver(K=K)), torch.randn(1, 1, 16, 16).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        model.posterior_mean(from_functions(A, A_adjoint), x, 0.5, x).sum().backward()
    assert len(seen) > 4
    assert set(seen) == {torch.float32}
