import pytest
import torch

from firm.operators import (
    box_mask,
    cartesian_mask,
    gaussian_kernel,
    motion_kernel,
    motion_kernels,
    random_mask,
    resize_kernel,
    stroke_mask,
)
from firm.operators.patterns import draw_strokes

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_gaussian_kernel_is_normalized_and_symmetric():
    kernel = gaussian_kernel(61, 3.0)
    assert kernel.shape == (61, 61)
    assert float(kernel.sum()) == pytest.approx(1, abs=1e-6)
    assert torch.equal(kernel, kernel.flip(0, 1))
    assert float(kernel[30, 31] / kernel[30, 30]) == pytest.approx(2.718281828 ** (-1 / 18), rel=1e-5)


def test_random_mask_keeps_its_share_and_follows_the_generator():
    mask = random_mask((256, 256), 0.3, generator())
    assert set(mask.unique().tolist()) == {0, 1}
    assert float(mask.mean()) == pytest.approx(0.3, abs=0.01)
    assert torch.equal(mask, random_mask((256, 256), 0.3, generator()))
    assert not torch.equal(mask, random_mask((256, 256), 0.3, generator(1)))


def test_box_mask_is_the_papers():
    mask = box_mask((128, 128), 40)
    assert int((mask == 0).sum()) == 40 * 40
    assert not mask[44:84, 44:84].any()
    assert box_mask((2, 1, 9, 8), (3, 2)).shape == (2, 1, 9, 8)


def test_cartesian_mask_of_the_paper():
    mask = cartesian_mask((256, 256), 56, generator())
    assert float(mask.mean()) == 56 / 256 == 0.21875
    assert torch.equal(mask, cartesian_mask((256, 256), 56, generator()))
    assert mask[0, :10].all()  # the center
    assert mask[0, -10:].all()


@hypothesis.given(W=st.integers(2, 40), lines=st.integers(1, 40), center=st.floats(0, 1), seed=st.integers(0, 5))
def test_cartesian_masks_are_symmetric_and_keep_the_asked_number(W, lines, center, seed):
    if lines > W or (lines % 2 == 0 and W % 2 == 1):
        with pytest.raises(ValueError, match="cartesian_mask"):
            cartesian_mask((4, W), lines, generator(seed), center)
        return
    mask = cartesian_mask((4, W), lines, generator(seed), center)
    assert mask.shape == (4, W)
    assert int(mask[0].sum()) == lines
    assert torch.equal(mask, mask.flip(0, 1).roll((1, 1), (0, 1)))


@pytest.mark.parametrize(
    "call",
    [
        lambda: gaussian_kernel(0, 1.0),
        lambda: gaussian_kernel(5, 0.0),
        lambda: random_mask((8, 8), 0.0),
        lambda: random_mask((8, 8), 30),
        lambda: box_mask((8, 8), 8),
        lambda: cartesian_mask((8, 8), 0),
        lambda: cartesian_mask((8, 8), 3, center=8),
        lambda: motion_kernel(9, 0.5, 0),
        lambda: motion_kernel(9, 9.5, 0),
        lambda: motion_kernel(8, 8, 90),
        lambda: motion_kernel(9, float("nan"), 0),
        lambda: motion_kernels(9, torch.ones(2), torch.ones(3)),
        lambda: stroke_mask((8, 8), 0, 3),
        lambda: resize_kernel(0),
        lambda: resize_kernel(2, "lanczos"),
    ],
)
def test_wrong_settings(call):
    with pytest.raises(ValueError, match=r"must|share|at least one stroke"):
        call()


def test_strokes_are_the_pixels_near_a_segment():
    """Against the distance computed pixel by pixel."""
    ends = torch.rand(2, 3, 2, 2, generator=generator())
    ends[0, 0, 1] = ends[0, 0, 0]  # a dot
    width = torch.tensor([3.0, 5.5])
    mask = draw_strokes(ends, width, (12, 20))
    assert mask.shape == (2, 1, 12, 20)
    steps = torch.linspace(0, 1, 2001)[:, None]
    pixels = torch.cartesian_prod(torch.arange(12) + 0.5, torch.arange(20) + 0.5)
    for b in range(2):
        start, end = (ends[b] * torch.tensor([12.0, 20.0])).unbind(1)
        points = torch.cat([p * (1 - steps) + q * steps for p, q in zip(start, end, strict=True)])
        beyond = torch.cdist(pixels, points).min(1).values.reshape(12, 20) - width[b] / 2
        sure = beyond.abs() > 0.01  # the sampled segment is not exact at the rim
        assert torch.equal((mask[b, 0] == 0)[sure], (beyond < 0)[sure])


def test_a_stroke_mask_covers_a_part():
    mask = stroke_mask((32, 40), 4, 3, generator())
    assert mask.shape == (32, 40)
    assert 0.3 < float(mask.mean()) < 1


def test_motion_kernels_are_means_along_a_line():
    assert torch.equal(motion_kernel(7, 5, 0)[3], torch.tensor([0, 0.2, 0.2, 0.2, 0.2, 0.2, 0]))
    torch.testing.assert_close(motion_kernel(7, 5, 90), motion_kernel(7, 5, 0).T)
    torch.testing.assert_close(motion_kernel(7, 4, 0)[3], torch.tensor([0, 0.125, 0.25, 0.25, 0.25, 0.125, 0]))
    assert motion_kernel(5, 1, 30)[2, 2] == 1
    assert motion_kernel(9, 9, 45)[2, 6] > 0.05  # 45 degrees point up and to the right
    assert motion_kernel(9, 9, 45)[6, 6] == 0
    assert motion_kernel(8, 7, 0)[4].tolist()[1:] == pytest.approx([1 / 7] * 7)  # the center is at size // 2


def test_a_motion_kernel_has_the_variance_of_its_line():
    """A segment of length l at angle a spreads by l^2/12 along (cos a, sin a); the pixels' own width adds little."""
    for angle in (0.0, 20.0, 45.0, 110.0, 163.0):
        kernel = motion_kernel(41, 31, angle).double()
        assert float(kernel.sum()) == pytest.approx(1, abs=1e-6)
        torch.testing.assert_close(kernel, kernel.flip(0, 1), atol=1e-7, rtol=0)
        offsets = torch.arange(41, dtype=torch.float64) - 20
        turn = torch.tensor(angle, dtype=torch.float64).deg2rad()
        along = offsets * turn.cos() - offsets[:, None] * turn.sin()
        across = offsets * turn.sin() + offsets[:, None] * turn.cos()
        assert float((kernel * along.square()).sum()) == pytest.approx(31**2 / 12, rel=0.05)
        assert float((kernel * across.square()).sum()) < 0.3


def test_motion_kernels_hold_one_kernel_per_sample():
    length, angle = torch.tensor([1.0, 6.5, 9.0]), torch.tensor([0.0, 33.0, -120.0])
    kernels = motion_kernels(11, length, angle)
    assert kernels.shape == (3, 1, 11, 11)
    for kernel, each, turn in zip(kernels, length.tolist(), angle.tolist(), strict=True):
        assert torch.equal(kernel[0], motion_kernel(11, each, turn))
    assert motion_kernels(5, torch.tensor([40.0, 0.2]), torch.zeros(2)).sum((1, 2, 3)).tolist() == pytest.approx([1, 1])


def test_resize_kernels():
    assert torch.equal(resize_kernel(2, "box"), torch.full((2, 2), 0.25))
    assert resize_kernel(2).shape == (8, 8)
    for factor in range(1, 7):
        for name in ("bicubic", "bilinear", "box"):
            assert float(resize_kernel(factor, name).sum()) == pytest.approx(1, abs=1e-6)
