"""A step that is made many times, recorded once as a CUDA graph and replayed: launching its kernels costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from firm.acceleration.graphs import eagerly, record, recorded

Step = Callable[..., Tensor]


def replayed(step: Step, device: torch.device | str) -> Step:
    """The function `step` of tensors, recorded at its first call on a GPU; elsewhere `step` itself.

    What it uses beside its arguments (operator, measurements, weights) must stay where it is in memory; what changes
    from call to call must be an argument, a tensor of the same shape every time. It must not wait for the device, nor
    draw random numbers. It may take gradients within. The result is overwritten by the next call.
    """
    return Replayed(step) if recorded(torch.device(device)) else step


class Replayed:
    """See `replayed`."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: list[Tensor] = []
        self.out: Any = None

    def __call__(self, *inputs: Tensor) -> Any:
        """Replay with these inputs; record first where this is the first call."""
        with torch.cuda.device_of(inputs[0]):
            if self.graph is None:
                self.inputs = [v.detach().clone() for v in inputs]
                with eagerly():  # a network of `fast_network` in the step becomes part of it
                    self.graph, self.out = record(lambda: self.step(*self.inputs), trials=2)
            assert self.graph is not None
            for held, given in zip(self.inputs, inputs, strict=True):
                held.copy_(given)
            self.graph.replay()
        return self.out
