"""Training draws: settings in their ranges, rows of one batch, and the grouped operator against its parts."""

import pytest
import torch
from helpers import dense_solve, relative_error

from firm.operators import Blur, Fourier, Identity, Subsample, data_consistency, dot_test, gaussian_kernel, random_mask
from firm.operators.compose import group
from firm.tasks import Rows, built_in
from firm.training.config import load_config
from firm.training.measurements import make_task, measure, split_batch

CPU = torch.device("cpu")


def images(n, size=16):
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(0)) * 2 - 1


def test_grouped_operators_equal_their_parts():
    x = images(5, 8).double()
    ops = [Identity(), Subsample(2), Fourier(random_mask((8, 8), 0.4)).double(), Blur(gaussian_kernel(5, 1.0)).double()]
    sizes = [1, 2, 1, 1]
    parts = [(op, op.A(part)) for op, part in zip(ops, x.split(sizes), strict=True)]
    op, y = group(parts)
    assert y.shape == (5, 3 * 8 * 8 * 2)
    assert dot_test(op, (5, 3, 8, 8), dtype=torch.float64) < 1e-12
    torch.testing.assert_close(op.A(x), y)
    rho = torch.tensor([0.01, 0.1, 1.0, 0.02, 0.5]).double()
    z = torch.randn(5, 3, 8, 8, dtype=torch.float64)
    solved = data_consistency(op, z, y, rho)
    for (part, y_i), z_i, rho_i, x_i in zip(parts, z.split(sizes), rho.split(sizes), solved.split(sizes), strict=True):
        assert relative_error(x_i, dense_solve(part, z_i, y_i, rho_i)) < 1e-10
    torch.testing.assert_close(data_consistency(op, z, y, 0.1)[:1], data_consistency(Identity(), z[:1], x[:1], 0.1))
    with pytest.raises(ValueError, match="samples for groups"):
        op.A(x[:2])


@pytest.mark.parametrize("name", list(built_in()))
def test_fixed_tasks_measure_like_the_named_task(name):
    x = images(4)
    task = make_task({"name": name, "weight": 1.0, "sigma": 0.0}, 16, "shared")
    op, y, sigma = task.draw(x, Rows(4, 0, 4))
    assert torch.equal(sigma, torch.zeros(4))
    torch.testing.assert_close(y, task.operator().A(x))
    assert dot_test(op, (4, 3, 16, 16)) < 1e-5


def draws(entry, n=400, size=32):
    return make_task({"weight": 1.0, **entry}, size, "fresh").draw(images(n, size), Rows(n, 0, n))


def test_ranges_are_drawn_per_sample():
    _, _, sigma = draws({"name": "denoising", "sigma": [0.01, 0.3]})
    assert 0.01 <= float(sigma.min()) < 0.012
    assert 0.25 < float(sigma.max()) <= 0.3
    assert float(sigma.log().mean()) == pytest.approx(float(torch.tensor([0.01, 0.3]).log().mean()), abs=0.15)

    op, _, _ = draws({"name": "random-inpainting", "missing": [0.5, 0.8]})
    missing = 1 - op.mask.mean((1, 2, 3))
    assert 0.45 < float(missing.min()) < 0.55
    assert 0.75 < float(missing.max()) < 0.85

    op, _, _ = draws({"name": "box-inpainting", "box": [6, 12]})
    sides = (1 - op.mask).sum((1, 2, 3)).sqrt()
    assert set(sides.tolist()) == {6, 7, 8, 9, 10, 11, 12}
    hole = 1 - op.mask[0, 0]
    rows = hole.amax(1).nonzero()
    assert abs(int(rows.min()) + int(rows.max()) - 31) <= 1  # centered

    op, _, _ = draws({"name": "deblurring", "blur": [0.5, 2.0], "kernel_size": 21}, n=50)
    torch.testing.assert_close(op.kernel.sum((1, 2, 3)), torch.ones(50))
    widths = (op.kernel[:, 0].sum(1) * (torch.arange(21) - 10).square()).sum(1).sqrt()
    assert 0.4 < float(widths.min()) < 0.8
    assert 1.6 < float(widths.max()) < 2.1


@pytest.mark.parametrize("size", [16, 15])
def test_fresh_fourier_masks_are_symmetric_with_the_asked_lines(size):
    entry = {"name": "fourier", "lines": [3, 9] if size == 16 else 5}
    op, _, _ = draws(entry, n=100, size=size)
    columns = op.mask[:, 0, 0]
    assert torch.equal(columns, columns.flip(1).roll(1, 1))
    assert bool(columns[:, 0].all())
    counts = columns.sum(1)
    assert set(counts.tolist()) == ({3, 4, 5, 6, 7, 8, 9} if size == 16 else {5})


@pytest.mark.parametrize("parts", [2, 4])
def test_rows_of_a_batch_do_not_depend_on_its_parts(parts):
    tasks = [
        make_task({"name": "random-inpainting", "weight": 1.0, "missing": [0.5, 0.8]}, 16, "fresh"),
        make_task({"name": "super-resolution", "weight": 1.0, "sigma": [0.01, 0.1]}, 16, "fresh"),
    ]
    x = images(16)

    def run(part, of):
        torch.manual_seed(0)
        n = 8 // of
        rows = [Rows(8, n * part, n * (part + 1))] * 2
        mine = torch.cat([group[n * part : n * (part + 1)] for group in x.split(8)])
        op, y, sigma = measure(tasks, mine, rows)
        return op.A_adjoint(y), sigma

    whole, sigma = run(0, 1)
    for part in range(parts):
        n = 8 // parts
        keep = slice(n * part, n * (part + 1))
        adjoint, levels = run(part, parts)
        assert torch.equal(adjoint, torch.cat([group[keep] for group in whole.split(8)]))
        assert torch.equal(levels, torch.cat([group[keep] for group in sigma.split(8)]))


def test_the_batch_is_split_by_weight():
    assert split_batch([1, 1, 1], 12) == [4, 4, 4]
    assert split_batch([1, 2, 1], 11) == [3, 5, 3]
    assert split_batch([1000, 1], 8) == [7, 1]
    assert sum(split_batch([0.3, 0.7, 1.1, 0.2], 37)) == 37
    with pytest.raises(ValueError, match="cannot hold 3 tasks"):
        split_batch([1, 1, 1], 2)


def test_fixed_settings_of_a_mixture_reach_training_and_validation():
    entry = {"name": "super-resolution", "weight": 1.0, "factor": 4, "sigma": [0.01, 0.1]}
    task = make_task(entry, 16, "shared")
    assert (task.factor, task.sigma) == (4, 0.05)  # a range leaves the paper's value as the base
    assert task.ranges == {"sigma": (0.01, 0.1)}


def test_validation_has_the_protocols_masks_whatever_an_entry_says():
    mixture = "mixture=[{name: random-inpainting, mask: fresh}, {name: denoising}, {name: fourier}]"
    config = load_config(None, [mixture, "size=32", "mask=fresh", "network={class: ResUNet, widths: [4]}"])
    masks = [[task.settings().get("mask") for task in config.make_tasks(mask)] for mask in ("", "shared")]
    assert masks == [["fresh", None, "fresh"], ["shared", None, "shared"]]
