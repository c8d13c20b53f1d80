"""I2SB: its schedule, the sampler in closed form, the objective against a transcription, a short training run."""

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import Watch, save_pictures
from torch import nn

import firm
from firm._util.distributed import Ranks
from firm.baselines import i2sb
from firm.baselines._i2sb import degraded_image, marginal, mode_of, schedule, spaced, times
from firm.data import Images
from firm.metrics import psnr
from firm.networks import PriorResUNet, PriorUNet, ResUNet
from firm.operators import Blur, Downsample, Fourier, Identity, Mask, Subsample, box_mask, first_guess, gaussian_kernel
from firm.tasks import Rows, Task
from firm.training.batch import Batch
from firm.training.bridge import Bridge
from firm.training.config import ConfigError, load_config
from firm.training.logs import read_log
from firm.training.loop import train
from firm.training.trainer import Trainer

RANK = Ranks(0, 1, torch.device("cpu"))
CONFIG = Path(__file__).parents[2] / "configs" / "baselines" / "i2sb.yaml"
TINY = [
    "dataset=folder", "size=16", "batch=8", "epochs=4", "steps_per_epoch=10", "ema_from_epoch=1", "ema_decay=0.9",
    "network={class: PriorUNet, ch: 8, mult: [1, 2], blocks: 1, attention: [], groups: 4}",
    "max_minutes=0", "val_images=4", "bf16=false", "rate=4e-3",
    "rate_warmup=0", "checkpoint_every=0", "log_every=1", "optimiser=adamw",
]  # fmt: skip
CONDITIONED = "network={class: ResUNet, widths: [8, 16], blocks: 1}"


def numpy_schedule(beta_max):
    """The schedule once more, number by number."""
    beta = np.empty(1000)
    for i in range(500):
        low, high = np.sqrt(1e-4), np.sqrt(beta_max / 1000)
        beta[i] = beta[999 - i] = (low + i / 999 * (high - low)) ** 2
    s2 = np.array([beta[: n + 1].sum() for n in range(1000)])
    return beta, s2, np.array([beta[n:].sum() for n in range(1000)])


@pytest.mark.parametrize("beta_max", [0.3, 1.0])
def test_schedule(beta_max):
    beta, s2, sbar2 = numpy_schedule(beta_max)
    found = schedule(beta_max)
    np.testing.assert_allclose(found[0].numpy(), s2, rtol=1e-12)
    np.testing.assert_allclose(found[1].numpy(), sbar2, rtol=1e-12)
    torch.testing.assert_close(found[0].flip(0), found[1])  # beta is symmetric
    np.testing.assert_allclose(s2 + sbar2, beta.sum() + beta)
    share, variance = marginal(beta_max)
    torch.testing.assert_close(share + share.flip(0), torch.ones(1000, dtype=torch.float64))
    np.testing.assert_allclose(variance.numpy(), s2 * sbar2 / (s2 + sbar2))
    assert (times()[0], times()[-1]) == (1e-4, 1)


def test_spaced_steps():
    assert spaced(1) == [0, 999]
    assert spaced(2) == [0, 500, 999]
    assert spaced(999) == list(range(1000))
    assert all(b - a in (9, 10, 11) for a, b in zip(spaced(100), spaced(100)[1:], strict=False))


class Oracle:
    """Knows the clean images, and keeps what it was called with."""

    def __init__(self, clean, beta_max):
        self.clean, self.s = clean, schedule(beta_max)[0].sqrt()
        self.calls = []

    def __call__(self, x, t):
        n = (times() - t[0].double()).abs().argmin()
        self.calls.append((int(n), x.clone()))
        assert t.shape == (len(x),)
        return (x - self.clean) / self.s[n].to(x.dtype)


@pytest.mark.parametrize("steps", [1, 7, 100, 999])
def test_with_a_perfect_network_the_ode_ends_at_the_clean_image(steps):
    """All but the share s_0^2 / s_999^2 of the degraded image, whatever the number of steps."""
    clean, degraded = torch.randn(2, 1, 4, 4).double(), torch.randn(2, 1, 4, 4).double()
    oracle = Oracle(clean, 1.0)
    x = i2sb(oracle, Identity(), degraded, 0.1, steps=steps)
    s2 = numpy_schedule(1.0)[1]
    torch.testing.assert_close(x, clean + s2[0] / s2[-1] * (degraded - clean), rtol=1e-9, atol=1e-12)
    assert [n for n, _ in oracle.calls] == spaced(steps)[:0:-1]
    for n, state in oracle.calls:
        torch.testing.assert_close(state, clean + s2[n] / s2[-1] * (degraded - clean), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("steps", [1, 3, 20])
def test_with_a_perfect_network_the_steps_draw_from_the_bridge(steps):
    """Chained posteriors are the Brownian bridge from the degraded image: its mean and variance at every step."""
    clean, degraded = (torch.full((1, 1, 200, 200), v, dtype=torch.float64) for v in (0.3, -0.6))
    oracle = Oracle(clean, 0.3)
    x = i2sb(oracle, Identity(), degraded, 0.1, steps=steps, beta_max=0.3, ode=False)
    beta, s2, _ = numpy_schedule(0.3)
    S2 = s2[-1]
    for n, state in oracle.calls:
        expected = s2[n] * (S2 - s2[n]) / S2
        deviation = state - (0.3 - 0.9 * s2[n] / S2)
        assert float(deviation.square().mean()) == pytest.approx(expected, rel=0.04, abs=1e-18)
        assert abs(float(deviation.mean())) <= 5 * expected**0.5 / 200 + 1e-9
        # and that is q(x_n | clean, degraded), but for the beta_n that q counts twice
        assert float(marginal(0.3)[1][n]) == pytest.approx(expected, abs=1.1 * beta[n])
    # the last step shrinks the noise of the one before, and adds none
    n = spaced(steps)[1]
    expected = (s2[0] / s2[n]) ** 2 * s2[n] * (S2 - s2[n]) / S2
    assert float((x - (0.3 - 0.9 * s2[0] / S2)).square().mean()) == pytest.approx(expected, rel=0.04, abs=1e-18)


class Wave(nn.Module):
    """Some function of x and t, in which a pixel depends on its neighbour."""

    def forward(self, x, t):
        return (2 * x.roll(1, -1)).sin() + t.reshape(-1, 1, 1, 1)


@pytest.mark.parametrize("ode", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_two_steps_are_those_of_the_publication(ode, masked):
    mask = (torch.rand(6, 6) > 0.5).float()
    op = Mask(mask) if masked else Identity()
    y = op.A(torch.randn(2, 3, 6, 6))
    found = i2sb(Wave(), op, y, 0.1, steps=2, beta_max=0.5, ode=ode, generator=torch.Generator().manual_seed(4))

    g = torch.Generator().manual_seed(4)
    _, s2, sbar2 = numpy_schedule(0.5)
    filling = torch.randn(2, 3, 6, 6, generator=g)
    start = mask * y + (1 - mask) * filling if masked else y
    x = start
    for n, m in ((999, 500), (500, 0)):
        t = 1e-4 + n / 999 * (1 - 1e-4)
        clean = x - s2[n] ** 0.5 * ((2 * x.roll(1, -1)).sin() + t)
        delta = s2[n] - s2[m]
        x = (delta * clean + s2[m] * x) / (s2[m] + delta)
        known = start
        if not ode and m > 0:
            eps = torch.randn(2, 3, 6, 6, generator=g)
            x = x + (s2[m] * delta / (s2[m] + delta)) ** 0.5 * eps
            known = start + (s2[m] * sbar2[m] / (s2[m] + sbar2[m])) ** 0.5 * eps
        x = mask * known + (1 - mask) * x if masked else x
    torch.testing.assert_close(found, x, rtol=1e-5, atol=1e-5)
    if masked:
        assert torch.equal(found * mask, y)  # seen pixels keep their noise


class Both(nn.Module):
    """Some function of the state, the degraded image and t."""

    def forward(self, x, degraded, t):
        return (2 * x.roll(1, -1)).sin() + degraded.roll(2, -2) + t.reshape(-1, 1, 1, 1)


@pytest.mark.parametrize("task", ["deblurring", "super-resolution", "random-inpainting"])
def test_a_conditioned_network_sees_the_degraded_image_too(task):
    """As a network that has the image at hand; in inpainting its holes are 0, and not the noise of the state."""
    x = torch.rand(2, 3, 16, 16) * 2 - 1
    op, y = Task(task, 16).measure(x)
    image = y if task == "deblurring" else first_guess(op, y) if task == "super-resolution" else y * op.mask
    settings = dict(steps=3, generator=torch.Generator().manual_seed(4))
    found = i2sb(Both(), op, y, 0.1, conditioned=True, **settings)
    settings["generator"].manual_seed(4)
    torch.testing.assert_close(i2sb(lambda x, t: Both()(x, image, t), op, y, 0.1, **settings), found)


def test_the_network_says_whether_it_is_conditioned():
    y, op = torch.rand(1, 3, 16, 16), Identity()
    net = ResUNet(3, widths=(8, 16), blocks=1)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.1)
    restored = i2sb(net, op, y, 0.1, steps=2, conditioned=True)
    torch.testing.assert_close(i2sb(net, op, y, 0.1, steps=2), restored)
    torch.testing.assert_close(i2sb(firm.acceleration.fast_network(net, "float32"), op, y, 0.1, steps=2), restored)
    with pytest.raises(ValueError, match="this network sees 1 image; a bridge sees its state"):
        i2sb(PriorResUNet(3, widths=(8, 16), blocks=1), op, y, 0.1, conditioned=True)
    with pytest.raises(ValueError, match="this network sees 2 images; a bridge"):
        i2sb(net, op, y, 0.1, conditioned=False)
    with pytest.raises(ValueError, match="this network sees 3 images"):
        i2sb(ResUNet(3, widths=(8, 16), blocks=1, extra=("previous",)), op, y, 0.1)


def test_the_degraded_image():
    x = torch.rand(2, 3, 16, 16) * 2 - 1
    noise = torch.randn_like(x)
    for op in (Identity(), Blur(gaussian_kernel(5, 1.0))):
        y = op.A(x)
        image, known = degraded_image(op, y, noise)
        assert image is y
        assert known is None
        assert mode_of(op) == (1.0, True)
    for op in (Subsample(2), Downsample(2, "bicubic")):
        image, known = degraded_image(op, op.A(x), noise)
        assert torch.equal(image, first_guess(op, op.A(x)))
        assert image.shape == x.shape
        assert known is None
        assert mode_of(op) == (0.3, False)
    op = Fourier(torch.ones(16, 16))
    image, known = degraded_image(op, op.A(x), noise)
    torch.testing.assert_close(image, x)
    assert known is None
    weights = box_mask((16, 16), 6) * 0.5
    op = Mask(weights)
    image, known = degraded_image(op, op.A(x), noise)
    assert torch.equal(known, weights > 0)
    assert torch.equal(image, torch.where(known, x, noise))
    assert mode_of(op) == (1.0, True)


@pytest.mark.parametrize("task", ["super-resolution", "random-inpainting"])
def test_an_image_does_not_depend_on_its_batch(task):
    x = torch.rand(3, 3, 16, 16) * 2 - 1
    op, y = Task(task, 16).measure(x)

    def run(rows):
        generators = [torch.Generator().manual_seed(i) for i in rows]
        return i2sb(Wave(), op, y[rows], 0.05, steps=3, generator=generators)

    together = run([0, 1, 2])
    torch.testing.assert_close(run([1]), together[1:2])
    assert not torch.equal(run([1]), run([0]))


def test_progress_and_wrong_inputs():
    net, y = PriorUNet(3, side=16, ch=8, mult=(1, 2), blocks=1, attention=(), groups=4), torch.zeros(1, 3, 16, 16)
    seen = []
    out = i2sb(net, Identity(), y, 0.1, steps=3, callback=lambda i, N, x: seen.append((i, N, x)))
    assert [s[:2] for s in seen] == [(1, 3), (2, 3), (3, 3)]
    assert torch.equal(seen[-1][2], out)
    assert not out.requires_grad
    for steps in (0, 1000):
        with pytest.raises(ValueError, match=f"steps must be from 1 to 999, got {steps}"):
            i2sb(net, Identity(), y, 0.1, steps=steps)
    with pytest.raises(ValueError, match="beta_max must be positive"):
        i2sb(net, Identity(), y, 0.1, beta_max=0.0)
    with pytest.raises(ValueError, match="1 values of y"):
        i2sb(net, Identity(), y.clone().index_put((torch.tensor(0),) * 4, torch.tensor(float("nan"))), 0.1)
    with pytest.raises(ValueError, match=r"images \(B, 3, H, W\)"):
        i2sb(net, Identity(), y[:, :1], 0.1)
    with pytest.raises(ValueError, match="multiples of 2"):
        i2sb(net, Identity(), y[..., :15], 0.1)
    with pytest.raises(ValueError, match="sigma"):
        i2sb(net, Identity(), y, -1.0)


# Training


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return save_pictures(tmp_path_factory.mktemp("pictures"), 32, (20, 20))


@pytest.fixture
def config(pictures, tmp_path):
    return load_config(CONFIG, [*TINY, f"data={pictures}", f"out={tmp_path / 'run'}"])


class Counted(Wave):
    """Keeps what it was called with."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def forward(self, x, t):
        self.calls.append((x, t))
        return super().forward(x, t)


def test_the_loss_is_that_of_the_publication(config):
    tasks, net = config.make_tasks(), Counted()
    assert [task.name for task in tasks] == ["deblurring", "super-resolution", "random-inpainting", "box-inpainting"]
    x_1, t = torch.rand(8, 3, 16, 16) * 2 - 1, torch.tensor([0.0, 0.3, 0.5, 0.9999, 0.7, 0.0015, 0.2, 0.8])
    rows = [Rows(2, 0, 2)] * 4
    batch = Batch(x_1, t, rows, tasks)
    torch.manual_seed(3)
    error, of_times = Bridge(config).loss(net, batch)
    assert torch.equal(of_times, t)
    ((given_x, given_t),) = net.calls  # all tasks in one call
    assert given_x.shape == x_1.shape

    torch.manual_seed(3)
    filling, eps = (torch.cat([r.randn(3, 16, 16, device=x_1.device) for r in rows]) for _ in range(2))
    drawn = [task.draw(part, r) for task, part, r in zip(tasks, x_1.split(2), rows, strict=True)]
    for i, n in enumerate([0, 300, 500, 999, 700, 1, 200, 800]):
        (op, y, _), k = drawn[i // 2], i % 2
        mask = torch.ones(16, 16)
        if i < 2:
            beta_max, noise, degraded = 1.0, 0.0, y[k]
        elif i < 4:
            beta_max, noise, degraded = 0.3, 1.0, first_guess(op, y)[k]
        else:
            seen = op.mask[k, 0] if op.mask.ndim == 4 else op.mask
            assert 0 < seen.mean() < 1
            mask, beta_max, noise = 1 - seen, 1.0, 0.0
            degraded = seen * y[k] + mask * filling[i]
        _, s2, sbar2 = numpy_schedule(beta_max)
        both = s2[n] + sbar2[n]
        x_n = (sbar2[n] * x_1[i] + s2[n] * degraded) / both + noise * (s2[n] * sbar2[n] / both) ** 0.5 * eps[i]
        time = 1e-4 + n / 999 * (1 - 1e-4)
        torch.testing.assert_close(given_x[i], x_n)
        assert float(given_t[i]) == pytest.approx(time)
        difference = (2 * x_n.roll(1, -1)).sin() + time - (x_n - x_1[i]) / s2[n] ** 0.5
        expected = (mask * difference**2).sum() / (3 * mask.sum())
        torch.testing.assert_close(error[i], expected, rtol=1e-3, atol=1e-4)


def test_the_loss_of_a_conditioned_network(pictures, tmp_path):
    """The same error, of a network that sees the degraded image too, with zeros in its holes."""
    config = load_config(CONFIG, [*TINY, CONDITIONED, f"data={pictures}", f"out={tmp_path / 'run'}"])
    tasks, rows = config.make_tasks(), [Rows(2, 0, 2)] * 4
    x_1, t = torch.rand(8, 3, 16, 16) * 2 - 1, torch.linspace(0, 0.99, 8)
    torch.manual_seed(3)
    error, _ = Bridge(config).loss(Both(), Batch(x_1, t, rows, tasks))

    torch.manual_seed(3)
    for _ in range(2):
        [r.randn(3, 16, 16, device=x_1.device) for r in rows]  # the holes' and the bridge's noise
    drawn = [task.draw(part, r) for task, part, r in zip(tasks, x_1.split(2), rows, strict=True)]
    (_, blurred, _), (small, y, _), *holes = drawn
    images = [blurred, first_guess(small, y), *(op.mask * y for op, y, _ in holes)]

    def at_hand(x, t):
        return Both()(x, torch.cat(images), t)

    torch.manual_seed(3)
    plain = Bridge(load_config(CONFIG, [*TINY, f"data={pictures}", f"out={tmp_path / 'run'}"]))
    torch.testing.assert_close(plain.loss(at_hand, Batch(x_1, t, rows, tasks))[0], error)


def test_a_bridge_sees_no_more_than_two_images(pictures, tmp_path):
    network = CONDITIONED.replace("}", ", extra: [previous]}")
    with pytest.raises(ConfigError, match="sees x and the degraded image at most, and takes no extra"):
        Bridge(load_config(CONFIG, [*TINY, network, f"data={pictures}", f"out={tmp_path / 'run'}"]))


def test_without_holes_the_error_is_zero_and_finite(config):
    task = Task("random-inpainting", 16, mask="fresh", missing=0.0)
    batch = Batch(torch.rand(2, 3, 16, 16), torch.tensor([0.1, 0.9]), [Rows(2, 0, 2)], [task])
    assert torch.equal(Bridge(config).loss(Wave(), batch)[0], torch.zeros(2))


def test_the_loss_does_not_wait_and_stays_precise_in_bf16(config):
    watch = Watch()
    tasks, net = config.make_tasks(), Counted()
    batch = Batch(torch.rand(8, 3, 16, 16), torch.linspace(0, 0.99, 8), [Rows(2, 0, 2)] * 4, tasks)
    objective = Bridge(config)
    objective.loss(net, batch)  # operators that are the same every time are made once
    with watch, torch.autocast("cpu", torch.bfloat16):
        error, _ = objective.loss(net, batch)
    assert "aten::masked_fill" in watch.seen or "aten::masked_fill_" in watch.seen
    assert not watch.waits()
    assert net.calls[-1][0].dtype == error.dtype == torch.float32


def test_the_batch_may_be_split(config):
    """Two halves see what the whole sees."""
    tasks, net = config.make_tasks(), Wave()
    x_1, t = torch.rand(8, 3, 16, 16), torch.linspace(0, 0.99, 8)
    torch.manual_seed(1)
    whole, _ = Bridge(config).loss(net, Batch(x_1, t, [Rows(2, 0, 2)] * 4, tasks))
    for k in range(2):
        torch.manual_seed(1)
        part = Batch(x_1[k::2], t[k::2], [Rows(2, k, k + 1)] * 4, tasks)
        torch.testing.assert_close(Bridge(config).loss(net, part)[0], whole[k::2])


@pytest.mark.parametrize(("kind", "settings"), [(PriorUNet, []), (ResUNet, [CONDITIONED])])
def test_a_bridge_learns_and_restores(pictures, tmp_path, kind, settings):
    config = load_config(CONFIG, [*TINY, *settings, f"data={pictures}", f"out={tmp_path / 'run'}"])
    result = train(config, RANK, progress=False)
    out = Path(config.out)
    losses = [row["loss"] for row in read_log(out) if "loss" in row]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    names = ["deblurring", "super-resolution", "random-inpainting", "box-inpainting"]
    scores = [result[f"psnr {name}"] for name in names]
    assert result["psnr"] == pytest.approx(sum(scores) / 4, abs=1e-3)
    assert (out / "best.safetensors").is_file()
    assert len(list((out / "validation").glob("*.png"))) == 1
    net = firm.load_network(out / "model.safetensors")
    assert type(net) is kind
    assert (net.card["objective"], len(net.card["trained_for"])) == ("bridge", 4)
    with pytest.raises(ValueError, match=r"holds a bridge, not a FIRM model: read it with firm\.load_network"):
        firm.load(out / "model.safetensors")
    x = firm.data.load_images("folder", pictures, size=16, progress=False).batch(slice(0, 8))
    op, y = Task("random-inpainting", 16).measure(x)
    g = torch.Generator().manual_seed(0)
    restored = i2sb(net, op, y, 0.01, steps=5, generator=g)
    start, _ = degraded_image(op, y, torch.randn(x.shape, generator=g))
    assert float((psnr(restored, x) - psnr(start, x)).mean()) > 1
    trainer = Trainer(config, RANK, Images(torch.zeros(4, 3, 16, 16), list("abcd")))
    assert trainer.objective.weights == "uniform"
    assert trainer.loss.counts == [2, 2, 2, 2]


def test_the_network_takes_no_noise_level(config, pictures):
    settings = [*TINY, "network={ch: 8, mult: [1, 2], blocks: 1, noise_level: true}", f"data={pictures}"]
    with pytest.raises(ConfigError, match="no noise_level"):
        Bridge(load_config(CONFIG, settings))
