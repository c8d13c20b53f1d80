"""The algorithms run where the data is, and need neither double precision there nor a tensor on the CPU.

torch's fake tensors stand for a device that is not here, Apple's: they have a device and no values, and are not mixed
with others. It has no double precision, so none may be asked for.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import firm
from firm._sampling import integrate
from firm.operators import Blur, Downsample, Fourier, Identity, Mask, Subsample

OPERATORS = {
    "denoising": Identity, "inpainting": lambda: Mask(torch.ones(32, 32), check=False),
    "blur": lambda: Blur(torch.ones(5, 5), check=False), "stride": lambda: Subsample(2),
    "bicubic": lambda: Downsample(2, torch.ones(8, 8), check=False),
    "fourier": lambda: Fourier(torch.ones(32, 32), check=False),
}  # fmt: skip


class NoDoubles(TorchDispatchMode):
    """Refuses operations that return double precision."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, torch.Tensor) and value.dtype in (torch.float64, torch.complex128):
                raise TypeError(f"{func} returns {value.dtype}")
        return result


@pytest.fixture
def apple():
    """Everything that is made while this is in force is fake, and may be on Apple's device."""
    with FakeTensorMode():
        yield "mps:0"


def network(device):
    net = firm.networks.ResUNet(
        3, widths=(8, 16), blocks=1, noise_level=True, extra=("previous", "context", "iteration")
    )
    return firm.Firm(net, firm.Solver(K=2, output="correction")).requires_grad_(False).eval().to(device)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("integrator", ["euler", "heun"])
def test_the_sampler_stays_on_the_device_of_the_data(name, integrator, apple):
    op, model, x = OPERATORS[name]().to(apple), network(apple), torch.empty(2, 3, 32, 32, device=apple)
    y = op.A(x)
    with NoDoubles():
        found = integrate(model, op, y, x, 2, sigma=torch.empty(2, device=apple), integrator=integrator)
    assert (found.device.type, found.shape, found.dtype) == ("mps", x.shape, torch.float32)


def test_what_the_fake_device_notices(apple):
    """An operator that was left on the CPU, and a step in double precision."""
    x, mask = torch.empty(1, 3, 32, 32, device=apple), torch.ones(32, 32)
    with pytest.raises(RuntimeError, match="same device"):
        integrate(network(apple), Mask(mask, check=False), x, x, 1, sigma=torch.empty(1, device=apple))
    with pytest.raises(TypeError, match="float64"), NoDoubles():
        x.double()
