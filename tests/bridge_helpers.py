"""What the tests of I2SB and of its training share: the schedule once more, and two networks."""

import numpy as np
from torch import nn


def numpy_schedule(beta_max):
    """The schedule once more, number by number."""
    beta = np.empty(1000)
    for i in range(500):
        low, high = np.sqrt(1e-4), np.sqrt(beta_max / 1000)
        beta[i] = beta[999 - i] = (low + i / 999 * (high - low)) ** 2
    s2 = np.array([beta[: n + 1].sum() for n in range(1000)])
    return beta, s2, np.array([beta[n:].sum() for n in range(1000)])


class Wave(nn.Module):
    """Some function of x and t, in which a pixel depends on its neighbor."""

    def forward(self, x, t):
        return (2 * x.roll(1, -1)).sin() + t.reshape(-1, 1, 1, 1)


class Both(nn.Module):
    """Some function of the state, the degraded image and t."""

    def forward(self, x, degraded, t):
        return (2 * x.roll(1, -1)).sin() + degraded.roll(2, -2) + t.reshape(-1, 1, 1, 1)
