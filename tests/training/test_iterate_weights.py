"""Every iterate of Algorithm 3 supervised, one a sample: its error and gradient, the settings, the model's card."""

import pytest
import torch

import firm
from firm._flow import interpolate, tau, velocity_error
from firm.tasks import Rows
from firm.training import step
from firm.training.config import ConfigError, TrainConfig
from firm.training.objectives import Batch
from firm.training.step import Velocity


@pytest.fixture
def batch(model):
    """Operator, clean images, measurements, noise and times of a small batch."""
    g = torch.Generator().manual_seed(0)
    x_1, x_0 = torch.rand(3, 1, 8, 8, generator=g) * 2 - 1, torch.randn(3, 1, 8, 8, generator=g)
    op = firm.operators.Mask((torch.rand(1, 1, 8, 8, generator=g) < 0.5).float())
    return op, x_1, op.A(x_1), x_0, torch.tensor([0.1, 0.5, 0.97])


@pytest.fixture
def model():
    torch.manual_seed(1)
    net = firm.UNet(channels=1, ch=8, mult=(1,), blocks=1, attention=(), side=8)
    for p in net.parameters():  # the last layer starts at zero
        torch.nn.init.normal_(p, std=0.1)
    return firm.Firm(net, firm.Solver(K=3))


def test_the_error_of_a_sample_is_that_of_a_solver_that_stops_at_its_depth(model, batch):
    op, x_1, y, x_0, t = batch
    x_t, depths = interpolate(x_0, x_1, t), torch.tensor([2, 1, 3])
    stopped = [firm.posterior_mean(model.estimator, op, x_t, t, y, K=int(k))[b] for b, k in enumerate(depths)]
    expected = ((torch.stack(stopped) - x_1) ** 2).mean((1, 2, 3)) / tau(t) ** 2
    error = velocity_error(model, op, x_1, y, x_0, t, depths=depths)
    torch.testing.assert_close(error, expected, rtol=1e-5, atol=1e-7)
    loss = firm.velocity_loss(model, op, x_1, y, x_0, t, weights="uniform", depths=depths)
    torch.testing.assert_close(loss, expected.mean(), rtol=1e-5, atol=1e-7)


def test_gradients_pass_through_the_last_iteration_alone(model, batch):
    op, x_1, y, x_0, t = batch
    x_t, depths, beta = interpolate(x_0, x_1, t), torch.full((3,), 2), model.solver.beta
    z = firm.posterior_mean(model.estimator, op, x_t, t, y, K=1).detach()
    x = firm.operators.data_consistency(op, z, y, model.solver.rho)
    z = (1 - beta) * x + beta * model.estimator(x, x_t, t)
    alone = (((z - x_1) ** 2).mean((1, 2, 3)) / tau(t) ** 2).sum()
    parameters = list(model.parameters())
    expected = torch.autograd.grad(alone, parameters)
    found = torch.autograd.grad(velocity_error(model, op, x_1, y, x_0, t, depths=depths).sum(), parameters)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_depths_are_drawn_with_the_weights(make, monkeypatch):
    drawn = []
    monkeypatch.setattr(step, "velocity_error", lambda *a, depths, **k: drawn.append(depths) or torch.zeros(4000))
    objective = Velocity(make("K=3", "iterate_weights=[1, 0, 3]"))
    rows = [Rows(4000, 0, 4000)]
    monkeypatch.setattr(Batch, "measure", lambda self: (None, None, None))
    objective.loss(None, Batch(torch.zeros(4000, 1, 1, 1), torch.rand(4000), rows, [], False))
    objective.loss(None, Batch(torch.zeros(4000, 1, 1, 1), torch.rand(4000), rows, [], True))
    assert drawn[1] is None  # the warm start has no iterates
    assert drawn[0].unique().tolist() == [1, 3]
    assert float((drawn[0] == 1).float().mean()) == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize("weights", [[1, 1], [1, -1, 1], [1, 1, 0], [0, 0, 0]])
def test_weights_that_make_no_sense_are_refused(weights):
    with pytest.raises(ConfigError, match="iterate_weights"):
        TrainConfig(K=3, iterate_weights=tuple(weights))


@pytest.mark.parametrize(("override", "depths"), [("iterate_weights=[0.5, 0, 1]", [1, 3]), ("epochs=1", [3])])
def test_the_card_names_the_depths_that_were_trained(make, fit, override, depths):
    config = make("K=3", "epochs=1", "steps_per_epoch=2", "val_images=0", override)
    fit(config)
    model = firm.load(config.out)
    assert (model.card["depths"], model.solver.K) == (depths, 3)
