"""Measurements of any shape, real or complex, as rows of real numbers; for operators that join others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """The shape of one sample's measurement, and whether it is complex."""

    shape: tuple[int, ...]
    complex: bool

    @classmethod
    def of(cls, y: Tensor) -> Layout:
        """That of measurements `y` (B, ...)."""
        return cls(tuple(y.shape[1:]), y.is_complex())

    @property
    def length(self) -> int:
        """How many real numbers one measurement has."""
        return torch.Size(self.shape).numel() * (2 if self.complex else 1)

    def unflatten(self, flat: Tensor) -> Tensor:
        """The inverse of `flatten`: (B, length) to (B, ...)."""
        if not self.complex:
            return flat.reshape(len(flat), *self.shape)
        pairs = flat.reshape(len(flat), *self.shape, 2)
        return torch.complex(pairs[..., 0], pairs[..., 1])  # view_as_complex wants even strides


def flatten(y: Tensor) -> Tensor:
    """Measurements (B, ...) as rows of real numbers, (B, length)."""
    return (torch.view_as_real(y.resolve_conj()) if y.is_complex() else y).flatten(1)
