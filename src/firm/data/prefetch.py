"""Batches read ahead by a thread, for sets that are mapped from a disk."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from types import TracebackType

import torch
from torch import Tensor

from firm.data.images import Images


class Prefetcher:
    """Gathers the batches of a training run a few steps ahead.

    Batches are what ``images.data[indices(step)]`` gives, (B, C, H, W) as stored: uint8 or float32, on the CPU, in
    pinned memory if there is a GPU. Turn them into images with `firm.data.to_float`, on the device. They depend on
    nothing but the step, so a run goes on with the same batches from any `first_step`.

    Parameters
    ----------
    indices
        From a step to the numbers of its images, (B,); called once a step, in order, in the thread.
    depth
        So many batches at most are ready or being read; the one that `get` gave last is not counted.
    """

    def __init__(self, images: Images, indices: Callable[[int], Tensor], first_step: int = 0, depth: int = 3) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}")
        self._next, self._closed = first_step, False
        self._ready: queue.SimpleQueue[Tensor | BaseException] = queue.SimpleQueue()
        self._room, self._stop = threading.Semaphore(depth), threading.Event()
        self._failure: BaseException | None = None
        device = torch.cuda.current_device() if torch.cuda.is_available() else None
        work = (images.data, indices, first_step, self._ready, self._room, self._stop, device)
        self._thread = threading.Thread(target=_gather, args=work, name="firm-prefetch", daemon=True)
        self._thread.start()
        weakref.finalize(self, _end, self._room, self._stop)  # if it is forgotten without close()

    def get(self, step: int) -> Tensor:
        """The batch of a step; steps are taken in order. What went wrong in the thread is raised here."""
        if self._closed:
            raise RuntimeError("the prefetcher is closed")
        if step != self._next:
            raise ValueError(
                f"batches come in order: step {self._next} is next, not {step}; make a new Prefetcher for another"
            )
        if self._failure is not None:
            raise self._failure
        batch = self._ready.get()
        if isinstance(batch, BaseException):
            self._failure = batch
            raise batch
        self._next += 1
        self._room.release()
        return batch

    def close(self) -> None:
        """End the thread and drop what it has read."""
        self._closed = True
        _end(self._room, self._stop)
        self._thread.join()
        self._ready = queue.SimpleQueue()

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _end(room: threading.Semaphore, stop: threading.Event) -> None:
    stop.set()
    room.release()  # the thread may be waiting for it


def _gather(
    data: Tensor,
    indices: Callable[[int], Tensor],
    step: int,
    ready: queue.SimpleQueue[Tensor | BaseException],
    room: threading.Semaphore,
    stop: threading.Event,
    device: int | None,
) -> None:
    """The thread. It knows nothing of the prefetcher, so that one can be forgotten."""
    try:
        if device is not None:
            torch.cuda.set_device(device)  # a thread of its own starts on the first
        while True:
            room.acquire()
            if stop.is_set():
                return
            index = indices(step).to("cpu", torch.long)
            batch = torch.empty((len(index), *data.shape[1:]), dtype=data.dtype, pin_memory=device is not None)
            ready.put(torch.index_select(data, 0, index, out=batch))
            del batch
            step += 1
    except BaseException as error:
        ready.put(error)
