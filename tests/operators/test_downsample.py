"""Downsample against Pillow, against its definition, and against the aliasing formula."""

import numpy as np
import pytest
import torch
from PIL import Image

from firm.operators import Downsample, data_consistency

METHODS = {
    "bicubic": Image.Resampling.BICUBIC,
    "bilinear": Image.Resampling.BILINEAR,
    "box": Image.Resampling.BOX,
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("factor", [1, 2, 3, 4, 5])
def test_shrinks_like_pillow_inside_the_picture(factor, name):
    picture = np.random.default_rng(0).uniform(0, 255, (14 * factor, 17 * factor)).astype(np.float32)
    op = Downsample(factor, name)

    def ours(pixels):
        return op.A(torch.from_numpy(pixels.astype(np.float32))[None, None])[0, 0].numpy()[3:-3, 3:-3]

    def pillows(pixels):
        small = Image.fromarray(pixels).resize((17, 14), METHODS[name])
        return np.asarray(small, dtype=np.float32)[3:-3, 3:-3]

    assert np.abs(ours(picture) - pillows(picture)).max() < 5e-4  # of 255, mode "F"
    bytes_ = (picture / 2 + 60).astype(np.uint8)  # room for the filter's overshoot
    assert np.abs(ours(bytes_) - pillows(bytes_)).max() < 1.01  # rounded twice, after rows and after columns


def test_box_is_the_mean_of_blocks_up_to_the_rim():
    x = torch.randn(2, 3, 6, 9)
    torch.testing.assert_close(Downsample(3, "box").A(x), torch.nn.functional.avg_pool2d(x, 3))


def test_stays_accurate_in_float32_at_a_small_rho():
    op, exact = Downsample(4), Downsample(4).double()
    z, y = torch.randn(1, 1, 32, 32), torch.randn(1, 1, 8, 8)
    x = data_consistency(op, z, y, 1e-6)
    torch.testing.assert_close(x.double(), data_consistency(exact, z.double(), y.double(), 1e-6), rtol=1e-4, atol=1e-3)
