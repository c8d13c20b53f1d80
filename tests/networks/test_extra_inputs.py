"""What an estimator may see beyond the paper's inputs: the previous iterate, the operator's context, the iteration."""

import pytest
import torch
from helpers import dense_solve, stirred

import firm
from firm._model import Firm, Solver
from firm.networks import ResUNet, UNet
from firm.networks.estimator import ITERATIONS
from firm.operators import Blur, Identity, Mask, Subsample, gaussian_kernel

ALL = ("previous", "context", "iteration")
TINY = dict(side=8, ch=8, mult=(1, 2), blocks=1, groups=4, attention=(), time_scale=100.0)


class Recorder(torch.nn.Module):
    """An estimator that keeps its inputs, and returns the mean of its images."""

    def __init__(self, extra, noise_level=False):
        super().__init__()
        self.config = {"extra": extra, "noise_level": noise_level}
        self.seen = []

    def forward(self, *inputs):
        self.seen.append([v.clone() for v in inputs])
        images = [v for v in inputs if v.ndim == 4]
        return sum(images) / len(images)


def problem(op, batch=2):
    x = torch.rand(batch, 3, 8, 8, dtype=torch.float64) * 2 - 1
    return op, op.A(x) + 0.05, torch.randn_like(x)


OPERATORS = [
    Identity(),
    Mask((torch.rand(8, 8, generator=torch.Generator().manual_seed(0)) > 0.6).double()),
    Subsample(2),
    Blur(gaussian_kernel(5, 1.0).double()),
]


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: type(op).__name__)
def test_the_network_gets_what_it_asks_for_in_its_order(op):
    op, y, x_t = problem(op)
    net, rho, iterates = Recorder(ALL, noise_level=True), 0.02, []
    model = Firm(net, Solver(K=3, rho=rho, beta=0.5))
    firm.posterior_mean(
        net, op, x_t, 0.3, y, 3, rho, 0.5, sigma=0.05, extra=ALL, callback=lambda k, x, z: iterates.append((x, z))
    )
    zero, one = torch.zeros_like(x_t), torch.ones_like(x_t)
    seen, answer = dense_solve(op, zero, y, rho), dense_solve(op, zero, op.A(one), rho)
    previous = x_t
    for k, (inputs, (x, z)) in enumerate(zip(net.seen, iterates, strict=True)):
        assert [v.ndim for v in inputs] == [4] * 5 + [1] * 3
        for got, wanted in zip(inputs[:5], (x, x_t, previous, seen, answer), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-9)
        assert [v.tolist() for v in inputs[5:]] == [[0.3] * 2, [0.05] * 2, [k] * 2]
        previous = z
    model.posterior_mean(op, x_t, 0.3, y, sigma=0.05)  # a model asks by its network's settings
    torch.testing.assert_close(net.seen[:3], net.seen[3:], rtol=0, atol=0)


@pytest.mark.parametrize("extra", [(), ("previous",), ("context",), ("iteration",), ALL])
@pytest.mark.parametrize("noise_level", [False, True])
@pytest.mark.parametrize("kind", ["UNet", "ResUNet"])
def test_networks_feel_every_input(kind, extra, noise_level):
    settings = dict(noise_level=noise_level, extra=extra)
    assert "extra" not in UNet(3, **TINY).config  # the paper's is saved without
    net = stirred(UNet(3, **settings, **TINY) if kind == "UNet" else ResUNet(3, widths=(4, 8), **settings), 0.2)
    inputs = [torch.randn(2, 3, 8, 8) for _ in range(net.images)] + [torch.full((2,), 0.4)]
    inputs += [torch.full((2,), 0.1)] * noise_level + [torch.zeros(2)] * ("iteration" in extra)
    out = net(*inputs)
    assert out.shape == inputs[0].shape
    for i in range(len(inputs)):
        assert not torch.allclose(net(*[v + (j == i) for j, v in enumerate(inputs)]), out)
    if "iteration" in extra:
        last, beyond = (net(*inputs[:-1], torch.full((2,), k)) for k in (7.0, 100.0))
        assert torch.equal(last, beyond)
        net(*inputs[:-1], torch.ones(2)).sum().backward()
        touched = net.conditioning.iteration.grad.abs().sum(1) > 0
        assert touched.tolist() == [False, True] + [False] * 6


def test_in_the_warm_start_too():
    op, y, x_t = problem(OPERATORS[1])
    net = Recorder(ALL)
    Firm(net, Solver(K=0)).posterior_mean(op, x_t, 0.5, y)
    (inputs,) = net.seen
    wanted = (op.A_adjoint(y), x_t, x_t, *firm._posterior_mean._context(op, y, x_t, 0.01, None, ("context",)))
    for got, value in zip(inputs[:5], wanted, strict=True):
        torch.testing.assert_close(got, value)
    assert inputs[6].tolist() == [0, 0]


def test_blocks_of_every_level():
    more = UNet(3, **TINY | {"blocks": [1, 3]})
    assert sum(type(m).__name__ == "Block" for m in more.modules()) == (1 + 2) + (3 + 4) + 2
    x = torch.randn(1, 3, 8, 8)
    assert more(x, x, torch.tensor([0.5])).shape == x.shape


NETS = {
    "UNet": lambda: UNet(3, noise_level=True, extra=ALL, unshuffle=2, **TINY | {"blocks": (1, 2)}),
    "ResUNet": lambda: ResUNet(3, noise_level=True, extra=ALL, widths=(4, 8), blocks=(1, 2)),
}


@pytest.mark.parametrize("kind", NETS)
def test_saved_and_loaded(kind, tmp_path):
    model = Firm(stirred(NETS[kind]()), Solver(K=2, output="correction"))
    model.save(tmp_path / "m.safetensors")
    again = firm.load(tmp_path / "m.safetensors")
    op, y, x_t = problem(Mask(torch.ones(8, 8)))
    a, b = (m.posterior_mean(op, x_t.float(), 0.5, y.float(), sigma=0.1) for m in (model, again))
    assert torch.equal(a, b)
    for other, tolerance in ((firm.fast(again, "float32"), 1e-4), (firm.fast(again, "bf16"), 0.05),
                             (firm.tiled(again, tile=8, overlap=2), 1e-5)):  # fmt: skip  # the last has one tile
        found = other.posterior_mean(op, x_t.float(), 0.5, y.float(), sigma=0.1)
        torch.testing.assert_close(found, a, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("taught", [1, 3, ITERATIONS, ITERATIONS + 2])
def test_iterations_that_nobody_taught_count_as_the_last(taught):
    """A solver may have more iterations in training than a network tells apart."""
    net = UNet(3, extra=ALL, **TINY)
    rows = torch.randn_like(net.conditioning.iteration)
    net.conditioning.iteration.data = rows.clone()
    net.conditioning.extend(taught)
    last = min(taught, ITERATIONS) - 1
    expected = rows[[min(k, last) for k in range(ITERATIONS)]]
    assert torch.equal(net.conditioning.iteration, expected)
