import pytest
import torch
from helpers import stirred
from torch import nn

import firm
from firm.networks import ResUNet


class Near(nn.Module):
    """A network that sees one pixel beyond each: quick, and local enough for any margin."""

    stride = 4

    def __init__(self, channels=3):
        super().__init__()
        self.config = {"channels": channels, "noise_level": True}
        self.conv = nn.Conv2d(2 * channels, channels, 3, padding=1)

    def forward(self, x, x_t, t, sigma):
        return torch.tanh(self.conv(torch.cat([x, x_t], 1)) + (t + sigma)[:, None, None, None])


def of(net, K=2, output="direct"):
    return firm.Firm(net, firm.Solver(K=K, output=output)).eval().requires_grad_(False)


@pytest.fixture
def near():
    """A local model for color."""
    torch.manual_seed(0)
    return of(Near())


@pytest.fixture
def near_gray():
    torch.manual_seed(1)
    return of(Near(1))


@pytest.fixture
def wide():
    """A model with attention and all inputs, whose every output depends on all of a tile."""
    torch.manual_seed(2)
    extra = ("previous", "context", "iteration")
    return of(stirred(ResUNet(3, widths=(4, 8), blocks=1, noise_level=True, extra=extra), 0.1), output="correction")
