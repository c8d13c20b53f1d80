"""Speed must not change results: compiled formulas, recomputation, accumulation and layout against plain eager."""

from pathlib import Path

import pytest
import torch
import yaml
from torch.utils._python_dispatch import TorchDispatchMode

import firm
from firm.acceleration.compiled import compile_blocks
from firm.training.objectives import Batch


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


def test_a_step_of_every_task_fits_into_a_cuda_graph(make_trainer):
    mixture = (Path(__file__).parents[2] / "configs" / "face-128.yaml").read_text()
    smaller = {"weight": 1, "box": [2, 7], "width": [1, 3], "lines": [3, 6]}  # for the 16 pixels of the pictures here
    entries = [{k: smaller.get(k, v) for k, v in entry.items()} for entry in yaml.safe_load(mixture)["mixture"]]
    network = "network={ch: 8, mult: [1, 2], blocks: 1, attention: [8], groups: 4, noise_level: true}"
    changes = (f"mixture={entries}", network, "objective=balanced", "output=correction", "flips=true", "batch_size=14")
    trainer = make_trainer(*changes, "channels_last=true")
    trainer.loss(trainer.times(), 0, True)  # the trials before a recording find the scale of the tasks' operators
    for warm in (True, False):
        with NothingFromOrToTheCpu():
            trainer.loss(trainer.times(), 0, warm).backward()


def after(trainer, steps=6):
    """The weights after some steps, as one vector, and the means of the balance."""
    for _ in range(steps):
        trainer.advance()
    balance = trainer.loss.balance
    return torch.cat([p.detach().flatten() for p in trainer.params]), balance and balance.error


SWITCHES = ["channels_last=true", "fused=true", "recompute=calls", "accumulation_steps=2", "accumulation_steps=4"]


@pytest.mark.parametrize("objective", ["paper", "balanced"])
def test_switches_change_neither_the_weights_nor_the_balance(objective, make_trainer):
    plain = ["channels_last=false", "fused=false", f"objective={objective}", "warm_start_epochs=0", "flips=true"]
    expected, means = after(make_trainer(*plain))
    for switch in SWITCHES:
        found, learned = after(make_trainer(*plain, switch))
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5, msg=switch)
        if objective == "balanced":
            torch.testing.assert_close(learned, means, rtol=1e-4, atol=1e-6, msg=switch)


@pytest.mark.parametrize("objective", ["paper", "balanced"])
def test_the_step_trains_with_the_public_loss(objective, make_trainer, monkeypatch):
    """`firm.velocity_loss` of the same draws is the step's loss, to the bit."""
    trainer = make_trainer(f"objective={objective}", "warm_start_epochs=0", "task=denoising")
    t, drawn, real, reduction = trainer.times(), [], Batch.measure, trainer.objective.reduction
    weights = firm.TimeBalance() if objective == "balanced" else "omega"
    monkeypatch.setattr(Batch, "measure", lambda batch: drawn.append((batch, *real(batch))) or drawn[-1][1:])
    monkeypatch.setattr(Batch, "randn", lambda batch: torch.ones_like(batch.x_1))
    loss = trainer.loss(t, 0, False)
    ((batch, op, y, sigma),) = drawn
    model = firm.Firm(trainer.net, trainer.objective.solver)
    expected = firm.velocity_loss(
        model, op, batch.x_1, y, torch.ones_like(y), t, sigma=sigma, weights=weights, reduction=reduction
    )
    assert torch.equal(loss, expected)
    assert reduction == {"paper": "sum", "balanced": "mean"}[objective]


def test_bf16_stays_close(make_trainer):
    (expected, _), (actual, _) = (after(make_trainer(f"bf16={b}", "warm_start_epochs=0")) for b in ("false", "true"))
    assert not torch.equal(expected, actual)
    assert float((actual - expected).norm() / expected.norm()) < 0.02


def test_the_schedule_and_the_averaging(make_trainer):
    trainer = make_trainer("warmup_steps=4", "ema_decay=0.5")
    assert trainer.lr() == pytest.approx(2e-3 / 4)
    for _ in range(10):
        trainer.advance()
    first = next(trainer.net.parameters()).detach().clone()
    torch.testing.assert_close(next(trainer.average.parameters()), first)  # before epoch 1: a copy
    trainer.advance()
    second = next(trainer.net.parameters()).detach()
    torch.testing.assert_close(next(trainer.average.parameters()), (first + second) / 2)
    for trainer.step, lr in ((20, (2e-3 + 1e-5) / 2), (40, 1e-5)):
        assert trainer.lr() == pytest.approx(lr)


def test_gradients_are_clipped_and_their_size_is_told(make_trainer):
    trainer = make_trainer("clip_grad_norm=1e-3", "lr=1e-9", "lr_end=0")
    _, norm = trainer.advance()
    left = torch.stack([p.grad.norm() for p in trainer.params]).norm()
    assert float(norm) > 0.01
    assert float(left) == pytest.approx(1e-3, rel=1e-3)


def test_warm_start_then_the_solver(make_trainer):
    """One call a step in the first epoch, K after it; twice as many with recomputation, in the backward pass."""
    for recompute, times in (("nothing", 1), ("calls", 2)):
        trainer, calls = make_trainer(f"recompute={recompute}"), []
        trainer.net.register_forward_pre_hook(lambda *_, t=trainer, calls=calls: calls.append(t.step))
        for trainer.step in (0, 9, 10, 11):
            trainer.advance()
        assert [calls.count(step) for step in (0, 9, 10, 11)] == [times, times, 2 * times, 2 * times]


@pytest.mark.parametrize("objective", ["paper", "balanced"])
def test_the_loss_has_the_configured_tau_min_and_rho(objective, make_trainer, monkeypatch):
    """The settings of the run, other than the defaults, reach the velocity, its weight and the solver."""
    given = ("rho=0.03", "tau_min=0.3", "reduction=mean", "t_min=0.8", "t_max=0.99", "warm_start_epochs=0")
    trainer = make_trainer(*given, "task=denoising", f"objective={objective}")
    seen, errors, real = [], [], trainer.loss._objective.loss

    def posterior_mean(self, op, x_t, t, y, *, sigma=None):
        seen.append((t, self.solver))
        return torch.zeros_like(x_t, requires_grad=True)

    monkeypatch.setattr(firm.Firm, "posterior_mean", posterior_mean)
    trainer.loss._objective.loss = lambda net, batch: errors.append((batch.x_1, *real(net, batch))) or errors[-1][1:]
    loss = trainer.loss(trainer.times(), 0, False)
    ((t, solver),), ((x_1, error, _),) = seen, errors
    tau = (1 - t).clamp(min=0.3)
    assert bool((tau == 0.3).all())
    assert solver.rho == 0.03
    torch.testing.assert_close(error, x_1.square().mean((1, 2, 3)) / tau**2)
    if objective == "paper":
        torch.testing.assert_close(loss, ((1 + tau**3) / tau * error).mean())


@pytest.mark.parametrize("parts", [1, 2])
def test_every_row_of_a_mixture_has_its_own_time(parts, make_trainer):
    """The whole batch's times go to the tasks in order, and each part takes its rows of every task."""
    tasks = "mixture=[{name: denoising, weight: 1}, {name: deblurring, weight: 3}]"
    trainer, seen = make_trainer(tasks, f"accumulation_steps={parts}", "warm_start_epochs=0"), []

    def loss(net, batch):
        seen.append((batch.t, [len(rows) for rows in batch.rows]))
        return sum(p.sum() for p in net.parameters()) * torch.ones_like(batch.t), batch.t

    trainer.loss._objective.loss = loss
    t, counts = trainer.times(), trainer.loss.counts
    trainer.advance()
    assert sum(counts) * parts == 8
    assert len(seen) == parts
    for part, (times, rows) in enumerate(seen):
        assert rows == counts
        assert torch.equal(
            times, torch.cat([whole.chunk(parts)[part] for whole in t.split([n * parts for n in counts])])
        )


def test_times_cover_the_strata_across_batches(make_trainer):
    trainer, seen = make_trainer(), []
    for trainer.step in range(8):  # 8 batches of 8
        seen.append(trainer.times())
    strata = ((torch.cat(seen) - 1e-3) / (0.995 - 1e-3) * 64).long()
    assert len(strata.unique()) == 64


@pytest.mark.parametrize("fused", ["true", "false"])
def test_steps_with_a_broken_gradient_are_skipped_and_then_refused(make_trainer, fused):
    trainer = make_trainer(f"fused={fused}")
    trainer.advance()
    before, real = [p.detach().clone() for p in trainer.params], trainer.gradients

    def broken(t, warm, read):
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
