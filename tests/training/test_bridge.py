"""The training of a bridge: its loss against a transcription, batches, a short run."""

from pathlib import Path

import pytest
import torch
from helpers import Watch

import firm
from bridge_helpers import Both, Wave, numpy_schedule
from firm.baselines import i2sb
from firm.baselines._i2sb import degraded_image
from firm.metrics import psnr
from firm.networks import PriorUNet, ResUNet
from firm.operators import first_guess
from firm.tasks import Rows, Task
from firm.training.bridge import Bridge
from firm.training.config import ConfigError, load_config
from firm.training.log import read_log
from firm.training.objectives import Batch

CONFIG = Path(__file__).parents[2] / "configs" / "baselines" / "i2sb.yaml"
TINY = [
    "dataset=folder", "size=16", "batch_size=8", "epochs=4", "steps_per_epoch=10", "ema_from_epoch=1", "ema_decay=0.9",
    "network={class: PriorUNet, ch: 8, mult: [1, 2], blocks: 1, attention: [], groups: 4}",
    "max_minutes=0", "val_images=4", "bf16=false", "lr=4e-3",
    "warmup_steps=0", "checkpoint_every=0", "log_every=1", "optimizer=adamw",
]  # fmt: skip
CONDITIONED = "network={class: ResUNet, widths: [8, 16], blocks: 1}"


@pytest.fixture
def configured(pictures, tmp_path):
    """The shipped configuration, for a small run, with changes."""
    return lambda *changes: load_config(CONFIG, [*TINY, *changes, f"data={pictures}", f"out={tmp_path / 'run'}"])


@pytest.fixture
def config(configured):
    return configured()


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


def test_the_loss_of_a_conditioned_network(configured):
    """The same error, of a network that sees the degraded image too, with zeros in its holes; not in deblurring."""
    config = configured(CONDITIONED)
    tasks, rows = config.make_tasks(), [Rows(2, 0, 2)] * 4
    x_1, t = torch.rand(8, 3, 16, 16) * 2 - 1, torch.linspace(0, 0.99, 8)
    torch.manual_seed(3)
    error, _ = Bridge(config).loss(Both(), Batch(x_1, t, rows, tasks))

    torch.manual_seed(3)
    for _ in range(2):
        [r.randn(3, 16, 16, device=x_1.device) for r in rows]  # the holes' and the bridge's noise
    drawn = [task.draw(part, r) for task, part, r in zip(tasks, x_1.split(2), rows, strict=True)]
    (_, blurred, _), (small, y, _), *holes = drawn
    images = [torch.zeros_like(blurred), first_guess(small, y), *(op.mask * y for op, y, _ in holes)]

    def at_hand(x, t):
        return Both()(x, torch.cat(images), t)

    torch.manual_seed(3)
    torch.testing.assert_close(Bridge(configured()).loss(at_hand, Batch(x_1, t, rows, tasks))[0], error)


def test_a_bridge_sees_no_more_than_two_images(configured):
    with pytest.raises(ConfigError, match="sees x and the degraded image at most, and takes no extra"):
        Bridge(configured(CONDITIONED.replace("}", ", extra: [previous]}")))


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
def test_a_bridge_learns_and_restores(configured, pictures, kind, settings, fit, make_trainer):
    config = configured(*settings)
    result = fit(config)
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
    x = firm.data.load_images("folder", pictures, size=16, progress=False).batch(slice(0, 8))
    op, y = Task("random-inpainting", 16).measure(x)
    g = torch.Generator().manual_seed(0)
    restored = i2sb(net, op, y, 0.01, steps=5, generator=g)
    start, *_ = degraded_image(op, y, torch.randn(x.shape, generator=g), ode=True)
    assert float((psnr(restored, x) - psnr(start, x)).mean()) > 1
    trainer = make_trainer(config)
    assert trainer.objective.weights == "uniform"
    assert trainer.loss.counts == [2, 2, 3, 1]  # of 8, by the weights 0.75, 1.4, 1.5 and 0.35
