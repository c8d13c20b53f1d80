"""Training draws: settings in their ranges, and a batch split by weight. (Frozen numbers: tests/tasks.)"""

import pytest
import torch

import firm
from firm.tasks import Rows
from firm.training.step import _split_batch


def images(n, size=16):
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(0)) * 2 - 1


def draws(entry, n=400, size=32):
    return firm.Task(size=size, **entry).draw(images(n, size), Rows(n, 0, n))


def test_ranges_are_drawn_per_sample():
    _, _, sigma = draws({"name": "denoising", "sigma": [0.01, 0.3]})
    assert 0.01 <= float(sigma.min()) < 0.012
    assert 0.25 < float(sigma.max()) <= 0.3
    assert float(sigma.log().mean()) == pytest.approx(float(torch.tensor([0.01, 0.3]).log().mean()), abs=0.15)

    op, _, _ = draws({"name": "random-inpainting", "missing": [0.5, 0.8], "mask": "fresh"})
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
    entry = {"name": "fourier", "mask": "fresh", "lines": [3, 9] if size == 16 else 5}
    op, _, _ = draws(entry, n=100, size=size)
    columns = op.mask[:, 0, 0]
    assert torch.equal(columns, columns.flip(1).roll(1, 1))
    assert bool(columns[:, 0].all())
    counts = columns.sum(1)
    assert set(counts.tolist()) == ({3, 4, 5, 6, 7, 8, 9} if size == 16 else {5})


def test_the_batch_is_split_by_weight():
    assert _split_batch([1, 1, 1], 12) == [4, 4, 4]
    assert _split_batch([1, 2, 1], 11) == [3, 5, 3]
    assert _split_batch([1000, 1], 8) == [7, 1]
    assert sum(_split_batch([0.3, 0.7, 1.1, 0.2], 37)) == 37
    with pytest.raises(ValueError, match="cannot hold 3 tasks"):
        _split_batch([1, 1, 1], 2)
