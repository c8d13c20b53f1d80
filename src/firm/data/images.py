"""Images of one shape, by index: what training and evaluation see of any data set, and batches of them read ahead."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from firm._util.checks import require
from firm.data.picture import to_float
from firm.data.stored import Stored


@dataclass(frozen=True)
class Images:
    """Images of one shape, by index.

    Parameters
    ----------
    data
        (n, C, H, W): uint8, where 0..255 stand for [-1, 1], or float32 values; perhaps memory-mapped, or `Stored`.
    names
        One for each image: its file, or its place in a stack.
    complex
        If true, the c channels are complex and C = 2c: all real parts, then all imaginary parts.
    """

    data: Tensor | Stored
    names: list[str]
    complex: bool = False

    def __post_init__(self) -> None:
        shape, dtype, n = tuple(self.data.shape), self.data.dtype, len(self.names)
        why = ""
        if len(shape) != 4 or dtype not in (torch.uint8, torch.float32):
            why = f"images are a tensor (n, C, H, W) of uint8 or float32, got {shape} {dtype}"
        elif n != shape[0]:
            why = f"{shape[0]} images need as many names, got {n}"
        elif self.complex and (shape[1] % 2 or dtype != torch.float32):
            why = f"complex images have an even number of float32 channels, got {shape} {dtype}"
        if why:
            raise ValueError(why)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def channels(self) -> int:
        """Real channels C of an image: 2c for c complex ones."""
        return self.data.shape[1]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (C, H, W) of one image."""
        C, H, W = self.data.shape[1:]
        return C, H, W

    def batch(self, index: Tensor | slice | range) -> Tensor:
        """Return some images as a new float32 tensor (B, C, H, W); of a memory-mapped set only these are read."""
        if isinstance(index, slice):
            index = range(len(self))[index]
        if isinstance(index, range):
            index = torch.tensor(list(index), dtype=torch.long, device=self.data.device)
        return to_float(self.data[index])

    def digest(self) -> str:
        """Return a hash of all values, read a few images at a time."""
        total = hashlib.sha256(f"{self.data.dtype} {tuple(self.data.shape)}".encode())
        for first in range(0, len(self), 64):
            total.update(self.data[first : first + 64].cpu().contiguous().numpy().data)
        return total.hexdigest()[:16]

    def part(self, start: int | None = None, stop: int | None = None) -> Images:
        """Return the images ``start:stop`` as a set; nothing is copied."""
        data = self.data.part(start, stop) if isinstance(self.data, Stored) else self.data[start:stop]
        return Images(data, self.names[start:stop], self.complex)


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
        self._next = first_step
        # A thread starts on the first GPU. It knows nothing of the prefetcher, so that one can be forgotten.
        on_gpu = (torch.cuda.set_device, (torch.cuda.current_device(),)) if torch.cuda.is_available() else ()
        self._pool = ThreadPoolExecutor(1, "firm-prefetch", *on_gpu)
        self._gather = partial(_gather, images.data, indices)
        self._ahead: deque[Future[Tensor]] = deque(
            self._pool.submit(self._gather, step) for step in range(first_step, first_step + depth)
        )

    def get(self, step: int) -> Tensor:
        """Return the batch of a step; steps are taken in order. What went wrong in the thread is raised here."""
        if not self._ahead:
            raise RuntimeError("the prefetcher is closed")
        if step != self._next:
            raise ValueError(f"batches come in order: step {self._next} is next, not {step}; make a new Prefetcher")
        batch = self._ahead[0].result()
        self._ahead.popleft()
        self._ahead.append(self._pool.submit(self._gather, step + len(self._ahead) + 1))
        self._next += 1
        return batch

    def close(self) -> None:
        """End the thread and drop what it has read."""
        self._pool.shutdown(cancel_futures=True)
        self._ahead.clear()

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _gather(data: Tensor | Stored, indices: Callable[[int], Tensor], step: int) -> Tensor:
    index = indices(step).to("cpu", torch.long)
    batch = torch.empty((len(index), *data.shape[1:]), dtype=data.dtype, pin_memory=torch.cuda.is_available())
    return batch.copy_(data[index]) if isinstance(data, Stored) else torch.index_select(data, 0, index, out=batch)
