"""The fast estimator on a GPU: recorded as a CUDA graph, with the fused kernel, against the model itself."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from helpers import rand, recordable

import firm
from firm.acceleration._fast import _has_fused
from firm.acceleration.graphs import KINDS
from firm.networks.res_unet import Level, ResUNet
from firm.networks.unet import NormSwish

pytestmark = pytest.mark.cuda
DEVICE = "cuda"


NETWORKS = {
    "UNet": lambda: firm.UNet(
        3, side=32, ch=16, mult=(1, 2), blocks=1, attention=(8,), groups=4, unshuffle=2, noise_level=True
    ),
    "ResUNet": lambda: ResUNet(3, widths=(16, 24, 32), noise_level=True, extra=("previous", "context", "iteration")),
}


@pytest.fixture(scope="module", params=NETWORKS)
def model(request):
    net = NETWORKS[request.param]()
    for p in net.parameters():
        p.data = torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())) * 0.08
    return firm.Firm(net, firm.Solver(K=3, output="correction")).eval().to(DEVICE)


@pytest.fixture
def exact():
    """Convolutions in float32: by themselves they would round to TF32."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        yield


def problem(seed, side=32):
    x = (rand(2, 3, side, side, seed=seed) * 2 - 1).to(DEVICE)
    return firm.Task("random-inpainting", side).measure(x, seed)


def run(model, seed, side=32):
    op, y = problem(seed, side)
    return firm.sample(model, op, y, 2, sigma=0.01, generator=torch.Generator().manual_seed(seed))


def test_float32_is_the_model_itself(model, exact):
    quick = firm.fast(model, "float32")
    found = [run(quick, seed) for seed in (1, 2, 3)]  # the first records, the others replay
    assert len(quick.recordings.kept) == 1
    for seed, x in zip((1, 2, 3), found, strict=True):  # no replay has written over an earlier result
        torch.testing.assert_close(x, run(model, seed), rtol=1e-3, atol=1e-4)


def test_bf16_is_close(model, exact):
    expected, found = run(model, 1), run(firm.fast(model, "bf16"), 1)
    assert found.dtype == torch.float32
    assert 1e-6 < float((found - expected).norm() / expected.norm()) < 0.03


@pytest.mark.parametrize("key", recordable(0))
def test_a_recording_serves_all_operators_of_one_structure(model, exact, key):
    solver = firm.Solver(K=3, output="correction")
    slow = firm.Firm(model.estimator, solver)
    quick = firm.fast(slow, "float32")
    for seed in range(3):
        op, y = recordable(seed)[key]
        op, y = op.to(DEVICE), y.to(DEVICE)
        given = dict(sigma=torch.tensor([0.1, 0.2]) * (seed + 1), x_0=torch.randn(2, 3, 32, 32, device=DEVICE))
        found = firm.sample(quick, op, y, 2, **given)
        torch.testing.assert_close(found, firm.sample(slow, op, y, 2, **given), rtol=1e-3, atol=1e-3)
    assert len(quick.recordings.kept) == 1
    assert not quick.estimator.recordings.kept  # the network is a part of the whole


def test_what_stands_between_convolutions_is_fused(model):
    pytest.importorskip("triton")
    assert _has_fused(torch.device(DEVICE))
    parts = [m for m in firm.fast(model).estimator.modules() if isinstance(m, NormSwish | Level)]
    assert parts
    assert all(m.fused for m in parts)
    assert not any(m.fused for m in model.modules() if isinstance(m, NormSwish | Level))


def test_a_folder_of_many_sizes_drops_the_oldest_recording(model, exact):
    quick = firm.fast(model, "float32")
    sides = range(16, 16 + 4 * (KINDS + 2), 4)
    for side in (*sides, sides[0]):
        torch.testing.assert_close(run(quick, 1, side), run(model, 1, side), rtol=1e-3, atol=1e-4)
    assert len(quick.recordings.kept) == KINDS


def test_threads_share_a_recorded_network(model, exact):
    quick = firm.fast(model, "float32")
    alone = [run(quick, seed) for seed in range(6)]

    def on_a_stream_of_its_own(seed):
        with torch.cuda.stream(torch.cuda.Stream()):
            x = run(quick, seed)
            torch.cuda.current_stream().synchronize()
            return x

    for _ in range(3):
        with ThreadPoolExecutor(6) as pool:
            together = list(pool.map(on_a_stream_of_its_own, range(6)))
        assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


def test_a_tiled_model_is_recorded_inside_its_tiles(model, exact):
    slow = firm.tiled(model, 32, 8)
    quick = firm.fast(slow, "float32")
    torch.testing.assert_close(run(quick, 1, 64), run(slow, 1, 64), rtol=1e-3, atol=1e-4)
    assert quick.estimator.estimator.recordings.kept


def test_the_bundled_model_restores_alike_on_both_devices(exact):
    """What the engineer sees: the same picture, whichever machine it was restored on."""
    from firm.data import portrait

    model, task = firm.load("face-128"), firm.Task("random-inpainting", 128)
    found = []
    for device in ("cpu", DEVICE):
        op, y = task.measure(portrait().to(device))
        found.append(firm.restore(model.to(device), op, y, 1, seed=0, sigma=task.sigma).image.cpu())
    torch.testing.assert_close(*found, rtol=0, atol=2e-3)
