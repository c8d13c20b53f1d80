"""A training step as a CUDA graph: recorded once and replayed, so that launching kernels costs nothing."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn


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

    def _run(self, warm: bool) -> Tensor:
        loss: Tensor = self.module(self.t, 0, warm, self.read)
        loss.backward()
        return loss.detach()

    def _record(self, warm: bool) -> None:
        self.graph = None  # frees the memory of the one before
        buffers = {k: v.clone() for k, v in self.module.named_buffers()}
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):  # compile and choose algorithms before recording
                for p in self.params:
                    p.grad = None
                self._run(warm)
        torch.cuda.current_stream().wait_stream(stream)
        for p in self.params:
            p.grad = None  # the graph makes its own, and overwrites them in every replay
        self.graph, self.warm = torch.cuda.CUDAGraph(), warm
        with torch.cuda.graph(self.graph):
            self.loss = self._run(warm)
        with torch.no_grad():
            for key, value in self.module.named_buffers():
                value.copy_(buffers[key])  # the trial runs do not count
