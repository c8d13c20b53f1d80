"""The objective `prior`: the loss of an unconditional flow, its pairs, and what is saved; objectives of one's own."""

import pytest
import torch
from helpers import Watch, same, tells
from scipy.optimize import linear_sum_assignment
from torch import nn
from torch.nn import functional as F

import firm
from firm._util.machine import Ranks
from firm.data import load_images
from firm.metrics import psnr
from firm.networks import denoise
from firm.tasks import Rows
from firm.training.config import ConfigError, load_config
from firm.training.log import read_log
from firm.training.loop import train
from firm.training.objectives import Batch
from firm.training.prior import LEVELS, Prior, _pair

RANK = Ranks(0, 1, torch.device("cpu"))
PRIOR = ["objective=prior", "t_min=0", "t_max=0.9999", "warm_start_epochs=0"]


class Linear(nn.Module):
    """v(x, t) = a x + b t, to compute with by hand."""

    def forward(self, x, t):
        return 0.3 * x + 0.7 * t.reshape(-1, 1, 1, 1)


def image_like(batch, seed):
    """Smooth color pictures with a common part and a brightness of their own, and noise."""
    g = torch.Generator().manual_seed(seed)
    x = 0.7 * F.interpolate(torch.rand(batch, 3, 6, 6, generator=g) * 2 - 1, size=32, mode="bicubic")
    x = x + 0.5 * F.interpolate(torch.randn(1, 3, 4, 4, generator=g), size=32, mode="bicubic")
    return torch.randn(batch, 3, 32, 32, generator=g), x + 0.6 * torch.randn(batch, 3, 1, 1, generator=g)


@pytest.mark.parametrize("batch", [64, 128])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_pairs_are_nearly_the_optimal_assignment(batch, seed):
    x_0, x_1 = image_like(batch, seed)
    chosen = _pair(x_0, x_1)
    assert sorted(chosen.tolist()) == list(range(batch))
    cost = torch.cdist(x_1.flatten(1).double(), x_0.flatten(1).double()).square()
    rows, columns = linear_sum_assignment(cost.numpy())
    before, best = float(cost.diag().sum()), float(cost[rows, columns].sum())
    gained = before - float(cost[torch.arange(batch), chosen].sum())
    assert gained > 0.99 * (before - best) > 0


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_pairs_of_few_samples_are_optimal(batch):
    x_0, x_1 = image_like(batch, 4)
    _, columns = linear_sum_assignment(-(x_1.flatten(1) @ x_0.flatten(1).T).numpy())
    assert _pair(x_0, x_1).tolist() == columns.tolist()


def test_pairs_of_equal_images_are_a_permutation_all_the_same():
    for x_1 in (torch.zeros(8, 3, 4, 4), torch.ones(8, 3, 4, 4), torch.randn(2, 3, 4, 4).repeat(4, 1, 1, 1)):
        assert sorted(_pair(torch.randn(8, 3, 4, 4), x_1).tolist()) == list(range(8))


def test_pairing_does_not_wait_for_the_device():
    """Nothing is read back, and no shape depends on values: a CUDA graph can hold it."""
    watch = Watch()
    with watch:
        _pair(torch.randn(16, 3, 8, 8), torch.randn(16, 3, 8, 8))
    assert "aten::logsumexp" in watch.seen
    assert not watch.waits()


@pytest.mark.parametrize("pairing", ["independent", "optimal"])
def test_the_loss_is_the_flow_matching_error(pairing, make):
    config = make(*PRIOR, f"pairing={pairing}")
    x_1, t = torch.rand(8, 3, 16, 16) * 2 - 1, torch.linspace(0, 0.99, 8)
    batch = Batch(x_1, t, [Rows(8, 0, 8)], [])
    torch.manual_seed(3)
    error, times = Prior(config).loss(Linear(), batch)
    torch.manual_seed(3)
    x_0 = torch.randn(8, 3, 16, 16)
    if pairing == "optimal":
        _, columns = linear_sum_assignment(torch.cdist(x_1.flatten(1), x_0.flatten(1)).square().numpy())
        x_0 = x_0[torch.from_numpy(columns)]
    for i in range(8):
        x_t = (1 - t[i]) * x_0[i] + t[i] * x_1[i]
        expected = ((0.3 * x_t + 0.7 * t[i] - (x_1[i] - x_0[i])) ** 2).mean()
        torch.testing.assert_close(error[i], expected)
    assert torch.equal(times, t)


def test_every_time_counts_alike(make_trainer):
    """The prior's loss has no weights: the engine's is the plain mean of the errors."""
    trainer = make_trainer(*PRIOR)
    errors, times = torch.rand(8), torch.linspace(0, 0.99, 8)
    trainer.loss._objective.loss = lambda net, batch: (errors, times)
    assert torch.equal(trainer.loss(times, 0, False), errors.mean())
    assert trainer.loss.balance is None
    assert (trainer.loss.tasks, trainer.loss.counts) == ([], [8])


@pytest.fixture(scope="module")
def trained(tmp_path_factory, pictures, tiny):
    """A short run, of which several tests look at the result."""
    root = tmp_path_factory.mktemp("prior")
    (root / "c.yaml").write_text(tiny + f"data: {pictures}\n")
    settings = ["epochs=8", "steps_per_epoch=25", "val_images=8", "lr=4e-3", "ema_decay=0.95", "pairing=optimal"]
    config = load_config(root / "c.yaml", [*PRIOR, *settings, f"out={root / 'run'}"])
    return root / "run", train(config, RANK, progress=False), pictures


def test_a_prior_learns_and_denoises(trained):
    run, result, pictures = trained
    losses = [row["loss"] for row in read_log(run) if "loss" in row]
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
    net = firm.load_network(run / "model.safetensors")
    assert type(net).__name__ == "PriorUNet"
    assert net.card["objective"] == "prior"
    assert net.card["trained_for"] == []
    x = load_images("folder", pictures, size=16, progress=False).batch(slice(0, 8))
    for sigma in (0.2, 0.5):
        y = x + sigma * torch.randn(x.shape, generator=torch.Generator().manual_seed(9))
        gained = float((psnr(denoise(net, y, sigma), x) - psnr(y, x)).mean())
        assert gained > 1
    assert {f"psnr sigma={level}" for level in LEVELS} <= result.keys()
    y = x + 0.2 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    assert result["psnr sigma=0.2"] == pytest.approx(float(psnr(denoise(net, y, 0.2), x).mean()), abs=0.3)
    assert (run / "best.safetensors").is_file()
    assert (run / "validation" / "step_000000200.png").is_file()


def test_a_prior_is_no_firm_model(trained):
    with pytest.raises(ValueError, match=r"holds a prior, not a FIRM model: read it with firm\.load_network"):
        firm.load(trained[0] / "model.safetensors")
    tells("holds a prior", "evaluate", trained[0] / "model.safetensors", "--data", trained[2])


def test_a_prior_continues_bit_identical(make, tmp_path, interrupted, fit):
    settings = [*PRIOR, "epochs=2", "val_images=0", "memory_map=true", f"cache={tmp_path / 'cache'}", "flips=true"]
    fit(*settings, out="whole")
    assert interrupted(make(*settings, out="cut"), 8)["steps_now"] == 15  # from the checkpoint of step 5
    whole, cut = (firm.load_network(tmp_path / name / "model.safetensors").state_dict() for name in ("whole", "cut"))
    assert same(whole, cut)


OBJECTIVE = '''
from firm.training.objectives import Objective

class Denoiser(Objective):
    """|net(y, y, t) - x|^2 for noise of level t."""
    kind = "denoiser"

    def loss(self, net, batch):
        op, y, sigma = batch.measure()
        noisy = batch.x_1 + batch.t.reshape(-1, 1, 1, 1) * batch.randn()
        return (net(noisy, y, batch.t) - batch.x_1).square().flatten(1).mean(1), batch.t

    def validate(self, net, images, picture):
        assert not net.training
        return {"score": -float(len(images)), "other": 9.0}

class Lazy(Objective):
    measures = False
'''


def test_an_objective_of_ones_own(make, make_trainer, tmp_path, fit):
    (tmp_path / "mine.py").write_text(OBJECTIVE)
    config = make(f"objective={tmp_path / 'mine.py'}:Denoiser", "task=denoising", "epochs=2", "validate_every=10")
    result = fit(config)
    assert (result["score"], result["other"]) == (-4.0, 9.0)
    rows = read_log(tmp_path / "run")
    assert rows[-2]["loss"] < 0.8 * rows[0]["loss"]
    assert firm.load_network(tmp_path / "run" / "best.safetensors").card["steps"] == 10  # the first of equal scores
    lazy = make(f"objective={tmp_path / 'mine.py'}:Lazy", out="lazy")
    with pytest.raises(ConfigError, match="Lazy must define loss"):
        fit(lazy)
    assert make_trainer(lazy).validate(None, None) == {}


def test_a_prior_takes_no_noise_level(make, fit):
    aware = make(*PRIOR, "network={ch: 8, mult: [1, 2], blocks: 1, groups: 4, noise_level: true}")
    with pytest.raises(ConfigError, match="takes no noise_level"):
        fit(aware)
