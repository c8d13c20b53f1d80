"""Denoising: y = x + noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from firm.operators import Identity
from firm.tasks.base import BaseTask
from firm.tasks.parameter import Parameter


class Denoising(BaseTask):
    """Noise alone."""

    name, table, picture = "denoising", 1, "denoising"
    sigma = Parameter(float, BaseTask.sigma.about, 0.2, low=0, drawn="log")

    def operator(self, seed: int = 42, indices: tuple[int, ...] = (0,)) -> Identity:
        """Return the identity."""
        return Identity()

    @classmethod
    def from_picture(
        cls, picture: Tensor, settings: Mapping[str, Any], given: Tensor | None = None
    ) -> tuple[Identity, Tensor, int]:
        """Take the picture itself for the measurement."""
        return Identity(), picture, 0
