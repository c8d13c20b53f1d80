"""ISTA-Net+: its phases and its loss against the formulas, its training, and what is saved."""

from pathlib import Path

import pytest
import torch
from helpers import Watch
from torch.nn import functional as F

import firm
from firm import operators
from firm._util.machine import Ranks
from firm.acceleration.compiled import compile_blocks
from firm.data import load_images
from firm.metrics import psnr
from firm.networks import ISTANet
from firm.tasks import Rows, Task
from firm.training.config import ConfigError, load_config
from firm.training.denoiser import Unrolled
from firm.training.estimate import estimate
from firm.training.log import read_log
from firm.training.loop import train
from firm.training.objectives import Batch
from firm.training.optimizer import make_optimizers

RANK = Ranks(0, 1, torch.device("cpu"))
CONFIG = Path(__file__).parents[2] / "configs" / "baselines" / "ista-net.yaml"
TRAINING = [
    "objective=unrolled", "task=deblurring", "network={phases: 2, features: 16}", "ema_decay=0.8", "lr=5e-3",
]  # fmt: skip


def flipped_sum(y):
    return y.flip(-1).cumsum(-1).flip(-1)


OPERATORS = {  # of every kind, for a batch of images of 16 x 16
    "identity": lambda batch: operators.Identity(),
    "mask": lambda batch: operators.Mask(operators.random_mask((batch, 1, 16, 16), 0.4)),
    "subsample": lambda batch: operators.Subsample(2),
    "blur": lambda batch: operators.Blur(operators.gaussian_kernel(7, 1.0)),
    "fourier": lambda batch: operators.Fourier(operators.cartesian_mask((16, 16), 6)),
    "functions": lambda batch: operators.from_functions(lambda v: v.cumsum(-1) / 16, lambda y: flipped_sum(y) / 16),
    "derived": lambda batch: operators.from_functions(lambda v: v.cumsum(-1) / 16, image_shape=(3, 16, 16)),
}


def measurement(batch, kind):
    op = OPERATORS[kind](batch)
    return op, op.A(torch.rand(batch, 3, 16, 16) * 2 - 1)


def transcribed(phase, matrix, x, y):
    """One phase with A as a matrix (m, n): the next iterate, and the symmetry residual as an image of features."""
    w = dict(phase.named_parameters())
    D, G, F1, F2, B1, B2 = (w[f"proximal.{key}.weight"] for key in ("D", "G", "F.0", "F.2", "B.0", "B.2"))

    def conv(v, kernel):
        return F.conv2d(v, kernel, padding=1)

    gradient = ((x.flatten(1) @ matrix.T - y) @ matrix).reshape(x.shape)
    r = x - w["step"] * gradient
    features = conv(r, D)
    forward = conv(conv(features, F1).clamp(min=0), F2)
    theta = w["proximal.theta"]
    shrunk = torch.where(forward > theta, forward - theta, torch.where(forward < -theta, forward + theta, 0 * forward))
    following = r + conv(conv(conv(shrunk, B1).clamp(min=0), B2), G)
    return following, conv(conv(forward, B1).clamp(min=0), B2) - features


@pytest.fixture
def problem():
    """A small network with steps and thresholds of its own in every phase, and measurements by a random matrix."""
    net = ISTANet(channels=2, phases=3, features=4).double()
    for k, phase in enumerate(net.phases):
        phase.step.data.fill_(0.3 + 0.1 * k)
        phase.proximal.theta.data.fill_(0.05 * (k + 1))
    matrix = 0.1 * torch.randn(40, 2 * 6 * 5, dtype=torch.float64)
    op = operators.from_functions(lambda x: x.flatten(1) @ matrix.T, lambda y: (y @ matrix).reshape(-1, 2, 6, 5))
    return net, op, matrix, torch.randn(3, 40, dtype=torch.float64)


def test_the_network_starts_as_the_papers():
    net = ISTANet()
    assert len(net.phases) == 9
    assert all(p.step.item() == 0.5 and p.proximal.theta.item() == pytest.approx(0.01) for p in net.phases)
    weight, scale = net.phases[4].proximal.F[0].weight.detach(), (2 / (9 * 64)) ** 0.5
    assert weight.std().item() == pytest.approx(scale, rel=0.03)
    assert weight.abs().max() > 3 * scale  # normal, not uniform


def test_the_network_is_its_phases(problem):
    net, op, matrix, y = problem
    x, total = (y @ matrix).reshape(3, 2, 6, 5), torch.zeros(3, dtype=torch.float64)
    for phase in net.phases:
        x, symmetry = transcribed(phase, matrix, x, y)
        total = total + symmetry.square().mean((1, 2, 3))
    torch.testing.assert_close(net(op, y), x)
    for got, expected in zip(net(op, y, symmetry=True), (x, total), strict=True):
        torch.testing.assert_close(got, expected)


def test_super_resolution_starts_from_the_interpolated_image():
    op, y = measurement(2, "subsample")
    net = ISTANet(phases=1)
    torch.nn.init.zeros_(net.phases[0].proximal.G.weight)
    x = operators.first_guess(op, y)
    assert not torch.equal(x, op.A_adjoint(y))
    torch.testing.assert_close(net(op, y), x - 0.5 * op.A_adjoint(op.A(x) - y))


def test_the_loss_is_the_error_and_a_hundredth_of_the_symmetry(make):
    net = ISTANet(phases=3, features=8)
    x_1, t = torch.rand(4, 3, 16, 16) * 2 - 1, torch.linspace(0, 0.9, 4)
    batch = Batch(x_1, t, [Rows(4, 0, 4)], [Task("deblurring", size=16)])
    torch.manual_seed(3)
    error, times = Unrolled(make()).loss(net, batch)
    torch.manual_seed(3)
    op, y, _ = batch.measure()
    x, expected = operators.first_guess(op, y), torch.zeros(4)
    columns = op.A(torch.eye(16 * 16).reshape(-1, 1, 16, 16)).flatten(1)  # row i: A of unit image i
    matrix = torch.block_diag(columns.T, columns.T, columns.T)
    for phase in net.phases:
        x, symmetry = transcribed(phase, matrix, x, y.flatten(1))
        expected += 0.01 * symmetry.square().mean((1, 2, 3))
    assert expected.min().item() > 3e-4  # it counts
    torch.testing.assert_close(error, expected + (x - x_1).square().mean((1, 2, 3)), rtol=1e-4, atol=1e-6)
    assert torch.equal(times, t)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("kind", OPERATORS)
def test_every_operator_works_and_gradients_reach_every_parameter(kind, batch):
    op, y = measurement(batch, kind)
    net = ISTANet(phases=2, features=8)
    x, residual = net(op, y, symmetry=True)
    assert (x.shape, residual.shape) == ((batch, 3, 16, 16), (batch,))
    (x.square().mean() + residual.mean()).backward()
    still = {"phases.0.step"} if kind in ("identity", "mask") else set()  # their start A'y fits y exactly
    for name, p in net.named_parameters():
        assert p.grad.isfinite().all()
        assert (p.grad.abs().max() > 0) == (name not in still)


@pytest.mark.parametrize("kind", ["blur", "fourier", "subsample"])
def test_the_gradient_step_is_float32_inside_autocast(kind):
    op, y = measurement(2, kind)
    net, seen = ISTANet(phases=2, features=8), []

    def watched(call):
        return lambda v: seen.append((v.dtype, torch.is_autocast_enabled("cpu"))) or call(v)

    with torch.autocast("cpu", torch.bfloat16):
        x, residual = net(operators.from_functions(watched(op.A), watched(op.A_adjoint)), y, symmetry=True)
    assert set(seen) <= {(torch.float32, False), (torch.complex64, False)}
    assert seen
    assert (x.dtype, residual.dtype) == (torch.float32, torch.float32)
    assert not torch.equal(x, net(op, y))  # the convolutions were bfloat16
    torch.testing.assert_close(x, net(op, y), atol=0.1, rtol=0)


def test_nothing_waits_for_the_device():
    """Nothing is read back, and no shape depends on values: a CUDA graph can hold it."""
    watch, net = Watch(), ISTANet(phases=2, features=8)
    for kind in ("mask", "subsample", "blur", "fourier"):
        given = measurement(2, kind)
        with watch:
            sum(v.sum() for v in net(*given, symmetry=True)).backward()
    assert "aten::convolution_backward" in watch.seen
    assert not watch.waits()


@pytest.mark.filterwarnings("ignore")
def test_the_proximal_steps_compile_into_one_graph():
    from torch._dynamo.testing import CompileCounter

    op, y = measurement(2, "blur")
    net = ISTANet(phases=3, features=8)
    expected = net(op, y, symmetry=True)
    counter = CompileCounter()
    compile_blocks(net, backend=counter)
    for got, wanted in zip(net(op, y, symmetry=True), expected, strict=True):
        torch.testing.assert_close(got, wanted)
    assert counter.frame_count == 1  # the phases share it
    sum(v.sum() for v in net(op, y, symmetry=True)).backward()
    assert all(p.grad is not None for p in net.parameters())


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_it_trains_and_comes_back_from_its_file(make, tmp_path, pictures, optimizer):
    result = train(make(f"optimizer={optimizer}", "val_images=8", "task=random-inpainting"), RANK, progress=False)
    losses = [row["loss"] for row in read_log(tmp_path / "run") if "loss" in row]
    assert losses[-1] < 0.5 * losses[0]
    net = firm.load_network(tmp_path / "run" / "model.safetensors")
    assert type(net) is ISTANet
    assert net.config == {"channels": 3, "phases": 2, "features": 16}
    assert (net.card["objective"], net.card["trained_for"][0]["name"]) == ("unrolled", "random-inpainting")
    # The score is the PSNR of the file's network under the protocol: the shared mask, the noise of seed 42.
    task = Task("random-inpainting", size=16)
    x = load_images("folder", pictures, size=16, progress=False).batch(slice(0, 8))  # the first are held out
    op, y = task.measure(x, seed=42, index=0)
    assert result["psnr"] == pytest.approx(float(psnr(net(op, y), x).mean()), abs=1e-3)
    assert result["psnr"] > float(psnr(operators.first_guess(op, y), x).mean()) + 2
    with pytest.raises(ValueError, match="holds a ista-net, not a FIRM model"):
        firm.load(tmp_path / "run" / "model.safetensors")


@pytest.mark.parametrize(
    "settings",
    [["accumulation_steps=2"], ["recompute=calls"],
     ["mixture=[{name: deblurring}, {name: fourier, lines: 6}]"], ["bf16=true"]],
    ids=lambda s: s[0].split("=")[0],
)  # fmt: skip
def test_the_engines_switches_work_with_it(make, tmp_path, settings):
    result = train(make(*settings, "epochs=1", "steps_per_epoch=2", "val_images=2"), RANK, progress=False)
    assert result["psnr"] > 0


def test_muon_leaves_the_outer_convolutions_and_the_scalars_to_adamw():
    net = ISTANet(phases=2, features=8)
    config = load_config(CONFIG, ["network={phases: 2, features: 8}", "optimizer=muon", "data=nowhere"])
    names = {id(p): name for name, p in net.named_parameters()}
    muon = [names[id(p)] for group in make_optimizers(config, net)[1].param_groups for p in group["params"]]
    assert len(muon) == 2 * 4
    assert all(".F." in name or ".B." in name for name in muon)


def test_the_configuration_is_the_papers_network():
    config = load_config(CONFIG, ["data=nowhere"])
    assert config.mask == "fresh"
    assert config.compile_workers == 0
    needed = estimate(config, torch.device("cpu"))
    assert needed["parameters"] == 347_346
    # Multiply-adds of a training call: 6 convolutions, and the 2 of the backward transform once more.
    assert needed["GFLOP per network call"] == pytest.approx(
        9 * 2 * 128**2 * 9 * (6 * 32 * 32 + 2 * 3 * 32) / 1e9, rel=0.01
    )
    with pytest.raises(ConfigError, match="ISTANet takes no noise level"):
        load_config(CONFIG, ["mixture=[{name: deblurring, sigma: [0.01, 0.1]}]", "data=nowhere"])
    with pytest.raises(ConfigError, match="'celeba' is a U-Net"):
        load_config(CONFIG, ["network=celeba", "data=nowhere"])
