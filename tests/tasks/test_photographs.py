"""Tasks of ordinary photographs: blur with unknown surroundings, motion, holes anywhere."""

import pytest
import torch
from torch.nn import functional as F

import firm
from firm.operators import gaussian_kernel, motion_kernel
from firm.operators.base import synchronizes
from firm.operators.testing import dot_test
from firm.tasks import Rows, Task, built_in


def valid(x, kernel):
    """The convolution by its definition, where the kernel lies inside the image."""
    c = x.shape[1]
    return F.conv2d(x, kernel.flip(-2, -1).expand(c, 1, *kernel.shape), groups=c)


@pytest.mark.parametrize(
    ("name", "settings", "kernel"),
    [
        ("motion-deblurring", dict(length=7, angle=20), motion_kernel(9, 7, 20)),
        ("deblurring", dict(blur=1.2, kernel_size=9, boundary="valid"), gaussian_kernel(9, 1.2)),
    ],
)
def test_only_pixels_with_known_surroundings_are_measured(name, settings, kernel):
    task, x = Task(name, 32, sigma=0, **settings), torch.rand(2, 3, 32, 32) * 2 - 1
    op, y = task.measure(x, 0)
    torch.testing.assert_close(y, valid(x, kernel), rtol=0, atol=2e-6)
    assert y.shape[-1] == 32 - len(kernel) + 1
    dot_test(op, (1, 3, 32, 32))
    z = torch.randn_like(x)
    solved = firm.data_consistency(op, z, y, 0.01)
    residual = op.A_adjoint(op.A(solved)) + 0.01 * solved - op.A_adjoint(y) - 0.01 * z
    assert residual.abs().max() < 0.02  # ten iterations, from a residual of about 2
    drawn = Task(name, 32, **{k: v for k, v in settings.items() if k not in ("length", "blur")},
                 **({"length": (3, 7)} if "length" in settings else {"blur": (0.5, 2)}))  # fmt: skip
    op = drawn.draw_operator(Rows(3, 0, 3), torch.device("cpu"))
    assert op.boundary == "valid"
    assert not synchronizes(op)  # a training step with it fits into a CUDA graph
    kernels = op.kernel
    torch.testing.assert_close(kernels.sum((1, 2, 3)), torch.ones(3))
    assert len({tuple(k.flatten().tolist()) for k in kernels}) == 3


def test_a_picture_with_motion_blur_is_restored_at_its_own_size():
    picture = torch.rand(1, 3, 20, 26) * 2 - 1
    op, y, margin = built_in()["motion-deblurring"].from_picture(picture, {"length": 7.0, "angle": 90.0})
    assert y is picture
    full = op.A_adjoint(picture)
    assert full.shape[-2:] == (20 + 2 * margin, 26 + 2 * margin)
    big = torch.rand(1, 3, 20 + 2 * margin, 26 + 2 * margin)
    torch.testing.assert_close(op.A(big), valid(big, motion_kernel(2 * margin + 1, 7, 90)), rtol=0, atol=2e-6)


def test_the_kernel_holds_the_longest_motion():
    task = Task("motion-deblurring", 64, length=(3, 20))
    kernels = task.draw_operator(Rows(4, 0, 4), torch.device("cpu")).kernel
    assert kernels.shape == (4, 1, 21, 21)
    assert task.operator().kernel.shape[-1] == 21  # validation measures as many pixels as training


def test_holes_anywhere_have_their_size_and_follow_from_seed_and_index():
    task = Task("box-inpainting", (40, 48), box=12, place="anywhere")
    masks = task.operator(seed=3, indices=tuple(range(50))).mask
    assert (masks == 0).sum((1, 2, 3)).tolist() == [144] * 50
    rows = (masks[:, 0] == 0).any(2).float().argmax(1)
    columns = (masks[:, 0] == 0).any(1).float().argmax(1)
    assert 0 <= rows.min() < 4
    assert 24 < rows.max() <= 28  # all of the image is reached
    assert 0 <= columns.min() < 4
    assert 32 < columns.max() <= 36
    assert torch.equal(task.operator(seed=3, indices=(7,)).mask[0], masks[7])
    assert not torch.equal(task.operator(seed=4, indices=(7,)).mask[0], masks[7])


def test_holes_anywhere_in_training():
    task = Task("box-inpainting", 32, box=(4, 12), place="anywhere")
    masks = task.draw_operator(Rows(64, 0, 64), torch.device("cpu")).mask
    sides = (masks[:, 0] == 0).any(2).sum(1)
    assert ((masks == 0).sum((1, 2, 3)) == sides**2).all()
    assert sides.min() >= 4
    assert sides.max() <= 12
    firsts = {tuple(((m[0] == 0).any(d).float().argmax()).item() for d in (0, 1)) for m in masks}
    assert len(firsts) > 40  # of 64 samples
    centered = Task("box-inpainting", 32, box=(4, 12)).draw_operator(Rows(8, 0, 8), torch.device("cpu")).mask
    assert (centered == centered.flip(-1)).float().mean() > 0.9  # as before, up to a pixel where the side is odd
