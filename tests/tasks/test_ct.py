"""The task ct: views and photons as they are asked for, drawn for training without waiting for the device."""

import math

import pytest
import torch
from helpers import Watch, rand, stirred

import firm
from firm.operators import dot_test
from firm.operators.scale import norms
from firm.tasks import Rows
from firm.tasks.ct import spread
from firm.training.objectives import Batch


def test_a_measurement_has_the_views_the_norm_and_the_noise_of_its_counts():
    for beam in ("parallel", "fan"):
        task = firm.Task("ct", 32, views=20, photons=2000, attenuation=4.0, beam=beam)
        x = rand(2, 1, 32, 32) - 0.5
        op, y = task.measure(x, seed=1)
        assert y.shape[2] == 20
        assert float(norms(op, x, 30).max()) == pytest.approx(1, rel=1e-3)
        clean = op.A(x)
        noise = task.noise_for(x).on(op, clean, x)
        across = op.A(torch.ones_like(x)) * 2  # white above black
        radon = op.op
        mean = 2000 * torch.exp(-4.0 / 32 / 2 * radon.A(x + 1))  # by hand, in pixels
        torch.testing.assert_close(noise.counted(clean), mean, rtol=1e-4, atol=0)
        z = ((y - clean) / noise.std(clean))[across > 0]
        assert float(z.std()) == pytest.approx(1, abs=0.05)
        assert torch.equal(task.measure(x[1:], seed=1, index=1)[1], y[1:])


def test_views_are_spread_evenly():
    for count in (1, 7, 30, 59, 180):
        taken = spread(torch.tensor([float(count)]), 180)[0].nonzero()[:, 0]
        assert len(taken) == count
        gaps = torch.cat([taken, taken[:1] + 180]).diff()
        assert int(gaps.max() - gaps.min()) <= 1


def test_training_draws_views_and_photons_for_each_sample_and_waits_for_nothing():
    torch.manual_seed(0)
    task = firm.Task("ct", 16, views=[30, 180], photons=[1e3, 1e6], attenuation=[3, 12])
    x, rows = rand(6, 1, 16, 16) - 0.5, Rows(6, 0, 6)
    task.draw(x, rows)  # the matrix is made once
    with Watch() as watch:
        op, y, noise = task.draw(x, rows)
        firm.operators.data_consistency(op, torch.zeros_like(x), y, 0.01, noise)
    assert not watch.waits()
    views = op.op.seen.sum((1, 2, 3))
    assert 30 <= views.min() < views.max() <= 180
    assert float((norms(op, x, 40) - 1).abs().max()) < 0.03
    assert dot_test(op, (6, 1, 16, 16)) < 1e-6
    assert noise.photons.flatten().unique().numel() == 6
    assert not y[(op.op.seen == 0).expand_as(y)].any()


def test_a_network_learns_from_a_mixture_of_beams():
    torch.manual_seed(0)
    net = stirred(firm.networks.ResUNet(1, widths=(8, 16), blocks=1, noise_level=True, extra=("context", "noise")))
    model = firm.Firm(net, firm.Solver(K=2, output="correction"))
    tasks = [firm.Task("ct", 16, views=[30, 60]), firm.Task("ct", 16, views=40, beam="fan")]
    batch = Batch(rand(4, 1, 16, 16) - 0.5, torch.full((4,), 0.5), [Rows(2, 0, 2)] * 2, tasks)
    op, y, noise = batch.measure()
    loss = firm.velocity_loss(model, op, batch.x_1, y, batch.randn(), batch.t, sigma=noise)
    loss.backward()
    assert all(p.grad.isfinite().all() for p in net.parameters() if p.grad is not None)


def test_more_views_and_more_photons_know_more():
    x = torch.full((1, 1, 32, 32), -1.0)
    x[..., 8:24, 8:24] = 0.3
    errors = []
    for views, photons in ((15, 1e3), (60, 1e3), (60, 1e6)):
        task = firm.Task("ct", 32, views=views, photons=photons)
        op, y = task.measure(x)
        z = firm.operators.data_consistency(op, torch.full_like(x, -1), y, 0.01, task.noise_for(x))
        errors.append(float((z - x).square().mean().sqrt()))
    assert errors[0] > errors[1] > errors[2]
    assert math.isfinite(errors[0])


def test_types_and_devices_of_one_measurement_do_not_reach_the_next():
    task, x = firm.Task("ct", 16, views=9), rand(1, 1, 16, 16) - 0.5
    before = task.measure(x)
    op, y = task.measure(x.double())
    assert op.op.lengths.dtype == y.dtype == torch.float64
    again = firm.Task("ct", 16, views=9).measure(x)
    assert again[0].op.lengths.dtype == torch.float32
    assert torch.equal(again[1], before[1])
    with torch.device("meta"):
        assert torch.equal(firm.Task("ct", 16, views=8).measure(x)[1], firm.Task("ct", 16, views=8).measure(x)[1])
