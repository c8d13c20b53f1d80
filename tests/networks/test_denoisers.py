"""Denoisers: DRUNet, the gradient-step denoiser, and the objective of both."""

from pathlib import Path

import pytest
import torch
from helpers import Watch, images_and_levels, relative_error, stirred
from torch import nn
from torch.nn import functional as F

import firm
import firm.training.trainer
from firm._model import save_network
from firm._util.machine import Ranks
from firm.baselines import as_denoiser
from firm.data import load_images
from firm.metrics import psnr
from firm.networks import DRUNet, GradientResStep, GradientStep, PriorUNet
from firm.tasks import Rows
from firm.training.config import ConfigError, load_config
from firm.training.denoiser import Denoiser
from firm.training.log import read_log
from firm.training.loop import train
from firm.training.objectives import Batch
from firm.training.trainer import Trainer, _prepare

RANK = Ranks(0, 1, torch.device("cpu"))
SMALL = dict(channels=3, side=8, ch=8, mult=(1, 2), blocks=1, attention=(4,), groups=4)
SETTINGS = dict(channels=3, side=16, ch=8, mult=[1, 2], blocks=1, attention=[], groups=4, unshuffle=2)
TRAINING = [
    "objective=denoiser", "mixture=[{name: denoising, sigma: [0.0, 0.25]}]", "ema_decay=0.95", "lr=1e-2",
    "compile=false",
]  # fmt: skip


def network(**changes):
    """The setting `network` of a small gradient-step denoiser."""
    return f"network={ ({'class': 'GradientStep', **SETTINGS, **changes}) }"


def test_drunet_is_its_description():
    """Written down again with functions of the weights: the blocks, the skips that are added, the map of the noise."""
    assert DRUNet(widths=(4, 6, 8), blocks=1).stride == 4
    net = DRUNet(widths=(4, 6, 8), blocks=2).double()
    x, sigma = images_and_levels()
    w = net.state_dict()

    def blocks(h, prefix, numbers):
        for i in numbers:
            inner = F.conv2d(h, w[f"{prefix}.{i}.conv1.weight"], padding=1).relu()
            h = h + F.conv2d(inner, w[f"{prefix}.{i}.conv2.weight"], padding=1)
        return h

    level = (sigma / 2).reshape(2, 1, 1, 1) * torch.ones(2, 1, 8, 8, dtype=torch.float64)
    x1 = F.conv2d(torch.cat([x / 2 + 0.5, level], 1), w["head.weight"], padding=1)
    x2 = F.conv2d(blocks(x1, "down.0", (0, 1)), w["down.0.2.weight"], stride=2)
    x3 = F.conv2d(blocks(x2, "down.1", (0, 1)), w["down.1.2.weight"], stride=2)
    h = blocks(x3, "body", (0, 1))
    h = blocks(F.conv_transpose2d(h + x3, w["up.0.0.weight"], stride=2), "up.0", (1, 2))
    h = blocks(F.conv_transpose2d(h + x2, w["up.1.0.weight"], stride=2), "up.1", (1, 2))
    expected = 2 * F.conv2d(h + x1, w["tail.weight"], padding=1) - 1
    torch.testing.assert_close(net(x, sigma), expected)


KINDS = {"UNet": lambda: GradientStep(**SMALL), "ResUNet": lambda: GradientResStep(widths=(8, 16), blocks=1)}


@pytest.mark.parametrize("kind", KINDS)
def test_the_step_is_the_potentials_gradient(kind):
    net = stirred(KINDS[kind]().double())
    x, sigma = images_and_levels()
    D, N = net(x, sigma), net.estimate(x, sigma)
    torch.testing.assert_close(net.potential(x, sigma), ((x - N) ** 2).sum((1, 2, 3)) / 2)
    position = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(net.potential(position, sigma).sum(), position)
    torch.testing.assert_close(D, x - gradient)
    assert relative_error(D.detach(), N.detach()) > 1e-3
    u = torch.randn_like(x)
    moved = [net.potential(x + e * u, sigma) for e in (1e-5, -1e-5)]
    torch.testing.assert_close(((x - D) * u).sum((1, 2, 3)), (moved[0] - moved[1]) / 2e-5, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_has_the_right_gradient(kind):
    """Through the backward pass inside, against differences along a direction of all weights, attention's too."""
    net = stirred(KINDS[kind]().double())
    x, sigma = images_and_levels()
    params = list(net.parameters())
    gradients = torch.autograd.grad((net(x, sigma) - 0.3).square().mean(), params)
    assert all(bool(g.abs().max() > 0) for g, (name, _) in zip(gradients, net.named_parameters(), strict=True)
               if "key.bias" not in name)  # fmt: skip  # attention does not depend on that one
    u = [torch.randn_like(p) for p in params]
    values = []
    for e in (1e-6, -2e-6):
        torch._foreach_add_([p.data for p in params], u, alpha=e)
        values.append((net(x, sigma) - 0.3).square().mean())
    along = sum((g * d).sum() for g, d in zip(gradients, u, strict=True))
    torch.testing.assert_close(along, (values[0] - values[1]) / 2e-6, rtol=1e-6, atol=1e-9)


def test_the_step_needs_no_gradients_around_it():
    net = stirred(GradientStep(**SMALL).double())
    x, sigma = images_and_levels()
    expected = net(x, sigma)
    assert expected.requires_grad
    for without in (torch.no_grad, torch.inference_mode):
        with without():
            value = net(x.clone(), sigma.clone())
        assert not value.requires_grad
        torch.testing.assert_close(value, expected.detach())
    assert not x.requires_grad
    assert not net.requires_grad_(False)(x, sigma).requires_grad


def test_the_step_trains_in_bfloat16():
    net = stirred(GradientStep(**SMALL))
    x, sigma = images_and_levels(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        D = net(x, sigma)
        (D - x).square().mean().backward()
    assert D.dtype == torch.float32
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in net.parameters())
    assert relative_error(D.detach(), net(x, sigma).detach()) < 0.05


def test_the_step_does_not_wait_for_the_device():
    """Nothing is read back, forward or backward: a CUDA graph can hold it."""
    watch = Watch()
    net = GradientStep(**SMALL)
    x, sigma = images_and_levels(dtype=torch.float32)
    with watch:
        net(x, sigma).square().mean().backward()
    assert "aten::convolution_backward" in watch.seen
    assert not watch.waits()


def test_the_loss_is_the_mean_square_error(make):
    config = make("network={widths: [4, 8], blocks: 1}")
    x_1, t = torch.rand(8, 3, 16, 16) * 2 - 1, torch.linspace(0, 0.9, 8)

    def half(x, sigma):
        return 0.5 * x + sigma.reshape(-1, 1, 1, 1)

    torch.manual_seed(3)
    error, times = Denoiser(config).loss(half, Batch(x_1, t, [Rows(8, 0, 8)], config.make_tasks()))
    torch.manual_seed(3)
    sigma, noise = 0.25 * torch.rand(8), torch.randn(8, 3, 16, 16)
    noisy = x_1 + sigma.reshape(-1, 1, 1, 1) * noise
    torch.testing.assert_close(error, (half(noisy, sigma) - x_1).square().mean((1, 2, 3)))
    assert torch.equal(times, t)


@pytest.mark.parametrize("kind", ["DRUNet", "GradientStep"])
def test_a_denoiser_learns_and_is_loaded_by_name(kind, make, tmp_path, pictures):
    chosen = "network={widths: [8, 16], blocks: 1}" if kind == "DRUNet" else network(mult=[1], unshuffle=1)
    result = train(make(chosen, "optimizer=muon", "batch_size=4"), RANK, progress=False)
    losses = [row["loss"] for row in read_log(tmp_path / "run") if "loss" in row]
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3])
    net = firm.load_network(tmp_path / "run" / "model.safetensors")
    assert type(net).__name__ == kind
    assert net.card["trained_for"] == [{"weight": 1.0, "name": "denoising", "sigma": [0.0, 0.25]}]
    x = load_images("folder", pictures, size=16, progress=False).batch(slice(0, 8))
    scores = {key: value for key, value in result.items() if key.startswith("psnr")}
    assert list(scores) == ["psnr sigma=0.2", "psnr sigma=0.1", "psnr sigma=0.05"]
    for level in (0.2, 0.1, 0.05):
        y = x + level * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
        assert scores[f"psnr sigma={level}"] == pytest.approx(
            float(psnr(net(y, torch.full((8,), level)), x).mean()), abs=1e-3
        )
    with pytest.raises(ValueError, match="holds a denoiser, not a FIRM model"):
        firm.load(tmp_path / "run" / "model.safetensors")


@pytest.mark.parametrize(
    ("sigma", "levels"), [("[0.0, 0.15]", [0.1, 0.05]), ("[0.3, 0.4]", [0.4]), ("0.2", [0.2]), ("0.01", [0.01])]
)
def test_validation_keeps_to_the_noise_of_training(sigma, levels, make, pictures):
    objective = Denoiser(make("network={widths: [4, 8], blocks: 1}", f"mixture=[{{name: denoising, sigma: {sigma}}}]"))
    images = load_images("folder", pictures, size=16, limit=2, progress=False)
    scores = objective.validate(objective.build(), images, None)
    assert list(scores) == [f"psnr sigma={level:g}" for level in levels]


def test_a_prior_is_the_start_of_a_gradient_step_denoiser(make, tmp_path, pictures):
    prior = stirred(PriorUNet(**SETTINGS), 0.02)
    save_network(tmp_path / "prior.safetensors", prior, "prior", {})
    images = load_images("folder", pictures, size=16, progress=False)
    trainer = Trainer(make(network(), f"init_from={tmp_path / 'prior.safetensors'}"), RANK, images)
    x, sigma = images_and_levels(side=16, dtype=torch.float32)
    N = as_denoiser(prior)(x, sigma)
    assert torch.allclose(trainer.net.estimate(x, sigma), N, atol=1e-6)
    position = x.clone().requires_grad_()
    g = (position - as_denoiser(prior)(position, sigma)).square().sum() / 2
    expected = x - torch.autograd.grad(g, position)[0]
    torch.testing.assert_close(trainer.average(x, sigma), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["network={widths: [4, 8]}", "mixture=[{name: denoising}, {name: deblurring}]"], "not from deblurring"),
        (["network={widths: [4, 8]}", "task=random-inpainting"], "not from random-inpainting"),
        ([network(noise_level=True)], "no noise_level"),
        (["network={widhts: [4, 8]}"], "did you mean 'widths'"),
        ([network(), "compile=true"], "set compile=false"),
        (["objective=paper", "network={ch: 8, mult: [1, 2], blocks: 1, groups: 4}"], "a range of noise levels"),
    ],
)
def test_a_denoisers_configuration_is_checked(settings, said, make):
    with pytest.raises(ConfigError, match=said):
        Denoiser(make(*settings)).build()


@pytest.mark.parametrize("compiled", [False, True])
def test_nothing_is_compiled_where_the_configuration_says_so(compiled, make, monkeypatch):
    made, net = [], nn.Identity()
    net.to = lambda *place, **layout: net
    monkeypatch.setattr(firm.training.trainer, "compile_blocks", lambda net, lean: made.append(net))
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    _prepare(net, make("network={blocks: 1}", f"compile={compiled}".lower()), torch.device("cuda"), False)
    assert len(made) == compiled


def test_the_shipped_configurations_are_the_papers():
    folder = Path(__file__).parents[2] / "configs" / "baselines"
    gs, drunet, prior = (load_config(folder / f"{name}.yaml") for name in ("gradient-step", "drunet", "prior-paper"))
    with torch.device("meta"):
        nets = [config.objective_class(config).build() for config in (gs, drunet, prior)]
    assert [sum(p.numel() for p in net.parameters()) for net in nets] == [8_027_568, 32_640_960, 34_473_667]
    assert gs.make_tasks()[0].ranges == {"sigma": (0, 0.25)}
    assert (gs.compile, gs.cuda_graph) == (False, True)
    assert (prior.batch_size, prior.epochs, prior.lr, prior.lr_end, prior.ema_decay) == (128, 100, 1e-4, 1e-4, 0)
