"""Speed must not change results: compiled formulas, recomputation, accumulation and layout against plain eager."""

from pathlib import Path

import pytest
import torch
import yaml
from torch.utils._python_dispatch import TorchDispatchMode

import firm
from firm._util.distributed import Ranks
from firm.acceleration.compiled import compile_blocks
from firm.training.images import load_sets
from firm.training.trainer import Trainer

RANK = Ranks(0, 1, torch.device("cpu"))


def randomized(net):
    generator = torch.Generator().manual_seed(0)
    for p in net.parameters():
        p.data = torch.randn(p.shape, generator=generator) * 0.15
    return net


@pytest.mark.filterwarnings("ignore")  # the compiler looks at .grad of inner tensors, which warns
@pytest.mark.parametrize("unshuffle", [1, 2])
def test_compiled_blocks_compute_the_same(unshuffle):
    """The formulas used under torch.compile (normalization, doubling) equal torch's own, gradients included."""

    def build():
        settings = dict(side=16, ch=8, mult=(1, 2), blocks=1, attention=(8,), groups=4, unshuffle=unshuffle)
        return randomized(firm.UNet(3, **settings)).to(memory_format=torch.channels_last)

    plain, compiled = build(), build()
    compile_blocks(compiled, backend="aot_eager")
    x, x_t, t = torch.randn(2, 3, 16, 16) + 1, torch.randn(2, 3, 16, 16), torch.tensor([0.2, 0.7])
    outputs = [net(x, x_t, t) for net in (plain, compiled)]
    torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-5)
    for out in outputs:
        out.square().mean().backward()
    largest = max(float(p.grad.abs().max()) for p in plain.parameters())
    for (name, a), b in zip(plain.named_parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-5 * largest, msg=name)


class NothingFromOrToTheCpu(TorchDispatchMode):
    """Refuses what a CUDA graph cannot hold: tensors made of Python lists, and values read back."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func is not torch.ops.aten._local_scalar_dense.default, "a value is read"
        # Single numbers are passed on as such, and are no copy.
        assert func is not torch.ops.aten.lift_fresh.default or args[0].ndim == 0, f"a constant is copied: {args[0]}"
        return func(*args, **(kwargs or {}))


def test_a_step_of_every_task_fits_into_a_cuda_graph(make):
    mixture = (Path(__file__).parents[2] / "configs" / "face-128.yaml").read_text()
    entries = [{**entry, "weight": 1} for entry in yaml.safe_load(mixture)["mixture"]]
    for entry in entries:  # of the 16 pixels that the pictures have here
        entry |= {
            key: value for key, value in {"box": [2, 7], "width": [1, 3], "lines": [3, 6]}.items() if key in entry
        }
    network = "network={ch: 8, mult: [1, 2], blocks: 1, attention: [8], groups: 4, noise_level: true}"
    changes = (f"mixture={entries}", network, "objective=balanced", "output=correction", "flips=true", "batch=14")
    config = make(*changes, "channels_last=true")
    pixels, _ = load_sets(config, progress=False)
    trainer = Trainer(config, RANK, pixels)
    for warm in (True, False):
        with NothingFromOrToTheCpu():
            trainer.loss(trainer.times(), 0, warm).backward()


def weights_after(config, steps=6):
    pixels, _ = load_sets(config, progress=False)
    trainer = Trainer(config, RANK, pixels)
    for _ in range(steps):
        trainer.advance()
    return torch.cat([p.detach().flatten() for p in trainer.params])


SWITCHES = [(o, s) for o in ("paper", "balanced") for s in ("channels_last=true", "fused=true", "recompute=calls")]
SWITCHES += [("paper", "accumulate=2"), ("paper", "accumulate=4")]  # balanced: running errors change once a part


@pytest.mark.parametrize(("objective", "switch"), SWITCHES)
def test_switches_do_not_change_the_weights(objective, switch, make):
    plain = ["channels_last=false", "fused=false", f"objective={objective}", "warm_epochs=0", "flips=true"]
    expected, actual = weights_after(make(*plain)), weights_after(make(*plain, switch))
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-5)


def test_bf16_stays_close(make):
    expected, actual = (weights_after(make(f"bf16={b}", "warm_epochs=0")) for b in ("false", "true"))
    assert not torch.equal(expected, actual)
    assert float((actual - expected).norm() / expected.norm()) < 0.02


def test_the_schedule_and_the_averaging(make):
    config = make("rate_warmup=4", "ema_decay=0.5")
    pixels, _ = load_sets(config, progress=False)
    trainer = Trainer(config, RANK, pixels)
    assert trainer.rate() == pytest.approx(2e-3 / 4)
    for _ in range(10):
        trainer.advance()
    first = next(trainer.net.parameters()).detach().clone()
    torch.testing.assert_close(next(trainer.average.parameters()), first)  # before epoch 1: a copy
    trainer.advance()
    second = next(trainer.net.parameters()).detach()
    torch.testing.assert_close(next(trainer.average.parameters()), (first + second) / 2)
    trainer.step = 20  # half of the 40 steps
    assert trainer.rate() == pytest.approx((2e-3 + 1e-5) / 2)
    trainer.step = 40
    assert trainer.rate() == pytest.approx(1e-5)


def test_gradients_are_clipped_and_their_size_is_told(make):
    config = make("clip=1e-3", "rate=1e-9", "rate_end=0")
    trainer = Trainer(config, RANK, load_sets(config, progress=False)[0])
    _, norm = trainer.advance()
    left = torch.stack([p.grad.norm() for p in trainer.params]).norm()
    assert float(norm) > 0.01
    assert float(left) == pytest.approx(1e-3, rel=1e-3)


def test_warm_start_then_the_solver(make, monkeypatch):
    """One call a step in the first epoch, K after it."""
    config = make()
    pixels, _ = load_sets(config, progress=False)
    trainer = Trainer(config, RANK, pixels)
    calls = []
    trainer.net.register_forward_hook(lambda *_: calls.append(trainer.step))
    for _ in range(12):
        trainer.advance()
    assert [calls.count(step) for step in range(12)] == [1] * 10 + [2] * 2


@pytest.mark.parametrize("objective", ["paper", "balanced"])
def test_the_loss_has_the_configured_tau_min_and_rho(objective, make, monkeypatch):
    """The settings of the run, other than the defaults, reach the velocity, its weight and the solver."""
    given = ("rho=0.03", "tau_min=0.3", "t_min=0.8", "t_max=0.99", "warm_epochs=0", "task=denoising")
    config = make(*given, f"objective={objective}")
    trainer = Trainer(config, RANK, load_sets(config, progress=False)[0])
    seen = []

    def posterior_mean(self, op, x_t, t, y, *, sigma=None):
        seen.append((x_t, t, self.solver))
        return torch.zeros_like(x_t, requires_grad=True)

    monkeypatch.setattr(firm.Firm, "posterior_mean", posterior_mean)
    real = trainer.loss._objective.loss
    errors = []
    trainer.loss._objective.loss = lambda net, batch: errors.append((batch.x_1, *real(net, batch))) or errors[-1][1:]
    loss = trainer.loss(trainer.times(), 0, False)
    ((_, t, solver),) = seen
    ((x_1, error, _),) = errors
    tau = (1 - t).clamp(min=0.3)
    assert bool((tau == 0.3).all())
    assert solver.rho == 0.03
    torch.testing.assert_close(error, x_1.square().mean((1, 2, 3)) / tau**2)
    if objective == "paper":
        torch.testing.assert_close(loss, ((1 + tau**3) / tau * error).mean())


def test_recomputation_calls_the_network_twice(make):
    """Once more in the backward pass, for every call; that is what it is for."""
    for recompute, times in (("nothing", 1), ("calls", 2)):
        config = make(f"recompute={recompute}", "warm_epochs=0")
        trainer = Trainer(config, RANK, load_sets(config, progress=False)[0])
        calls = []
        trainer.net.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        trainer.advance()
        assert len(calls) == times * config.K


@pytest.mark.parametrize("parts", [1, 2])
def test_every_row_of_a_mixture_has_its_own_time(parts, make):
    """The whole batch's times go to the tasks in order, and each part takes its rows of every task."""
    tasks = "mixture=[{name: denoising, weight: 1}, {name: deblurring, weight: 3}]"
    config = make(tasks, f"accumulate={parts}", "warm_epochs=0")
    trainer = Trainer(config, RANK, load_sets(config, progress=False)[0])
    seen = []

    def loss(net, batch):
        seen.append((batch.t, [len(rows) for rows in batch.rows]))
        return sum(p.sum() for p in net.parameters()) * torch.ones_like(batch.t), batch.t

    trainer.loss._objective.loss = loss
    t = trainer.times()
    trainer.advance()
    counts = trainer.loss.counts
    assert sum(counts) * parts == 8
    first, second = t.split([n * parts for n in counts])
    for part, (times, rows) in enumerate(seen):
        assert rows == counts
        expected = [whole.chunk(parts)[part] for whole in (first, second)]
        assert torch.equal(times, torch.cat(expected))
    assert len(seen) == parts


def test_times_cover_the_strata_across_batches(make):
    config = make()
    pixels, _ = load_sets(config, progress=False)
    trainer = Trainer(config, RANK, pixels)
    seen = []
    for trainer.step in range(8):  # 8 batches of 8
        seen.append(trainer.times())
    strata = ((torch.cat(seen) - 1e-3) / (0.995 - 1e-3) * 64).long()
    assert len(strata.unique()) == 64


def test_steps_with_a_broken_gradient_are_skipped_and_then_refused(make, tmp_path):
    for fused in ("true", "false"):
        config = make(f"fused={fused}")
        pixels, _ = load_sets(config, progress=False)
        trainer = Trainer(config, RANK, pixels)
        trainer.advance()
        before = [p.detach().clone() for p in trainer.params]
        real = trainer.gradients

        def broken(t, warm, read, real=real, trainer=trainer):
            loss = real(t, warm, read)
            trainer.params[0].grad.fill_(float("nan"))
            return loss

        trainer.gradients = broken
        trainer.advance()
        assert all(torch.equal(a, b) for a, b in zip(before, trainer.params, strict=True))
        trainer.check_finite()
        trainer.gradients = real
        trainer.advance()
        assert int(trainer.skipped) == 0
        assert not torch.equal(before[0], trainer.params[0])
        trainer.gradients = broken
        for _ in range(10):
            trainer.advance()
        with pytest.raises(RuntimeError, match="not finite in 10 steps in a row"):
            trainer.check_finite()
