import gc

import pytest
import torch
from torch.overrides import TorchFunctionMode

import firm
from experiments.toy import problem as toy
from firm.operators import Blur, Identity, Mask, Subsample, gaussian_kernel

TINY = dict(side=16, ch=8, mult=(1, 2), blocks=1, groups=4, attention=())


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def tiny_model(K=2):
    return firm.Firm(firm.UNet(1, **TINY), firm.Solver(K=K))


class Recorder:
    """Exact for the prior N(0, 1) without measurements: E[x_1 | x_t] = t x_t / (t^2 + (1-t)^2)."""

    def __init__(self):
        self.times = []

    def posterior_mean(self, op, x_t, t, y, *, sigma=None):
        self.times.append(t)
        return t * x_t / (t**2 + (1 - t) ** 2)


def test_euler_is_algorithm_2_line_by_line():
    y = torch.tensor([1.5, 0.0]).expand(10, 2)
    field, op, N = toy.ExactField(), toy.operator(), 5
    x = torch.randn(10, 2, generator=generator())
    for i in range(N):
        z = field.posterior_mean(op, x, i / N, y)
        x = x + (1 / N) * (z - x) / (1 - i / N)
    torch.testing.assert_close(firm.sample(field, op, y, N, generator=generator()), x)
    last = firm.sample(field, op, y, 1, generator=generator())
    torch.testing.assert_close(last, field.posterior_mean(op, torch.zeros(10, 2), 0.0, y))  # N = 1 is the mean


@pytest.mark.parametrize("integrator", ["euler", "midpoint", "heun"])
@pytest.mark.parametrize("N", [1, 2, 7])
def test_never_evaluates_at_the_end(integrator, N):
    model = Recorder()
    x = firm.sample(model, Identity(), torch.zeros(2, 1, 4, 4), N, integrator=integrator, generator=generator())
    assert x.isfinite().all()
    assert max(model.times) < 1
    assert len(model.times) == {"euler": N, "midpoint": 2 * N, "heun": 2 * N - 1}[integrator]


@pytest.mark.parametrize(("integrator", "order"), [("euler", 1), ("midpoint", 2), ("heun", 2)])
def test_converges_at_its_order(integrator, order):
    """The flow of N(0, 1) onto itself is x(1) = x(0): known exactly."""
    x_0 = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    y = torch.zeros_like(x_0)
    errors = [
        abs(float(firm.sample(Recorder(), Identity(), y, N, integrator=integrator, x_0=x_0)) - 1) for N in (20, 80)
    ]
    assert errors[0] / errors[1] > 4**order * 0.75


def test_the_callback_sees_every_step():
    seen = []
    y = torch.zeros(1, 1, 4, 4)
    x = firm.sample(Recorder(), Identity(), y, 4, callback=lambda i, t, x, z: seen.append((i, t, x, z)))
    assert [(i, t) for i, t, _, _ in seen] == [(0, 0.0), (1, 0.25), (2, 0.5), (3, 0.75)]
    torch.testing.assert_close(x, seen[-1][3])  # the last Euler step ends at the last posterior mean


@pytest.fixture
def only_new_objects():
    """What the garbage collector looks at: not at the many objects that other tests have left."""
    gc.freeze()
    yield
    gc.unfreeze()


def test_keeps_no_graph_and_no_old_states(only_new_objects):
    """The number of live image-sized tensors is the same at every step, for every N and K."""
    y = torch.zeros(1, 1, 16, 16)

    def live(steps, K):
        model, counts = tiny_model(K), []

        def count(i, t, x, z):
            gc.collect()
            assert not x.requires_grad
            counts.append(sum(type(o) is torch.Tensor and o.shape == y.shape for o in gc.get_objects()))

        firm.sample(model, Identity(), y, steps, callback=count)
        return counts

    few, many = live(2, 1), live(6, 4)
    assert set(many[1:]) == {few[1]}


def test_a_start_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"x_0 has shape \(1, 1, 8, 8\), the images have \(1, 1, 16, 16\)"):
        firm.sample(tiny_model(), Identity(), torch.zeros(1, 1, 16, 16), x_0=torch.zeros(1, 1, 8, 8))


@pytest.mark.parametrize("draw", [firm.sample, firm.restore])
def test_a_model_elsewhere_than_the_measurement_is_told_in_a_sentence(draw):
    y = torch.zeros(1, 1, 16, 16)
    message = r'measurement is on cpu, the model on meta: move one of them, y.to\("meta"\) or model.to\("cpu"\)'
    with pytest.raises(ValueError, match=message):
        draw(tiny_model().to("meta"), Identity(), y)
    with pytest.raises(ValueError, match="measurement is on meta, the model on cpu"):
        draw(tiny_model(), Identity(), y.to("meta"))


class Reads(TorchFunctionMode):
    """Counts what reads a tensor's values, each of which would wait for a GPU."""

    NAMES = ("item", "tolist", "__bool__", "__float__", "__int__", "__index__", "nonzero", "numpy", "cpu")

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") in self.NAMES:
            self.seen.append(function.__name__)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("op", [Mask(torch.ones(16, 16)), Subsample(2), Blur(gaussian_kernel(5, 1.0))], ids=repr)
def test_a_gpu_is_read_once_after_all_work_is_queued(op, monkeypatch):
    """Every check of a restoration's values is held back and read together; on the CPU before the work."""
    monkeypatch.setattr(firm._prepare.Prepared, "deferred", True)
    model, x = tiny_model(), torch.rand(2, 1, 16, 16)
    firm.restore(model, op, op.A(x), sigma=0.1)  # the norm of an operator is read when it is first used
    with torch.no_grad(), Reads() as reads:
        firm.restore(model, op, op.A(x), 2, 3, seed=1, sigma=0.1)
    kept = ["__bool__"] * (1 + 1 + bool(list(op.buffers())))  # of sigma, a number of Python, and a norm on the CPU
    assert reads.seen == [*kept, "tolist"]
    calls, y = [], op.A(x)
    y[0, 0, 1, 1] = float("nan")
    model.estimator.register_forward_hook(lambda *_: calls.append(1))
    with pytest.raises(ValueError, match=r"1 values of y, shape .*, are NaN"):
        firm.restore(model, op, y, sigma=0.1)
    assert len(calls) == 4
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"1 values of y, shape .*, are NaN"):
        firm.restore(model, op, y, sigma=0.1)
    assert len(calls) == 4


def test_churn_samples_the_prior_too():
    """With the exact estimate for the prior N(0, 1) samples have its variance, and fresh noise makes them differ."""
    x_0 = torch.randn(1, 1, 128, 128, generator=generator())
    found = []
    for integrator in ("euler", "churn"):
        x = firm.sample(Recorder(), Identity(), x_0, 60, integrator=integrator, x_0=x_0, generator=generator(1))
        assert x.std().item() == pytest.approx(1, abs=0.03)
        found.append(x)
    same = torch.corrcoef(torch.stack([v.flatten() for v in (x_0, found[0])]))[0, 1]
    fresh = torch.corrcoef(torch.stack([v.flatten() for v in (x_0, found[1])]))[0, 1]
    assert same > 0.999
    assert fresh < 0.9
    again = firm.sample(Recorder(), Identity(), x_0, 60, integrator="churn", x_0=x_0, generator=generator(1))
    assert torch.equal(found[1], again)


def test_churn_draws_for_each_sample_by_itself():
    """More samples keep the first ones, and one step has no fresh noise: it is Euler's."""
    model, y = tiny_model(), torch.rand(2, 1, 16, 16)
    op = Mask((torch.rand(16, 16) > 0.3).float())
    few, many = (firm.restore(model, op, y, 3, n, seed=5, integrator="churn").samples for n in (2, 4))
    torch.testing.assert_close(many[:2], few)
    assert not torch.allclose(many[0], firm.restore(model, op, y, 3, seed=5).image)
    ones = [firm.restore(model, op, y, 1, seed=5, integrator=how).image for how in ("euler", "churn")]
    torch.testing.assert_close(*ones)
    assert model.calls(10, "churn") == model.calls(10)
