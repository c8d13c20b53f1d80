"""What tests of the baselines share: flows that are known exactly, small networks, seeds."""

import torch
from torch import nn

from firm.baselines import as_denoiser, d_flow, diffpir, flow_priors, flower, i2sb, ot_ode, pnp_flow, pnp_gs, pnp_hqs
from firm.networks import GradientStep, PriorUNet
from firm.operators import Blur, Fourier, Identity, Mask, Subsample, from_functions, gaussian_kernel

METHODS = {
    "pnp_flow": (pnp_flow, dict(steps=3, averages=2)),
    "flower": (flower, dict(steps=3, averages=2, gamma=1)),
    "ot_ode": (ot_ode, dict(steps=5, start=0.4)),  # which makes 3
    "pnp_hqs": (pnp_hqs, dict(steps=3)),
    "diffpir": (diffpir, dict(steps=3)),
    "pnp_gs": (pnp_gs, dict(steps=3)),
    "d_flow": (d_flow, dict(outer=3, inner=3, blend=0.3)),
    "flow_priors": (flow_priors, dict(steps=3, lr=0.1)),
    "i2sb": (i2sb, dict(steps=3, ode=False)),
}


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


def network_for(name, channels, dtype=torch.float64, place="cpu"):
    """A small network of the kind that the method takes."""
    net = small_network(GradientStep if name == "pnp_gs" else PriorUNet, channels).to(place, dtype)
    return as_denoiser(net) if name in ("pnp_hqs", "diffpir") else net


def operator_on(name, side=8, channels=1):
    """An operator in float64 on images of this size; "matrix" has no closed form."""
    g = torch.Generator().manual_seed(2)
    mask, shape = (torch.rand(side, side, generator=g) < 0.5).double(), (channels, side, side)
    M = torch.randn(40, channels * side**2, dtype=torch.float64, generator=g) / 10
    return {
        "identity": lambda: Identity(),
        "mask": lambda: Mask(mask),
        "masks": lambda: Mask(torch.stack([mask, 1 - mask, mask.T])[:, None]),  # one for each image
        "blur": lambda: Blur(gaussian_kernel(3 if side < 8 else 5, 0.6).double()),
        "subsample": lambda: Subsample(2),
        "fourier": lambda: Fourier(mask),
        "matrix": lambda: from_functions(lambda x: x.flatten(1) @ M.T, lambda y: (y @ M).reshape(-1, *shape)),
    }[name]()
