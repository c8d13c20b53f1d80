"""Blur with boundary="valid" against conv2d."""

import pytest
import torch
from helpers import randn

from firm.operators import Blur, data_consistency


def test_valid_blur_is_the_inside_of_the_circular_one():
    for h, w in ((3, 3), (4, 5), (1, 2), (6, 7)):
        kernel, x = randn(h, w), randn(2, 3, 6, 7, seed=1)
        valid = Blur(kernel, boundary="valid").A(x)
        direct = torch.nn.functional.conv2d(x.flatten(0, 1)[:, None], kernel.flip(0, 1)[None, None])
        assert valid.shape == (2, 3, 6 - h + 1, 7 - w + 1)
        torch.testing.assert_close(valid.flatten(0, 1)[:, None], direct)
    assert repr(Blur(torch.ones(3, 5), boundary="valid")) == "Blur(3x5, valid)"
    with pytest.raises(ValueError, match=r"Blur\(7x3, valid\): images of shape \(2, 3, 6, 7\) are smaller"):
        Blur(torch.ones(7, 3), boundary="valid").A(x)
    with pytest.raises(ValueError, match=r'boundary must be "circular" or "valid", got \'reflect\''):
        Blur(torch.ones(3, 3), boundary="reflect")
    with pytest.raises(ValueError, match=r"Blur\(3x3, valid\): A_adjoint\(y\) has shape \(2, 3, 8, 9\)"):
        data_consistency(Blur(torch.ones(3, 3), boundary="valid"), x, x, 0.1)
