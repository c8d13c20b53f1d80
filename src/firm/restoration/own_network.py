"""Whose network a model has, inside what makes it fast or any size."""

from __future__ import annotations

from torch import nn

from firm._model import Firm
from firm.acceleration._fast import FastNetwork
from firm.acceleration.tiling import Tiled


def network_class(model: Firm) -> type[nn.Module]:
    """The class of the network itself, which may be the user's own."""
    net: nn.Module = model.estimator
    while isinstance(net, Tiled | FastNetwork):
        net = net.estimator if isinstance(net, Tiled) else net.net
    return type(net)
