"""CUDA graphs: work of the GPU recorded once and replayed, so that launching its kernels costs nothing.

`Recording` holds one graph. Training has one for the step (`firm.training.step`); a baseline one for its iteration
(`replayed`); a fast model one for every kind of input (`Recordings`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from firm.noise.base import Noise
from firm.operators.base import LinearOperator, synchronizes

Result = TypeVar("Result")
Step = Callable[..., Tensor]
KINDS = 8  # graphs kept, each with its memory; a folder of many sizes drops the one that was not used for longest
GRAPHS = threading.Lock()  # one for all networks: no other may record or replay while one does
DEVICE = "cuda"  # the type of the devices whose work is recorded
_eager: ContextVar[bool] = ContextVar("eager", default=False)
_done: dict[torch.device, torch.cuda.Event] = {}  # the last replay of all `Recordings` on a device


def recorded(device: torch.device) -> bool:
    """Tell whether work on a device is recorded: it is on a GPU, but not within `eagerly`."""
    return device.type == DEVICE and not _eager.get()


@contextmanager
def eagerly() -> Iterator[None]:
    """Record nothing inside: to compare with, to look for mistakes, and while a larger recording is made."""
    token = _eager.set(True)
    try:
        yield
    finally:
        _eager.reset(token)


class Recording(Generic[Result]):
    """Work of the current GPU as one CUDA graph.

    A graph repeats the same kernels on the same places in memory. A call therefore copies its inputs to their places,
    replays, and returns the recorded result, which the next call overwrites. What the work uses beside its inputs
    (operator, weights) must stay where it is in memory; what it launches must not wait for the device.

    Parameters
    ----------
    work
        The work, without arguments: it reads `places`, and returns tensors.
    places
        Tensors that stand for the inputs, and belong to the recording.
    trials
        How often the work runs before it is recorded, to compile and to choose algorithms.
    before
        Called between the trials and the recording.
    """

    def __init__(
        self,
        work: Callable[[], Result],
        places: Sequence[Tensor],
        trials: int,
        before: Callable[[], None] | None = None,
    ) -> None:
        self.places = places
        with eagerly():  # a network of `fast_network` in the work becomes part of it
            self.graph, self.result = _record(work, trials, before)

    def __call__(self, *inputs: Tensor) -> Result:
        """Copy the inputs to their places, replay, and return the result, which the next call overwrites."""
        for place, given in zip(self.places, inputs, strict=True):
            place.copy_(given)
        self.graph.replay()
        return self.result


def _record(
    work: Callable[[], Result], trials: int, before: Callable[[], None] | None = None
) -> tuple[torch.cuda.CUDAGraph, Result]:
    """Record work on the current GPU, for a `Recording`: the graph, and the result that every replay overwrites.

    All recordings share one stream, because cuBLAS keeps 32 MiB or more for every stream that it has ever worked on.
    """
    stream = _side_stream(torch.cuda.current_device())
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(trials):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    if before is not None:
        before()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        result = work()
    return graph, result


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def replayed(step: Step, device: torch.device | str, op: LinearOperator | None = None) -> Step:
    """Make a function `step` of tensors quick on a GPU: it is recorded at its first call; elsewhere it stays as it is.

    What changes from call to call must be an argument, a tensor of the same shape every time. The step must not draw
    random numbers; it may take gradients within. Its result is overwritten by the next call. A step that solves with
    an operator `op` stays as it is where the solve waits for the device.
    """
    if not recorded(torch.device(device)) or (op is not None and synchronizes(op)):
        return step
    made: list[Recording[Tensor]] = []

    def call(*inputs: Tensor) -> Tensor:
        with torch.cuda.device_of(inputs[0]):
            if not made:
                places = [v.detach().clone() for v in inputs]
                made.append(Recording(lambda: step(*places), places, trials=2))
            return made[0](*inputs)

    return call


class Recordings:
    """Graphs of one piece of work for several kinds of input: recorded where a kind is new, replayed from then on.

    Threads take turns: they share the places of a graph, and a recording takes down what others launch. Each also
    waits, on the device, for the one before, which may have worked on another stream.
    """

    def __init__(self) -> None:
        self.kept: dict[Hashable, Recording[Tensor]] = {}  # the last used comes last

    def __call__(
        self, kind: Hashable, inputs: list[Tensor], work: Callable[[list[Tensor]], Callable[[], Tensor]]
    ) -> Tensor:
        """Compute the result for these inputs; `work` turns their places in memory into what is recorded."""
        with GRAPHS, torch.cuda.device_of(inputs[0]):  # graphs are recorded and replayed on the current device
            device = inputs[0].device
            if device in _done:
                torch.cuda.current_stream().wait_event(_done[device])
            if kind in self.kept:
                self.kept[kind] = self.kept.pop(kind)
            else:
                if len(self.kept) >= KINDS:
                    del self.kept[next(iter(self.kept))]
                # tensors of inference mode cannot be filled outside it
                with torch.inference_mode(False), torch.no_grad():
                    places = [v.clone(memory_format=torch.contiguous_format) for v in inputs]
                    self.kept[kind] = Recording(work(places), places, trials=1)
            result = self.kept[kind](*inputs).clone()  # the next replay overwrites it
            if result.is_cuda:
                _done[device] = torch.cuda.current_stream().record_event()
            return result


_PLAIN = (int, float, str, type(None))
_LIBRARY = ("firm.operators.", "firm.noise.")
_OF_MODULES = frozenset(vars(nn.Module())) | {"_computed"}  # which follows from the buffers


def structure(op: LinearOperator, noise: Noise | None = None, y: Tensor | None = None) -> tuple[Hashable, ...] | None:
    """Collect all that solving with an operator, and a noise model of `y`, depends on but the values in their buffers.

    Two operators with the same structure can share a graph, into which their buffers are copied. None where that is
    not certain (operators from outside the library, or that hold more than numbers) and where solving waits for the
    device.
    """
    if noise is None or y is None:
        return None if synchronizes(op) else _structure(op)
    parts = _structure(op), _structure(noise)
    return None if noise.synchronizes(op, y) or None in parts else parts


def _structure(op: object) -> tuple[Hashable, ...] | None:
    if not isinstance(op, nn.Module) or not type(op).__module__.startswith(_LIBRARY) or op._parameters:
        return None
    settings = {key: value for key, value in vars(op).items() if key not in _OF_MODULES}
    children = [_structure(child) for child in op.children()]
    if None in children or not all(_plain(value) for value in settings.values()):
        return None
    held = [(key, tuple(v.shape), v.dtype, v.device) for key, v in op._buffers.items() if v is not None]
    return (type(op).__name__, *settings.items(), *held, *children)


def _plain(value: object) -> bool:
    return isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(_plain(v) for v in value))
