"""Microscopy: counts of photons in gray, with what reading the sensor adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from firm.noise import Noise, PoissonGaussian
from firm.operators import Identity, Operator
from firm.tasks.deblurring import Deblurring
from firm.tasks.denoising import Denoising
from firm.tasks.parameter import Parameter

COUNTS = {"high": 1e9}  # of a stack that was measured, whose counts may go anywhere


class Microscopy(Denoising):
    """Every pixel counts photons, with Poisson noise, and the sensor adds read noise of one standard deviation.

    In training and simulations `gain` and `read` are for images in [-1, 1], where black is -1. Of a stack that was
    measured they are in its counts, and estimated where they are not given (`firm.instruments.microscopy`); a
    point-spread function may come with it.
    """

    name, picture, picture_file = "microscopy", "microscopy", "kernel"
    scan = "firm.instruments.microscopy:MicroscopyScan"
    noise_settings = ("gain", "read", "offset")
    table = None  # type: ignore[assignment]
    sigma = None  # type: ignore[assignment]
    gain = Parameter(
        float, "what a photon adds to pixels in [-1, 1], of a stack to its counts", 0.05, low=0, above=True, high=2,
        drawn="log", picture=COUNTS,
    )  # fmt: skip
    read = Parameter(
        float, "standard deviation of the read noise, for pixels in [-1, 1], of a stack in counts", 0.03, low=0,
        above=True, high=2, drawn="log", picture=COUNTS,
    )  # fmt: skip
    offset = Parameter(
        float,
        "counts of no light, of a stack; images have theirs at -1",
        0.0,
        low=0,
        high=0,
        picture={"low": -1e9, "high": 1e9},
    )

    def draw_operator(self, rows: Any, device: torch.device) -> Any:
        """Return the identity: nothing is drawn but the noise."""
        return self.constant(device)

    def noise(self, values: Mapping[str, Tensor], like: Tensor) -> Noise:
        """Return photon and read noise."""
        return PoissonGaussian(values["gain"], values["read"], check=False)

    @classmethod
    def from_picture(  # type: ignore[override]
        cls, picture: Tensor, settings: Mapping[str, Any], given: Tensor | None = None
    ) -> tuple[Operator, Tensor, int]:
        """Take the picture itself for the measurement, or what is measured through a point-spread function."""
        return (Identity(), picture, 0) if given is None else Deblurring.from_picture(picture, {}, given)
