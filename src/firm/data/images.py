"""Images of one shape, by index: what training and evaluation see of any data set."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from firm.data.picture import to_tensor


def to_float(data: Tensor) -> Tensor:
    """Stored values to images: bytes 0..255 to float32 in [-1, 1], float32 unchanged; any shape, any device."""
    if data.dtype == torch.uint8:
        return to_tensor(data)
    if data.dtype == torch.float32:
        return data
    raise TypeError(f"images are stored as uint8 or float32, not {data.dtype}")


@dataclass(frozen=True)
class Images:
    """Images of one shape, by index.

    Parameters
    ----------
    data
        (n, C, H, W): uint8, where 0..255 stand for [-1, 1], or float32 values; perhaps memory-mapped.
    names
        One for each image: its file, or its place in a stack.
    complex
        If true, the c channels are complex and C = 2c: all real parts, then all imaginary parts.
    """

    data: Tensor
    names: list[str]
    complex: bool = False

    def __post_init__(self) -> None:
        if self.data.ndim != 4 or self.data.dtype not in (torch.uint8, torch.float32):
            found = f"{tuple(self.data.shape)} {self.data.dtype}"
            raise ValueError(f"images are a tensor (n, C, H, W) of uint8 or float32, got {found}")
        if len(self.names) != len(self.data):
            raise ValueError(f"{len(self.data)} images need as many names, got {len(self.names)}")
        if self.complex and (self.channels % 2 or self.data.dtype != torch.float32):
            found = f"{self.channels} channels of {self.data.dtype}"
            raise ValueError(f"complex images have an even number of float32 channels, got {found}")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def channels(self) -> int:
        """Real channels C of an image: 2c for c complex ones."""
        return self.data.shape[1]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one image: (C, H, W)."""
        C, H, W = self.data.shape[1:]
        return C, H, W

    def batch(self, index: Tensor | slice | range) -> Tensor:
        """Some images as a new float32 tensor (B, C, H, W); only these are read, if the set is memory-mapped."""
        if isinstance(index, slice):
            index = range(len(self))[index]
        if isinstance(index, range):
            index = torch.tensor(list(index), dtype=torch.long, device=self.data.device)
        return to_float(self.data[index])

    def digest(self) -> str:
        """A hash of all values, read a few images at a time."""
        total = hashlib.sha256(f"{self.data.dtype} {tuple(self.data.shape)}".encode())
        for first in range(0, len(self), 64):
            total.update(self.data[first : first + 64].cpu().contiguous().numpy().data)
        return total.hexdigest()[:16]

    def part(self, start: int | None = None, stop: int | None = None) -> Images:
        """The images ``start:stop`` as a set of their own; nothing is copied."""
        return Images(self.data[start:stop], self.names[start:stop], self.complex)
