"""The fast network computes what the plain one does, within the precision asked for."""

import copy
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import firm
from firm.acceleration._fast import FastNetwork, has_bf16


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    net = firm.UNet(3, side=32, ch=16, mult=(1, 2), blocks=1, attention=(8,), groups=4, unshuffle=2, noise_level=True)
    for p in net.parameters():
        p.data = torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())) * 0.08
    return firm.Firm(net, firm.Solver(K=3, output="correction"), {"note": "tiny"}).eval()


def problem():
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1)) * 2 - 1
    task = firm.Task("random-inpainting", 32)
    return task.measure(x)


def run(model):
    op, y = problem()
    return firm.sample(model, op, y, 2, sigma=0.01, generator=torch.Generator().manual_seed(0))


def test_float32_is_the_model_itself(model):
    quick = firm.fast(model, "float32")
    torch.testing.assert_close(run(quick), run(model), rtol=1e-4, atol=1e-4)
    assert quick.solver == model.solver
    assert quick.card == model.card
    assert quick.calls(2) == 6


def test_bf16_is_close_and_leaves_the_model_alone(model):
    before = {k: v.clone() for k, v in model.state_dict().items()}
    quick = firm.fast(model, "bf16")
    exact, rounded = run(model), run(quick)
    assert rounded.dtype == torch.float32
    error = float((rounded - exact).norm() / exact.norm())
    assert 1e-6 < error < 0.03
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert isinstance(quick.estimator, FastNetwork)
    assert quick.estimator.net.stem.conv.weight.dtype == torch.bfloat16
    assert quick.estimator.net.conditioning.project.weight.dtype == torch.float32  # t needs its digits


def test_auto_follows_the_machine(model):
    expected = torch.bfloat16 if has_bf16(torch.device("cpu")) else torch.float32
    assert firm.fast(model).estimator.dtype == expected


def test_other_networks_are_returned_as_they_are():
    toy = firm.load("toy")
    assert firm.fast(toy) is toy


def test_an_unknown_precision_is_refused(model):
    with pytest.raises(ValueError, match="precision must be"):
        firm.fast(model, "int8")


def test_a_tiled_model_becomes_fast_inside_its_tiles(model):
    slow = firm.tiled(model, 16, 4)
    quick = firm.fast(slow, "float32")
    assert isinstance(quick.estimator.estimator, FastNetwork)
    assert (quick.estimator.tile, quick.estimator.overlap) == (16, 4)
    torch.testing.assert_close(run(quick), run(slow), rtol=1e-4, atol=1e-4)
    assert firm.fast(slow, "bf16").estimator.estimator.dtype == torch.bfloat16
    toy = firm.tiled(firm.load("toy"), 8, 2)
    assert firm.fast(toy) is toy


def test_fast_twice_is_the_last_precision(model):
    quick = firm.fast(model, "float32")
    assert firm.fast(quick) is quick
    assert firm.fast(quick, "float32") is quick
    rounded = firm.fast(quick, "bf16")
    assert rounded.estimator.dtype == torch.bfloat16
    assert firm.fast(rounded, "bf16") is rounded
    with pytest.raises(ValueError, match="rounded weights"):
        firm.fast(rounded, "float32")


class SlowGraph(FastNetwork):
    """As on a GPU, with a replay that takes a while: what one thread writes meanwhile, another must not read."""

    def forward(self, *inputs):
        return self._replay(list(inputs))

    def _record(self, inputs):
        static = [v.clone() for v in inputs]
        out = torch.zeros_like(static[0])
        network = self

        class Graph:
            def replay(self):
                time.sleep(0.002)
                out.copy_(network._call(static))

        return Graph(), static, out


def test_threads_do_not_share_the_buffers_of_a_graph(model):
    plain = firm.fast(model, "float32")
    shared = firm.Firm(SlowGraph(plain.estimator.net), plain.solver)
    op, y = problem()

    def restored(model, seed):
        return firm.sample(model, op, y, 1, sigma=0.01, generator=torch.Generator().manual_seed(seed))

    alone = [restored(plain, seed) for seed in range(6)]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda seed: restored(shared, seed), range(6)))
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


def test_a_fast_model_can_be_copied(model):
    quick = firm.fast(model, "float32")
    assert torch.equal(run(copy.deepcopy(quick)), run(quick))


def test_the_bundled_model_loses_nothing_visible_in_bf16():
    from firm.data import portrait
    from firm.metrics._psnr import psnr

    truth = portrait()
    model = firm.load("face-128")
    task = firm.Task("super-resolution", 128)
    op, y = task.measure(truth)
    values = []
    for quick in (firm.fast(model, "float32"), firm.fast(model, "bf16")):
        x = firm.sample(quick, op, y, 1, sigma=task.sigma, generator=torch.Generator().manual_seed(0))
        values.append(float(psnr(x, truth)))
    assert values[0] > 30
    assert abs(values[0] - values[1]) < 0.1
