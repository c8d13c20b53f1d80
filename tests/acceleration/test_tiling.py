"""Tiles cover the picture, keep the network's grid, and change nothing that is local."""

import itertools

import pytest
import torch
from helpers import stirred
from torch import nn

import firm
from firm.acceleration.tiling import Tiled, _places


class Pointwise(nn.Module):
    """Local to the pixel, so that tiles must not matter; remembers what it was given."""

    def __init__(self, stride=8):
        super().__init__()
        self.stride, self.config, self.shapes = stride, {"channels": 3, "noise_level": True}, []

    def forward(self, x, x_t, t, sigma):
        assert x.shape[-1] % self.stride == 0
        assert x.shape[-2] % self.stride == 0
        self.shapes.append(tuple(x.shape[-2:]))
        return torch.sin(3 * x) + x_t**2 * t.reshape(-1, 1, 1, 1) - sigma.reshape(-1, 1, 1, 1)


def inputs(H, W, batch=2):
    generator = torch.Generator().manual_seed(0)
    x, x_t = torch.randn(2, batch, 3, H, W, generator=generator)
    return x, x_t, torch.linspace(0.2, 0.8, batch), torch.full((batch,), 0.1)


@pytest.mark.parametrize("size", [(8, 8), (64, 64), (65, 100), (100, 31), (200, 77), (3, 5), (129, 257)])
@pytest.mark.parametrize("overlap", [0, 8, 20])
def test_tiles_do_not_change_a_pointwise_estimator(size, overlap):
    estimator = Pointwise()
    x, x_t, t, sigma = inputs(*size)
    out = Tiled(estimator, 64, overlap)(x, x_t, t, sigma)
    expected = torch.sin(3 * x) + x_t**2 * t.reshape(-1, 1, 1, 1) - 0.1
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    assert all(h <= 64 and w <= 64 for h, w in estimator.shapes)


@pytest.mark.parametrize(("length", "overlap"), [*itertools.product(range(64, 400, 8), [0, 16, 20, 32])])
def test_tiles_cover_the_side_on_the_grid(length, overlap):
    side, starts = _places(length, 64, overlap, 8)
    assert side <= 64
    assert side % 8 == 0
    assert starts[0] == 0
    assert starts[-1] + side == length
    assert all(s % 8 == 0 for s in starts)
    assert all(b - a <= side - overlap for a, b in itertools.pairwise(starts))


@pytest.mark.parametrize("length", [*range(65, 90), 100, 120, 177, 331, 400])
def test_tiles_are_as_few_and_as_small_as_can_be(length):
    """Two tiles of 64 that share 16 have 112 pixels: 72 need two, but not of 64."""
    estimator = Pointwise()
    tiles = Tiled(estimator, 64, 16)
    tiles(*inputs(length, 8, 1))
    padded = length + -length % 8
    fewest = -(-(padded - 16) // (64 - 16))
    assert len(estimator.shapes) == tiles.count(length, 8) == fewest
    assert {width for _, width in estimator.shapes} == {8}
    (side,) = {height for height, _ in estimator.shapes}
    assert fewest * (side - 8) - (fewest - 1) * 16 < padded  # one step of the grid less would not reach


def test_a_picture_slightly_larger_than_a_tile_is_not_computed_several_times():
    """2x super-resolution of 128x128 pixels, with its margin, and the default tiles."""
    estimator = Pointwise()
    Tiled(estimator, 256, 32)(*inputs(288, 288, 1))
    assert estimator.shapes == [(160, 160)] * 4


def test_pictures_of_many_sizes_have_tiles_of_few_shapes():
    """A GPU records the network for every shape."""
    sides = {_places(length, 256, 32, 8)[0] for length in range(264, 3000, 8)}
    assert sides == {160, 192, 224, 256}


def test_a_large_picture_is_restored_without_seams():
    """Tiled and whole agree on a network that sees its neighbors, also at the edges of tiles."""
    torch.manual_seed(0)
    net = stirred(firm.UNet(3, side=32, ch=8, mult=(1,), blocks=1, attention=(), groups=4))
    model = firm.Firm(net, firm.Solver(K=2, output="correction")).eval()
    x = torch.nn.functional.interpolate(torch.rand(1, 3, 9, 9) * 2 - 1, size=(96, 96), mode="bicubic")
    op = firm.operators.Identity()
    y = x + 0.1 * torch.randn_like(x)
    x_0 = torch.randn_like(x)
    whole = firm.sample(model, op, y, 1, x_0=x_0)
    tiles = firm.sample(firm.tiled(model, 64, 24), op, y, 1, x_0=x_0)
    difference = (whole - tiles).abs().mean((0, 1))
    inside = difference.mean()
    assert inside < 0.05 * whole.std()
    side, (_, start) = _places(96, 64, 24, net.stride)
    edges = torch.cat([difference[[start, side - 1]], difference[:, [start, side - 1]].T]).mean()
    assert edges < 3 * inside + 1e-6


def test_bad_tiles_are_refused():
    for tile, overlap in ((60, 0), (0, 0), (64, 33), (64, -1)):
        with pytest.raises(ValueError, match="tile must be a multiple of 8"):
            Tiled(Pointwise(), tile, overlap)
