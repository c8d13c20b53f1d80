"""The task of magnetic resonance imaging: measuring, training, and what it draws."""

import pytest
import torch
from helpers import Watch, rand, stirred

import firm
from firm.operators import dot_test, to_complex
from firm.operators.complex import AsReal
from firm.tasks import Rows
from firm.training.objectives import Batch

PATTERNS = ("lines", "variable-density", "radial", "poisson-disc")
CPU = torch.device("cpu")


def images(n=3, size=32):
    return rand(n, 2, size, size) - 0.5


@pytest.mark.parametrize("pattern", PATTERNS)
def test_measurements_do_not_depend_on_the_batch(pattern):
    task, x = firm.Task("mri", 32, pattern=pattern, coils=3), images()
    op, y = task.measure(x, seed=1, index=10)
    assert y.shape == (3, 3, 32, 32)
    assert dot_test(op, (3, 2, 32, 32)) < 1e-5
    for i in range(3):
        op_i, y_i = task.measure(x[i : i + 1], seed=1, index=10 + i)
        torch.testing.assert_close(y_i[0], y[i])
        torch.testing.assert_close(op_i.A(x[i : i + 1])[0], op.A(x)[i])
    assert not torch.equal(task.measure(x, seed=2, index=10)[1], y)


def test_the_noise_and_the_share_are_those_of_the_settings():
    task, x = firm.Task("mri", 64, sigma=0.3, acceleration=8, center_lines=0), images(4, 64)
    op, y = task.measure(x)
    assert float((y - op.A(x)).abs().square().mean().sqrt()) == pytest.approx(0.3, rel=0.02)
    assert float(op.op.mask.mean()) == pytest.approx(1 / 8, abs=0.01)
    assert op.op.maps.shape == (4, 8, 64, 64)
    assert firm.Task("mri", 256).center_lines == 24


@pytest.mark.parametrize("pattern", PATTERNS)
def test_training_draws_coils_masks_and_noise_without_waiting(pattern):
    task = firm.Task("mri", 32, pattern=pattern, coils=[1, 5], acceleration=[2, 8], sigma=[0.001, 0.1], phase=[0, 2])
    rows = Rows(40, 0, 40)
    task.draw(images(1), Rows(1, 0, 1))  # the first finds the norm of A, and waits for it
    with Watch() as watch:
        x = task.variant(images(40), rows)
        op, y, sigma = task.draw(x, rows)
        firm.data_consistency(op, torch.zeros_like(x), y, 0.01)
    assert watch.waits() == set()
    assert y.shape == (40, 5, 32, 32)
    coils = (op.op.maps.abs().amax((2, 3)) > 0).sum(1)
    assert set(coils.tolist()) == {1, 2, 3, 4, 5}
    shares = op.op.mask.mean((1, 2, 3))
    assert shares.max() > 2 * shares.min()
    assert sigma.max() > 5 * sigma.min()


def test_images_are_turned_by_a_smooth_phase_and_keep_their_magnitude():
    task, x = firm.Task("mri", 32, phase=[0.5, 1.5]), torch.cat([rand(5, 1, 32, 32), torch.zeros(5, 1, 32, 32)], 1)
    turned = task.variant(x, Rows(5, 0, 5))
    torch.testing.assert_close(to_complex(turned).abs(), x[:, :1])
    assert turned[:, 1].abs().mean() > 0.1
    assert firm.Task("mri", 32).variant(x, Rows(5, 0, 5)) is x
    assert firm.Task("denoising", 32).variant(x, Rows(5, 0, 5)) is x


def test_few_iterations_solve_almost_as_well_as_many():
    task, x = firm.Task("mri", 64, coils=8), images(2, 64)
    op, y = task.measure(x)
    z = x + 0.1 * torch.randn_like(x)
    few = firm.data_consistency(op, z, y, 0.01)
    op.cg_iterations = 200
    many = firm.data_consistency(op, z, y, 0.01)
    assert isinstance(op, AsReal)
    assert (few - many).square().mean().sqrt() < 0.1 * (many - z).square().mean().sqrt()


def test_a_mixture_with_several_numbers_of_coils_trains():
    net = stirred(firm.networks.ResUNet(2, widths=(8, 16), blocks=1, noise_level=True))
    model = firm.Firm(net, firm.Solver(K=2, output="correction"))
    tasks = [firm.Task("mri", 16, coils=1, phase=1.0), firm.Task("mri", 16, coils=4, pattern="radial")]
    batch = Batch(images(4, 16), torch.full((4,), 0.5), [Rows(2, 0, 2)] * 2, tasks)
    op, y, noise = batch.measure()
    firm.velocity_loss(model, op, batch.x_1, y, batch.randn(), batch.t, sigma=noise).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
