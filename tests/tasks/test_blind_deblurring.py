"""The task of unknown blur: which kernels it draws, and that who restores is told an estimate."""

import pytest
import torch

import firm
from blind_helpers import alike, leaves
from firm.data.images import Images
from firm.evaluation import Evaluation
from firm.evaluation.run import measure_chunk
from firm.tasks import Rows
from firm.tasks.blind_deblurring import FAMILIES, shake_kernels


@pytest.mark.parametrize("family", [*FAMILIES, "random"])
def test_kernels_sum_to_one_and_lie_in_the_middle(family):
    task = firm.Task("blind-deblurring", 64, family=family)
    torch.manual_seed(0)
    for kernels in (task.operator(3, tuple(range(20))).kernel, task.draw_operator(Rows(20, 0, 20), "cpu").kernel):
        assert kernels.shape == (20, 1, 25, 25)
        assert float(kernels.min()) >= 0
        torch.testing.assert_close(kernels.sum((1, 2, 3)), torch.ones(20))
        offsets = torch.arange(25.0) - 12
        for axis in (-2, -1):
            assert float((kernels.sum(axis) * offsets).sum(-1).abs().max()) < 0.5
        assert len({tuple(k.flatten().tolist()) for k in kernels}) == 20
    assert torch.equal(task.operator(3, (7,)).kernel[0], task.operator(3, tuple(range(20))).kernel[7])


def test_a_shake_is_as_far_as_it_should_be():
    steps = torch.randn(8, 64, 2, generator=torch.Generator().manual_seed(0))
    for reach in (4.0, 11.0):
        kernels = shake_kernels(25, torch.full((8,), reach), steps)[:, 0]
        for kernel in kernels:
            far = (kernel.nonzero() - 12).abs().max()
            assert reach - 0.01 <= float(far) <= reach + 1
    line = torch.zeros(1, 64, 2)
    line[0, 0, 1] = 1  # one push to the right: a straight way
    assert (shake_kernels(25, torch.tensor([8.0]), line)[0, 0].sum(1) > 1e-4).sum() == 1


def test_who_restores_is_told_an_estimate_of_each_image():
    x, task = (
        torch.cat([leaves(140, 300), leaves(140, 300, seed=1)]),
        firm.Task("blind-deblurring", 140, family="motion"),
    )
    op, y = task.measure(x, 5)
    told = task.told(op, y)
    assert told.A(x).shape == y.shape
    for true, guess in zip(op.kernel[:, 0], told.kernel[:, 0], strict=True):
        assert not torch.equal(true, guess)
        assert alike(true, guess) > 0.95
    assert firm.Task("denoising", 140).told(op, y) is op


def test_evaluation_tells_the_estimate():
    x, task = leaves(140, 300), firm.Task("blind-deblurring", 140, family="gaussian")
    measured = measure_chunk(Evaluation(Images(x, ["leaves"]), [task], "tables", 5), task, range(1))
    true = task.operator(5, (0,)).kernel
    assert not torch.equal(measured.op.kernel, true)
    assert alike(measured.op.kernel[0, 0], true[0, 0]) > 0.95
