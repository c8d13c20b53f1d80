"""Networks as a user would write them; the tests name this file as ``custom_networks.py:Class``."""

import torch
from torch import nn


class Net(nn.Module):
    """Two convolutions, with batch normalization, whose running means training must keep."""

    def __init__(self, width, channels=3):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2 * channels + 1, width, 3, padding=1), nn.BatchNorm2d(width), nn.SiLU(),
            nn.Conv2d(width, channels, 3, padding=1),
        )  # fmt: skip

    def forward(self, x, x_t, t):
        return x + self.body(torch.cat([x, x_t, t.reshape(-1, 1, 1, 1).expand_as(x[:, :1])], 1))


class Aware(Net):
    """Takes the noise level, and keeps no note of that itself."""

    def __init__(self, width, noise_level):
        assert noise_level
        super().__init__(width)

    def forward(self, x, x_t, t, sigma):
        return super().forward(x, x_t, t + sigma)


class Velocity(nn.Module):
    """For the objective `prior`."""

    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x, t):
        return self.body(x)


class Unsaved(Velocity):
    def __init__(self):
        super().__init__()
        self.config = {"activation": nn.SiLU()}


class Fails(nn.Module):
    def __init__(self, width):
        raise ValueError("width must be even")
