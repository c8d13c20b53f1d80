"""Computed tomography: few views, few photons, parallel rays or a fan."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import Tensor

from firm.noise import Attenuation, Noise
from firm.operators import LinearOperator, Radon
from firm.operators.scale import Scaled
from firm.tasks.base import BaseTask, Rows
from firm.tasks.parameter import Parameter, Shape

MOST_VIEWS = 180  # all that training draws are among so many
ITERATIONS = 40  # of conjugate gradients in training: 20 lose 1 dB, for weights make them slow (experiments/ct)
SOURCE, DETECTOR = 4.0, 3.0  # distances of a fan, in half diagonals of the image


class ComputedTomography(BaseTask):
    """Line integrals of attenuation, of which photons are counted: y = log(photons / counts) of every ray.

    The image holds attenuation, 0 where it is -1. A ray that crosses the image from side to side at white, 1, is
    weakened by exp(-attenuation). Views lie all around, half a turn for parallel rays. The operator has the norm 1.
    """

    name, picture, scan = "ct", "ct", "firm.instruments.ct:CtScan"
    noise_settings = ("photons", "attenuation")
    sigma = None  # type: ignore[assignment]  # every ray has its own
    views = Parameter(
        int, "number of views", 60, low=1, high=MOST_VIEWS, drawn="log",
        picture={"about": "how many of the measured views to use, spread evenly; 0: all", "default": 0, "low": 0,
                 "high": 100_000},
    )  # fmt: skip
    photons = Parameter(
        float, "photons that a bin counts where nothing absorbs", 1e4, low=0, above=True, high=1e9, drawn="log",
        picture={"about": "of line integrals, photons that a bin counts where nothing absorbs; 0: the noise is "
                          "estimated", "default": 0.0, "above": False},
    )  # fmt: skip
    side = Parameter(
        int, "pixels of a side of the image that a measured sinogram becomes; 0: as many as bins", 0, low=0, high=8192,
        picture={"default": 0},
    )  # fmt: skip
    water = Parameter(
        float, "attenuation of water in 1/cm, for results in HU; 0: they are in 1/cm", 0.0, low=0, high=100,
        picture={"default": 0.0},
    )  # fmt: skip
    beam = Parameter(str, "rays, parallel or a fan", "parallel", choices=("parallel", "fan"), option="")
    attenuation = Parameter(
        float, "what a ray through all of a white image is weakened by, as an exponent", 10.0, low=0.01, high=50,
        drawn="log", option="",
    )  # fmt: skip

    def operator(self, seed: int = 42, indices: tuple[int, ...] = (0,)) -> Scaled:
        """Return the operator with this number of views."""
        return _unit(_radon(self.shape, self.views, self.beam))

    def draw_operator(self, rows: Rows, device: torch.device) -> Scaled:
        """Draw a number of views for every sample, all of them among `MOST_VIEWS`."""
        if device not in self._constants:
            self._constants[device] = _radon(self.shape, self._most, self.beam).to(device)
        op: Radon = self._constants[device]  # type: ignore[assignment]
        if "views" in self.ranges:
            op = op.of_views(spread(self.sample("views", rows, device), self._most))
        made = _unit(op)
        made.cg_tol, made.cg_iterations = 0, ITERATIONS  # a fixed number, so that nothing waits for the device
        return made

    def draw(self, x: Tensor, rows: Rows) -> tuple[LinearOperator, Tensor, Tensor | Noise]:
        """Draw views and photons for a batch in training, and measure it; the unit of y is the operator's."""
        op = self.draw_operator(rows, x.device)
        noise = self._noise({key: self.sample(key, rows, x.device) for key in self.noise_settings}, op)
        clean = op.A(x)
        noise = noise.on(op, clean, x)
        return op, noise.draw(clean, rows), noise

    def noise(self, values: Mapping[str, Tensor], like: Tensor) -> Noise:
        """Return the noise of the logarithm of counts."""
        return self._noise(values, _unit(_radon(self.shape, self.views, self.beam)))

    def _noise(self, values: Mapping[str, Tensor], op: Scaled) -> Attenuation:
        """White lies 2 above black in images, and `attenuation` is that of as many pixels as the image is wide."""
        unit = 2 * self.shape[1] * op.factor / values["attenuation"]
        return Attenuation(values["photons"], unit, check=False)

    @property
    def _most(self) -> int:
        return MOST_VIEWS if "views" in self.ranges else self.views


def spread(count: Tensor, total: int) -> Tensor:
    """Choose `count` (B,) of `total` views, spread evenly: (B, total), 1 or 0. Nothing waits for the device."""
    i = torch.arange(total, device=count.device)
    taken = ((i + 1) * count[:, None] / total).ceil() - (i * count[:, None] / total).ceil()
    return (taken > 0.5).float()


def _radon(shape: Shape, views: int, beam: str) -> Radon:
    """The operator in units of pixels; one of its own, to be moved and converted, on a matrix that is shared."""
    return _kept(shape, views, beam).of_views(None)


@lru_cache(maxsize=4)
def _kept(shape: Shape, views: int, beam: str) -> Radon:
    """Matrices are large and take a second: the last ones are kept."""
    around = math.pi if beam == "parallel" else 2 * math.pi
    reach = math.hypot(*shape) / 2
    fan = {} if beam == "parallel" else {"source": SOURCE * reach, "detector": DETECTOR * reach}
    return Radon([i * around / views for i in range(views)], shape, **fan)  # type: ignore[arg-type]


def _unit(op: Radon) -> Scaled:
    """The operator divided by its norm, of every sample."""
    return Scaled(op, 1 / op.known_norm(op.lengths).reshape(-1))
