"""Numbers that must not move: restorations of the portrait by the bundled model, attention, the solve in autocast."""

import math

import pytest
import torch

import firm
from firm.data import portrait
from firm.networks.blocks import Attention
from firm.operators import Blur, data_consistency, from_functions, gaussian_kernel

# Mean and standard deviation of the restored portrait, then the values at PIXELS; seed 0, float32, on a CPU.
PIXELS = [(0, 20, 20), (0, 64, 64), (0, 100, 40), (1, 30, 90), (1, 64, 64), (1, 110, 110), (2, 50, 50), (2, 90, 70)]
GOLDEN = {
    ("super-resolution", 1): [
        0.16617, 0.52451, 0.59146, 0.83368, 0.42892, -0.36325, 0.62004, 0.64524, -0.45922, -0.33247,
    ],
    ("super-resolution", 2): [
        0.16593, 0.52458, 0.59339, 0.83452, 0.42385, -0.36507, 0.62045, 0.64658, -0.45965, -0.33505,
    ],
    ("random-inpainting", 1): [
        0.16512, 0.52364, 0.61220, 0.84212, 0.39663, -0.37067, 0.59917, 0.64907, -0.42131, -0.30742,
    ],
    ("random-inpainting", 2): [
        0.16467, 0.52399, 0.61495, 0.84180, 0.39213, -0.37050, 0.60206, 0.65289, -0.42030, -0.28192,
    ],
}  # fmt: skip


@pytest.mark.parametrize(("task", "steps"), GOLDEN)
def test_the_bundled_model_restores_as_it_did(task, steps):
    model, problem = firm.load("face-128"), firm.Task(task, 128)
    op, y = problem.measure(portrait(), seed=42, index=0)
    x = firm.restore(model, op, y, steps=steps, seed=0, sigma=problem.sigma).image
    found = [float(x.mean()), float(x.std()), *(float(x[0, c, i, j]) for c, i, j in PIXELS)]
    assert found == pytest.approx(GOLDEN[task, steps], abs=2e-4)


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
