"""On a GPU the baselines record their steps as CUDA graphs: the same images as step by step."""

import pytest
import torch

import firm
from firm.acceleration import fast_network, graphs
from firm.baselines import pnp_flow
from flow_helpers import METHODS, network_for, operator_on

pytestmark = pytest.mark.cuda
DEVICE = "cuda"
SIGMA = 0.15


@pytest.mark.parametrize("operator", ["blur", "mask"])
@pytest.mark.parametrize("name", METHODS)
def test_recorded_is_step_by_step(name, operator, monkeypatch):
    """In float64, where both round alike; twice, because the second time other measurements are replayed."""
    recordings, record = [], graphs._record
    monkeypatch.setattr(graphs, "_record", lambda *a, **k: recordings.append(1) or record(*a, **k))
    method, settings = METHODS[name]
    net, op = network_for(name, 2, place=DEVICE), operator_on(operator, 8, 2).to(DEVICE)
    for seed in (5, 6):
        x = torch.rand(2, 2, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 2 - 1
        y = op.A(x.to(DEVICE))

        def restored(net=net, op=op, y=y):
            generators = [torch.Generator().manual_seed(n) for n in (1, 2)]
            return method(net, op, y, SIGMA, generator=generators, **settings).clone()

        found = restored()
        made = len(recordings)
        with graphs.eagerly():
            expected = restored()
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)
        assert made > 0
        assert len(recordings) == made


def test_a_network_that_is_recorded_itself_is_part_of_the_step():
    net, op = network_for("pnp_flow", 2, place=DEVICE).float(), operator_on("mask", 8, 2).float().to(DEVICE)
    y = op.A(torch.rand(2, 2, 8, 8, device=DEVICE) * 2 - 1)
    found, expected = (
        pnp_flow(v, op, y, SIGMA, steps=3, averages=1, generator=[torch.Generator().manual_seed(n) for n in (1, 2)])
        for v in (fast_network(net, "float32"), net)
    )
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_a_recorded_step_follows_its_inputs_and_takes_gradients():
    weight = torch.tensor([2.0, 3.0], device=DEVICE)

    def slope(x, t):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(((x * weight) ** 2).sum() * t, x)[0]

    step = graphs.replayed(slope, torch.device(DEVICE))
    assert step is not slope
    for value, t in ((1.0, 0.5), (-2.0, 1.0)):
        x = torch.full((2,), value, device=DEVICE)
        out = step(x, torch.tensor(t, device=DEVICE))
        torch.testing.assert_close(out, 2 * t * value * weight**2)
    with graphs.eagerly():
        assert graphs.replayed(slope, torch.device(DEVICE)) is slope


def test_measurements_are_the_same_on_every_device():
    x = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1
    for name in ("denoising", "deblurring", "super-resolution", "random-inpainting", "box-inpainting", "fourier"):
        task = firm.Task(name, 16)
        here, there = (task.measure(v, seed=3, index=7)[1] for v in (x, x.to(DEVICE)))
        assert there.device.type == DEVICE
        torch.testing.assert_close(there.cpu(), here, rtol=1e-5, atol=1e-5)
