"""Network calls, counted as they happen."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class Counted(nn.Module):
    """A network that counts its calls: ``forwards``, and ``backwards``, the times a gradient went back through one.

    On a GPU, where steps are recorded and replayed, it counts what was recorded; count on the CPU.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.config: dict[str, Any] = getattr(net, "config", {})
        self.stride = getattr(net, "stride", 1)
        self.forwards = self.backwards = 0

    def forward(self, *inputs: Tensor) -> Tensor:
        """Call the network."""
        self.forwards += 1
        out: Tensor = self.net(*inputs)
        if out.requires_grad:
            out.register_hook(self._back)
        return out

    def _back(self, gradient: Tensor) -> None:
        self.backwards += 1
