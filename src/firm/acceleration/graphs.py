"""CUDA graphs: work recorded once and replayed, so that launching kernels costs nothing. A training step as one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor, nn

Result = TypeVar("Result")
_eager: ContextVar[bool] = ContextVar("eager", default=False)


def recorded(device: torch.device) -> bool:
    """Whether work on a device is recorded: on a GPU, and not within `eagerly`."""
    return device.type == "cuda" and not _eager.get()


@contextmanager
def eagerly() -> Iterator[None]:
    """Within it nothing is recorded: to compare with, to look for mistakes, and while a larger recording is made."""
    token = _eager.set(True)
    try:
        yield
    finally:
        _eager.reset(token)


def record(
    function: Callable[[], Result], trials: int = 3, before: Callable[[], None] | None = None
) -> tuple[torch.cuda.CUDAGraph, Result]:
    """Record what `function` does on the current GPU, after `trials` that compile and choose algorithms.

    Returns the graph and the function's result, which every replay overwrites. `before` runs after the trials. All
    recordings share one stream, because cuBLAS keeps 32 MiB or more for every stream that it has ever worked on.
    """
    stream = _side_stream(torch.cuda.current_device())
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(trials):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    if before is not None:
        before()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        out = function()
    return graph, out


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


class GraphedStep:
    """Forward and backward pass of a loss, recorded once and replayed. One GPU only.

    The loss is called as ``loss(t, 0, warm, read)`` and must not wait for the device; its buffers (running means) do
    not count the trial runs before the recording.
    """

    def __init__(self, loss: nn.Module, params: list[nn.Parameter], batch: int) -> None:
        self.module, self.params = loss, params
        self.t = torch.full((batch,), 0.5, device=params[0].device)
        self.read: Tensor | None = None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.warm: bool | None = None  # what the graph was recorded for
        self.recording = 0.0  # seconds spent on compiling and recording

    def __call__(self, t: Tensor, warm: bool, read: Tensor | None) -> Tensor:
        """Replay; record first if this is the first step, or the first with the solver."""
        self.t.copy_(t)
        if read is not None:
            self.read = read.clone() if self.read is None else self.read.copy_(read)
        if self.graph is None or self.warm != warm:
            seed, start = torch.initial_seed(), time.monotonic()
            self._record(warm)
            torch.cuda.synchronize()
            self.recording += time.monotonic() - start
            torch.manual_seed(seed)
        assert self.graph is not None
        self.graph.replay()
        return self.loss

    def _clear(self) -> None:
        """Forget the gradients: the graph makes its own, and overwrites them in every replay."""
        for p in self.params:
            p.grad = None

    def _run(self, warm: bool) -> Tensor:
        loss: Tensor = self.module(self.t, 0, warm, self.read)
        loss.backward()
        return loss.detach()

    def _record(self, warm: bool) -> None:
        self.graph = None  # frees the memory of the one before
        buffers = {k: v.clone() for k, v in self.module.named_buffers()}
        self.graph, self.loss = record(lambda: self._run(warm), before=self._clear)
        self.warm = warm
        with torch.no_grad():
            for key, value in self.module.named_buffers():
                value.copy_(buffers[key])  # the trial runs do not count
