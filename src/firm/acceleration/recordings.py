"""CUDA graphs of one piece of work for several kinds of input: recorded where a kind is new, replayed from then on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, nn

from firm.acceleration.graphs import eagerly, record
from firm.operators.base import LinearOperator, synchronizes

KINDS = 8  # graphs kept, each with its memory; a folder of many sizes drops the one that was not used for longest
GRAPHS = threading.Lock()  # one for all networks: no other may record or replay while one does
_done: dict[torch.device, torch.cuda.Event] = {}  # the last replay of all on a device


class Recordings:
    """See above. Threads take turns: they share the buffers of a graph, and a recording takes down what others launch.

    Each also waits, on the device, for the one before, which may have worked on another stream.
    """

    def __init__(self) -> None:
        self.kept: dict[Hashable, tuple[Any, list[Tensor], Tensor]] = {}  # the last used comes last

    def __call__(
        self, kind: Hashable, inputs: list[Tensor], work: Callable[[list[Tensor]], Callable[[], Tensor]]
    ) -> Tensor:
        """The result for these inputs; `work` turns their places in memory into what is recorded."""
        with GRAPHS, torch.cuda.device_of(inputs[0]):  # graphs are recorded and replayed on the current device
            device = inputs[0].device
            if device in _done:
                torch.cuda.current_stream().wait_event(_done[device])
            if kind in self.kept:
                self.kept[kind] = self.kept.pop(kind)
            else:
                if len(self.kept) >= KINDS:
                    del self.kept[next(iter(self.kept))]
                self.kept[kind] = self._record(inputs, work)
            graph, places, out = self.kept[kind]
            for place, given in zip(places, inputs, strict=True):
                place.copy_(given)
            graph.replay()
            result = out.clone()  # the next replay overwrites it
            if result.is_cuda:
                _done[device] = torch.cuda.current_stream().record_event()
            return result

    def _record(
        self, inputs: list[Tensor], work: Callable[[list[Tensor]], Callable[[], Tensor]]
    ) -> tuple[Any, list[Tensor], Tensor]:
        # eagerly: a network in the work becomes part of it; tensors of inference mode cannot be filled outside it
        with eagerly(), torch.inference_mode(False), torch.no_grad():
            places = [v.clone(memory_format=torch.contiguous_format) for v in inputs]
            graph, out = record(work(places), trials=1)
        return graph, places, out


PLAIN = (int, float, str, type(None))
OF_MODULES = frozenset(vars(nn.Module()))


def structure(op: LinearOperator) -> tuple[Hashable, ...] | None:
    """All that solving with an operator depends on but the values in its buffers.

    Two with the same structure can share a graph, into which their buffers are copied. None where that is not certain
    (operators from outside the library, or that hold more than numbers) and where solving waits for the device.
    """
    return None if synchronizes(op) else _structure(op)


def _structure(op: object) -> tuple[Hashable, ...] | None:
    if not isinstance(op, nn.Module) or not type(op).__module__.startswith("firm.operators.") or op._parameters:
        return None
    own = {key: value for key, value in vars(op).items() if key not in OF_MODULES}
    children = [_structure(child) for child in op.children()]
    if None in children or not all(_plain(value) for value in own.values()):
        return None
    held = [(key, tuple(v.shape), v.dtype, v.device) for key, v in op._buffers.items() if v is not None]
    return (type(op).__name__, *own.items(), *held, *children)


def _plain(value: object) -> bool:
    return isinstance(value, PLAIN) or (isinstance(value, tuple) and all(_plain(v) for v in value))
