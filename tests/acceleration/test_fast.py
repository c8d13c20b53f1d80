"""The fast network computes what the plain one does, within the precision asked for."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from helpers import rand, recordable, stirred

import firm
from firm.acceleration import graphs
from firm.acceleration._fast import MOST_CALLS, FastNetwork, _FastFirm, _has_bf16
from firm.acceleration.graphs import structure
from firm.networks import PriorUNet, ResUNet
from firm.operators.compose import Repeated
from firm.tasks.deblurring import valid_blur


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    net = firm.UNet(3, side=32, ch=16, mult=(1, 2), blocks=1, attention=(8,), groups=4, unshuffle=2, noise_level=True)
    return firm.Firm(stirred(net, 0.08), firm.Solver(K=3, output="correction"), {"note": "tiny"}).eval()


def problem():
    return firm.Task("random-inpainting", 32).measure(rand(2, 3, 32, 32, seed=1) * 2 - 1)


def run(model):
    op, y = problem()
    return firm.sample(model, op, y, 2, sigma=0.01, generator=torch.Generator().manual_seed(0))


def test_float32_is_the_model_itself(model):
    quick = firm.fast(model, "float32")
    torch.testing.assert_close(run(quick), run(model), rtol=1e-4, atol=1e-4)
    assert quick.solver == model.solver
    assert quick.card == model.card
    assert quick.calls(2) == 6


def test_what_a_cpu_does_in_place_and_in_parts_is_the_same(monkeypatch):
    """`ResUNet`, whose attention looks at 16 places, here 5 at a time."""
    monkeypatch.setattr("firm.networks.unet.PART", 5)
    torch.manual_seed(0)
    net = stirred(ResUNet(3, widths=(8, 16), blocks=2, noise_level=True), 0.08)
    plain = firm.Firm(net, firm.Solver(K=2), {}).eval()
    before = net.state_dict()["head.weight"].clone()
    quick = firm.fast(plain, "float32")
    op, y = firm.operators.Identity(), rand(2, 3, 8, 8, seed=1) * 2 - 1
    kept = y.clone()
    found, expected = (firm.restore(m, op, y, 1, seed=3, sigma=0.1).image for m in (quick, plain))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(y, kept)
    assert torch.equal(net.state_dict()["head.weight"], before)


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
    expected = torch.bfloat16 if _has_bf16(torch.device("cpu")) else torch.float32
    assert firm.fast(model).estimator.dtype == expected
    with pytest.raises(ValueError, match="precision must be"):
        firm.fast(model, "int8")


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_images_without_a_batch_axis_are_refused_as_by_the_model_itself(model, precision):
    y = torch.zeros(3, 32, 32)
    for each in (model, firm.fast(model, precision)):
        with pytest.raises(ValueError, match=r"UNet takes images \(B, 3, H, W\), got \(3, 32, 32\)"):
            firm.restore(each, firm.operators.Identity(), y, sigma=0.1)


def test_a_tiled_model_becomes_fast_inside_its_tiles(model):
    slow = firm.tiled(model, 16, 4)
    quick = firm.fast(slow, "float32")
    assert isinstance(quick.estimator.estimator, FastNetwork)
    assert (quick.estimator.tile, quick.estimator.overlap) == (16, 4)
    torch.testing.assert_close(run(quick), run(slow), rtol=1e-4, atol=1e-4)
    assert firm.fast(slow, "bf16").estimator.estimator.dtype == torch.bfloat16
    for toy in (firm.load("toy"), firm.tiled(firm.load("toy"), 8, 2)):
        assert firm.fast(toy) is toy  # it has nothing to gain


def test_fast_twice_is_the_last_precision(model):
    quick = firm.fast(model, "float32")
    assert firm.fast(quick) is quick
    assert firm.fast(quick, "float32") is quick
    rounded = firm.fast(quick, "bf16")
    assert rounded.estimator.dtype == torch.bfloat16
    assert firm.fast(rounded, "bf16") is rounded
    with pytest.raises(ValueError, match="rounded weights"):
        firm.fast(rounded, "float32")


@pytest.mark.parametrize("kind", [firm.Firm, _FastFirm])  # the network recorded, and Algorithm 3 as a whole
def test_threads_do_not_share_the_buffers_of_a_graph(model, as_on_a_gpu, kind):
    plain = firm.fast(model, "float32")
    shared = kind(FastNetwork(plain.estimator.net), plain.solver, {})
    op, y = problem()

    def restored(model, seed):
        return firm.sample(model, op, y, 1, sigma=0.01, generator=torch.Generator().manual_seed(seed))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphs, "DEVICE", "cuda")
        alone = [restored(plain, seed) for seed in range(6)]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda seed: restored(shared, seed), range(6)))
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))
    assert len(as_on_a_gpu) == 1


@pytest.mark.parametrize("key", recordable(0))
def test_a_recording_serves_all_operators_of_one_structure(model, as_on_a_gpu, key):
    quick = firm.fast(model, "float32")
    for seed in range(3):
        op, y = recordable(seed)[key]
        given = dict(sigma=0.01 * (seed + 1), x_0=torch.randn(2, 3, 32, 32))
        found = firm.sample(quick, op, y, 2, **given)
        torch.testing.assert_close(found, firm.sample(model, op, y, 2, **given), rtol=1e-4, atol=1e-4)
    assert len(as_on_a_gpu) == 1
    assert not quick.estimator.recordings.kept  # the network is a part of the whole


@pytest.mark.parametrize("integrator", ["euler", "midpoint", "heun"])
def test_all_steps_are_one_recording(model, as_on_a_gpu, integrator):
    """Another operator of the same structure, other measurements and another number of steps: the right results."""
    quick, N = firm.fast(model, "float32"), 3
    for seed in range(3):
        op, y = recordable(seed)["downsample" if seed == 2 else "blur"]
        given = dict(sigma=0.01 * (seed + 1), x_0=torch.randn(2, 3, 32, 32), integrator=integrator)
        found = firm.sample(quick, op, y, N, **given)
        torch.testing.assert_close(found, firm.sample(model, op, y, N, **given), rtol=1e-4, atol=1e-4)
    assert [graph.replays for graph in as_on_a_gpu] == [2, 1]  # two blurs, one other operator
    firm.sample(quick, op, y, N - 1, **given)
    firm.sample(quick, op, y, N, **{**given, "integrator": "heun" if integrator == "euler" else "euler"})
    assert len(as_on_a_gpu) == 4


def test_more_calls_than_a_graph_holds_are_a_graph_for_each_step(model, as_on_a_gpu):
    quick, (op, y) = firm.fast(model, "float32"), recordable(0)["blur"]
    most = MOST_CALLS // model.solver.K
    for N, replays in ((most, 1), (most + 1, most + 1)):
        x_0 = torch.randn(2, 3, 32, 32)
        found = firm.sample(quick, op, y, N, sigma=0.01, x_0=x_0)
        torch.testing.assert_close(found, firm.sample(model, op, y, N, sigma=0.01, x_0=x_0), rtol=1e-4, atol=1e-4)
        assert as_on_a_gpu[-1].replays == replays
    assert len(as_on_a_gpu) == 2


def test_who_watches_the_steps_sees_them(model, as_on_a_gpu):
    quick, (op, y), seen = firm.fast(model, "float32"), problem(), []
    given = dict(sigma=0.01, x_0=torch.randn(2, 3, 32, 32))
    watched = firm.sample(quick, op, y, 3, callback=lambda i, t, x, z: seen.append(x), **given)
    assert len(seen) == 3
    torch.testing.assert_close(watched, firm.sample(quick, op, y, 3, **given))
    assert [graph.replays for graph in as_on_a_gpu] == [3, 1]  # of Algorithm 3, and of all


def test_a_depth_has_a_recording_of_its_own(model, as_on_a_gpu):
    quick, (op, y) = firm.fast(firm.Firm(model.estimator, model.solver, {"depths": [1, 2, 3]}), "float32"), problem()
    given = dict(sigma=0.01, x_0=torch.randn(2, 3, 32, 32))
    for K in (1, 3, 1, 3):
        found = firm.sample(quick, op, y, 2, iterations=K, **given)
        exact = firm.sample(firm.Firm(model.estimator, replace(model.solver, K=K)), op, y, 2, **given)
        torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-4)
    assert [graph.replays for graph in as_on_a_gpu] == [2, 2]


def test_a_fast_prior_is_part_of_the_step_that_a_baseline_records(as_on_a_gpu):
    """A graph cannot be recorded while another is: on a GPU that ends with an error of CUDA."""
    net = stirred(PriorUNet(3, side=8, ch=8, mult=(1,), blocks=1, groups=4, attention=()), 0.2)
    quick, t = FastNetwork(net.requires_grad_(False)), torch.full((2,), 0.3)
    step = graphs.replayed(lambda x: quick(x, t) + x, "cpu")
    for seed in (1, 2):
        x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(step(x), net(x, t) + x, rtol=1e-5, atol=1e-5)
    assert len(as_on_a_gpu) == 1
    assert not quick.recordings.kept


def test_work_on_a_gpu_is_recorded_unless_it_shall_run_eagerly():
    cuda, cpu = torch.device("cuda:1"), torch.device("cpu")
    with graphs.eagerly():
        with graphs.eagerly():
            assert not graphs.recorded(cuda)
        assert not graphs.recorded(cuda)
        assert graphs.replayed(torch.neg, cuda) is torch.neg
    assert graphs.recorded(cuda)
    assert not graphs.recorded(cpu)
    assert graphs.replayed(torch.neg, "cuda") is not torch.neg
    assert graphs.replayed(torch.neg, "cpu") is torch.neg


def test_other_structures_have_recordings_of_their_own(model, as_on_a_gpu):
    quick = firm.fast(model, "float32")
    x = torch.zeros(2, 3, 32, 32)
    mask, fewer = firm.operators.Mask(torch.ones(32, 32)), valid_blur(torch.ones(3, 3) / 9)
    fewer.cg_iterations = 3
    ops = [
        mask, firm.operators.Mask(torch.ones(3, 32, 32)), firm.operators.Blur(torch.ones(3, 3) / 9), Repeated(mask, 2),
        firm.operators.Identity(), firm.operators.Subsample(2), valid_blur(torch.ones(3, 3) / 9), fewer,
    ]  # fmt: skip
    for _ in range(2):
        for op in ops:
            quick.posterior_mean(op, x, 0.5, op.A(x), sigma=0.1)
    assert len(as_on_a_gpu) == len(ops)
    quick.posterior_mean(mask, x[:1], 0.5, mask.A(x[:1]), sigma=0.1)
    assert len(as_on_a_gpu) == len(ops) + 1


class Mine(firm.operators.Mask):
    """An operator of the user's own, which may look at its values."""


@pytest.mark.parametrize(
    "op",
    [
        Mine(torch.ones(32, 32)),
        firm.operators.from_functions(lambda x: x, lambda y: y),
        firm.operators.Blur(torch.ones(3, 3) / 9, boundary="valid"),  # its solver looks at the residual
        firm.operators.Compose(firm.operators.Mask(torch.ones(32, 32)), firm.operators.Blur(torch.ones(3, 3) / 9)),
        firm.operators.Compose(firm.operators.Blur(torch.ones(3, 3) / 9), firm.operators.Blur(torch.ones(5, 5) / 25)),
        Repeated(Mine(torch.ones(2, 1, 32, 32)), 2),
    ],
    ids=["own", "functions", "conjugate gradients", "composed", "composed, solved in closed form", "own, repeated"],
)
def test_with_other_operators_the_network_alone_is_recorded(model, as_on_a_gpu, op):
    assert structure(op) is None
    quick = firm.fast(model, "float32")
    x = rand(2, 3, 32, 32, seed=1) * 2 - 1
    y = op.A(x)
    found = quick.posterior_mean(op, x, 0.5, y, sigma=0.1)
    torch.testing.assert_close(found, model.posterior_mean(op, x, 0.5, y, sigma=0.1), rtol=1e-4, atol=1e-4)
    assert not quick.recordings.kept
    assert quick.estimator.recordings.kept


@pytest.mark.filterwarnings("ignore:.*was trained for")
def test_each_depth_is_recorded_once(model, as_on_a_gpu):
    quick = firm.fast(model, "float32")
    op, y = problem()
    for _ in range(2):
        for K in (1, 2):
            given = dict(iterations=K, sigma=0.01, x_0=torch.zeros_like(y))
            torch.testing.assert_close(
                firm.sample(quick, op, y, 1, **given), firm.sample(model, op, y, 1, **given), rtol=1e-4, atol=1e-4
            )
    assert len(as_on_a_gpu) == 2


def test_the_last_used_recordings_stay(model, as_on_a_gpu):
    quick = firm.fast(model, "float32")

    def call(side):
        x = torch.zeros(1, 3, side, side)
        quick.posterior_mean(firm.operators.Identity(), x, 0.5, x, sigma=0.1)

    for side in (16, *range(20, 20 + 4 * graphs.KINDS, 4)):
        call(side)
        call(16)
    assert len(as_on_a_gpu) == graphs.KINDS + 1  # that of 16 was never made again
    assert len(quick.recordings.kept) == graphs.KINDS  # the oldest are gone


def test_other_settings_of_the_solver_are_recorded_anew(model, as_on_a_gpu):
    quick, (op, y), x = firm.fast(model, "float32"), problem(), torch.zeros(2, 3, 32, 32)
    quick.posterior_mean(op, x, 0.5, y, sigma=0.1)
    quick.solver = firm.Solver(K=1, output="correction")
    found = quick.posterior_mean(op, x, 0.5, y, sigma=0.1)
    expected = firm.Firm(model.estimator, quick.solver).posterior_mean(op, x, 0.5, y, sigma=0.1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert len(as_on_a_gpu) == 2


def test_a_network_without_a_noise_level_is_recorded_with_and_without_sigma(as_on_a_gpu):
    net = stirred(firm.UNet(3, side=32, ch=8, mult=(1, 2), blocks=1, attention=(), groups=4), 0.08)
    op, y = problem()
    x = rand(2, 3, 32, 32, seed=1)
    model = firm.Firm(net, firm.Solver(K=2)).eval()
    quick = firm.fast(model, "float32")
    for sigma in (None, 0.1, None, torch.tensor([0.3, 0.7])):
        found = quick.posterior_mean(op, x, 0.8, y, sigma=sigma)
        torch.testing.assert_close(found, model.posterior_mean(op, x, 0.8, y, sigma=sigma), rtol=1e-4, atol=1e-4)
    assert len(as_on_a_gpu) == 2


def test_what_was_recorded_in_inference_mode_serves_outside(model, as_on_a_gpu):
    quick = firm.fast(model, "float32")
    with torch.inference_mode():
        first = run(quick)
    assert torch.equal(run(quick), first)


def test_iterates_are_shown_without_a_recording(model, as_on_a_gpu):
    quick, (op, y), seen = firm.fast(model, "float32"), problem(), []
    quick.posterior_mean(op, torch.zeros(2, 3, 32, 32), 0.5, y, sigma=0.1, callback=lambda k, x, z: seen.append(k))
    assert seen == [1, 2, 3]


def test_the_bundled_model_loses_nothing_visible_in_bf16():
    from firm.data import portrait
    from firm.metrics import psnr

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
