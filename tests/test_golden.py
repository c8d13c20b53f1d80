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
        0.16586,
        0.52414,
        0.59418,
        0.83075,
        0.43843,
        -0.36908,
        0.62200,
        0.64644,
        -0.45169,
        -0.34237,
    ],
    ("super-resolution", 2): [
        0.16556,
        0.52423,
        0.59428,
        0.83885,
        0.43610,
        -0.36861,
        0.62833,
        0.64789,
        -0.45292,
        -0.34095,
    ],
    ("random-inpainting", 1): [
        0.16598,
        0.52313,
        0.61608,
        0.83397,
        0.33523,
        -0.36246,
        0.61416,
        0.64490,
        -0.41965,
        -0.26019,
    ],
    ("random-inpainting", 2): [
        0.16586,
        0.52357,
        0.61518,
        0.83786,
        0.38571,
        -0.35616,
        0.60719,
        0.64770,
        -0.42216,
        -0.25882,
    ],
}


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
