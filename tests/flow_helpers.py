"""What tests of the baselines share: flows that are known exactly, small networks, seeds."""

import torch
from torch import nn

from firm.networks import PriorUNet


class Gaussian(nn.Module):
    """v(x, t) = E[x_1 - x_0 | x_t = x] of the flow from N(0, I) to N(m, c I)."""

    def __init__(self, m=0.3, c=0.2):
        super().__init__()
        self.m, self.c = m, c

    def forward(self, x, t):
        t = t.reshape(-1, *[1] * (x.ndim - 1))
        return self.m + (self.c * t - (1 - t)) / (self.c * t**2 + (1 - t) ** 2) * (x - t * self.m)


class Tiny(nn.Module):
    """A small velocity that is not linear, and quick."""

    def __init__(self, channels=1):
        super().__init__()
        self.first, self.last = nn.Conv2d(channels, 4, 3, padding=1), nn.Conv2d(4, channels, 3, padding=1)
        self.double().requires_grad_(False)

    def forward(self, x, t):
        return 2 * self.last(torch.tanh(2 * self.first(x) + t.reshape(-1, 1, 1, 1)))


def small_network(kind=PriorUNet, channels=1, side=8, **changes):
    """A network in float64 whose result is neither linear in its inputs nor small."""
    settings = dict(side=side, ch=8, mult=(1,), blocks=1, groups=4, attention=()) | changes
    net, g = kind(channels, **settings).double(), torch.Generator().manual_seed(1)
    for p in net.parameters():
        p.requires_grad_(False).copy_(0.25 * torch.randn(p.shape, generator=g))
    return net


def seeds(*numbers):
    return [torch.Generator().manual_seed(n) for n in numbers]
