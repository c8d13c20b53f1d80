"""Normalization and Swish against torch's own, and the fused kernel where Triton is (its interpreter on a CPU)."""

import pytest
import torch
from helpers import interpreted
from torch.nn import functional as F

from firm.acceleration._fast import _has_fused
from firm.networks.unet import NormSwish

SHAPES = [(2, 32, 8, 8, 4), (1, 48, 12, 20, 16), (3, 16, 1, 1, 2), (1, 24, 96, 80, 8)]  # the last takes several tiles


def inputs(B, C, H, W):
    generator = torch.Generator().manual_seed(C + H)
    draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    x = (3 * draw(B, C, H, W) + 1).contiguous(memory_format=torch.channels_last)
    return x, draw(B, C, 1, 1), draw(C), draw(C)


def expected(x, shift, groups, weight, bias):
    return F.silu(F.group_norm(x if shift is None else x + shift, groups, weight, bias, 1e-6))


@pytest.mark.parametrize("shifted", [True, False])
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_is_group_norm_of_the_shifted_input_then_swish(shape, compiled, shifted):
    *dims, groups = shape
    x, shift, weight, bias = inputs(*dims)
    shift = shift if shifted else None
    module = NormSwish(dims[1], groups)
    module.weight.data, module.bias.data = weight, bias
    call = torch.compile(module, backend="eager", dynamic=False) if compiled else module
    torch.testing.assert_close(call(x, shift), expected(x, shift, groups, weight, bias), rtol=1e-4, atol=1e-4)


def check_fused_kernel(device):
    from firm.networks.triton_kernel import norm_swish

    for *dims, groups in SHAPES:
        x, shift, weight, bias = (v.to(device) for v in inputs(*dims))
        for added in (shift, None):
            out = norm_swish(x, added, weight, bias, groups, 1e-6)
            torch.testing.assert_close(out, expected(x, added, groups, weight, bias), rtol=1e-5, atol=1e-5)
            assert out.stride() == x.stride()


@pytest.mark.cuda
def test_the_fused_kernel_computes_the_same_on_a_gpu():
    pytest.importorskip("triton")
    check_fused_kernel("cuda")


def test_the_fused_kernel_computes_the_same():
    pytest.importorskip("triton")
    interpreted(__file__)


def test_a_machine_that_cannot_compile_the_kernel_takes_the_slower_way(monkeypatch):
    monkeypatch.setattr("firm.acceleration._fast.importlib.util.find_spec", lambda name: "triton")
    monkeypatch.setattr("firm.acceleration._fast.torch.ones", lambda *shape, device: torch.zeros(*shape))
    with pytest.warns(UserWarning, match="not fused"):
        assert not _has_fused.__wrapped__(torch.device("cuda"))  # past the cache


def test_without_a_gpu_nothing_is_fused():
    assert not _has_fused(torch.device("cpu"))
    module = NormSwish(8, 2)
    module.fused = True
    x = torch.randn(1, 8, 4, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(module(x), F.silu(F.group_norm(x, 2, eps=1e-6)))


if __name__ == "__main__":
    check_fused_kernel("cpu")
