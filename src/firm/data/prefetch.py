"""Batches read ahead by a thread, for sets that are mapped from a disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType

import torch
from torch import Tensor

from firm._util.checks import require
from firm.data.images import Images


class Prefetcher:
    """Gathers the batches of a training run a few steps ahead.

    Batches are what ``images.data[indices(step)]`` gives, (B, C, H, W) as stored: uint8 or float32, on the CPU, in
    pinned memory if there is a GPU. Turn them into images with `firm.data.to_float`, on the device. They depend on
    nothing but the step, so a run goes on with the same batches from any `first_step`.

    Parameters
    ----------
    images
        The set that batches are taken from.
    indices
        From a step to the numbers of its images, (B,); called once a step, in order, in the thread.
    first_step
        The step of the first batch.
    depth
        So many batches at most are ready or being read; the one that `get` gave last is not counted.
    """

    def __init__(self, images: Images, indices: Callable[[int], Tensor], first_step: int = 0, depth: int = 3) -> None:
        require(depth >= 1, f"depth must be at least 1, got {depth}")
        self._next, self._closed = first_step, False
        # A thread starts on the first GPU. It knows nothing of the prefetcher, so that one can be forgotten.
        on_gpu = (torch.cuda.set_device, (torch.cuda.current_device(),)) if torch.cuda.is_available() else ()
        self._pool = ThreadPoolExecutor(1, "firm-prefetch", *on_gpu)
        self._gather = partial(_gather, images.data, indices)
        self._ahead: deque[Future[Tensor]] = deque(
            self._pool.submit(self._gather, step) for step in range(first_step, first_step + depth)
        )

    def get(self, step: int) -> Tensor:
        """Return the batch of a step; steps are taken in order. What went wrong in the thread is raised here."""
        require(not self._closed, "the prefetcher is closed", RuntimeError)
        order = f"batches come in order: step {self._next} is next, not {step}; make a new Prefetcher for another"
        require(step == self._next, order)
        batch = self._ahead[0].result()
        self._ahead.popleft()
        self._ahead.append(self._pool.submit(self._gather, step + len(self._ahead) + 1))
        self._next += 1
        return batch

    def close(self) -> None:
        """End the thread and drop what it has read."""
        self._closed = True
        self._pool.shutdown(cancel_futures=True)
        self._ahead.clear()

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _gather(data: Tensor, indices: Callable[[int], Tensor], step: int) -> Tensor:
    index = indices(step).to("cpu", torch.long)
    batch = torch.empty((len(index), *data.shape[1:]), dtype=data.dtype, pin_memory=torch.cuda.is_available())
    return torch.index_select(data, 0, index, out=batch)
