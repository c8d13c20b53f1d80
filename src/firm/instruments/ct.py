"""Computed tomography: sinograms with their geometry become images of attenuation, in 1/cm or Hounsfield units."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from firm._util.checks import counted, require
from firm._util.machine import free_memory
from firm.data.array_file import ArrayError
from firm.data.sinogram import Sinogram, read_sinogram
from firm.noise import Gaussian, line_integrals
from firm.operators import Geometry, Radon, filtered_back_projection
from firm.restoration.reading import ProblemError
from firm.restoration.scan import Scan, Slice

BRIGHT, ABOVE = 0.999, 1.1  # white: a quantile of the first look, and how much more
TOLERANCE = (
    1e-5  # of conjugate gradients: weights make them slow, and few of them leave images unsharp (experiments/ct)
)
LEAST_NOISE = 1e-4  # of an estimate, in units of the largest line integral
SMOOTHED = math.sqrt(6)  # deviation of the second differences of white noise of deviation 1
BYTES = 144  # while the matrix is made, for every view, bin and pixel of a side: 72 of an entry, of which a row has two
FAINT = 10  # photons, below which their logarithm is far from normal


class CtScan(Scan):
    """A sinogram, `firm.data.sinogram.read_sinogram` says of which files: one image for each slice.

    Counts become line integrals, log(blank / counts), with the deviation 1 / sqrt(counts) of every ray; of line
    integrals the deviation follows from the number of photons, or is estimated from what differs between neighboring
    bins. The image is as wide as the field of view, and its pixels are as large as a bin is at the axis. No attenuation
    is -1, and 1 is a tenth more than nearly the largest of a first look, a filtered back-projection.
    """

    def __init__(self, path: Path, sinogram: Sinogram, views: int, photons: float, side: int, water: float) -> None:
        self.path, self.photons, self.water = path, photons, water
        total, bins = sinogram.values.shape[1:]
        require(views <= total, f"{path}: {views} views asked for, and it has {total}", ArrayError)
        chosen = np.arange(total) if not views else np.arange(views) * total // views
        self.sinogram, self.chosen = sinogram, chosen
        source, detector = sinogram.source, sinogram.detector
        shadow = sinogram.spacing if source is None else sinogram.spacing * source / (source + detector)  # at the axis
        self.side = side or bins
        self.geometry = Geometry(
            torch.from_numpy(sinogram.angles[chosen]), (self.side, self.side), shadow * bins / self.side, bins,
            sinogram.spacing, source, detector, sinogram.offset, sinogram.curved,
        )  # fmt: skip
        needed, free = BYTES * len(chosen) * bins * self.side, free_memory()
        large = (
            f"{path}: {len(chosen)} views, {bins} bins and {self.side}x{self.side} pixels take {needed / 1e9:.0f} GB"
        )
        fewer = "fewer views (--views 60), or a smaller image (--side 256)"
        require(free is None or needed < free, f"{large}, and {(free or 0) / 1e9:.0f} are free: {fewer}", ArrayError)
        self._made: tuple[Radon, Tensor] | None = None
        p, sigma, faint = self._integrals(len(self) // 2)
        first = filtered_back_projection(self.geometry, p, smooth=True)
        self.white = ABOVE * float(first.flatten().quantile(BRIGHT))
        require(self.white > 0, f"{path}: the sinogram shows nothing that absorbs", ArrayError)
        self.notes = (*sinogram.notes, *faint)
        self.unit = "HU" if water else "1/cm" if sinogram.unit else "1/bin"
        low, high = self._values(-1.0), self._values(1.0)
        self.window = low, high
        kind = "counts" if sinogram.blank is not None else "line integrals"
        beam = (
            "parallel rays" if source is None else f"a fan, source {source:g} and detector {detector:g} from the axis"
        )
        of = "" if len(chosen) == total else f" of {total}"
        size = f"{self.side}x{self.side} pixels of {self.geometry.pixel:.4g}" + (" mm" if sinogram.unit else " bins")
        self.about = (
            f"{counted(len(self), 'slice')} of {kind}, {len(chosen)}{of} views, {bins} bins, {beam}; {size}; noise "
            f"{float(sigma.square().mean().sqrt()):.3g} of a line integral ({self._noise_by}); black {low:.4g} to "
            f"white {high:.4g} {self.unit}"
        )

    @classmethod
    def open(
        cls, path: Path, views: int = 0, photons: float = 0.0, side: int = 0, water: float = 0.0, **settings: Any
    ) -> CtScan:
        """Open a file, and look at its middle slice.

        Parameters
        ----------
        path
            The file.
        views
            How many views to use, spread evenly; 0: all.
        photons
            Of line integrals: counted by a bin where nothing absorbs; 0: the noise is estimated.
        side
            Pixels of a side of the image; 0: as many as there are bins.
        water
            Attenuation of water in 1/cm: results are in Hounsfield units then.
        settings
            Others that the task declares; there are none.
        """
        try:
            sinogram = read_sinogram(path)
            unknown = f"{path}: Hounsfield units need lengths: the file has no spacing of its bins"
            require(not water or sinogram.unit, unknown, ArrayError)
            return cls(Path(path), sinogram, views, photons, side, water)
        except (ArrayError, ValueError, MemoryError) as error:
            wrong = str(error) or "too large for the memory"
            raise ProblemError(wrong if str(path) in wrong else f"{path}: {wrong}") from error

    def __len__(self) -> int:
        return len(self.sinogram.values)

    def _operator(self) -> tuple[Radon, Tensor]:
        """The operator of all slices, made when it is first asked for, and what it measures of ones."""
        if self._made is None:
            g = self.geometry
            op = Radon(
                g.angles, g.image_size, pixel=g.pixel, bins=g.bins, spacing=g.spacing, source=g.source,
                detector=g.detector, offset=g.offset, curved=g.curved,
            )  # fmt: skip
            op.cg_tol = TOLERANCE
            self._made = op, op.A(torch.ones(1, 1, *g.image_size))  # before somebody moves it to another device
        return self._made

    def slice(self, i: int) -> Slice:
        """Make the problem of slice `i`: images x stand for white (x + 1) / 2."""
        p, sigma, _ = self._integrals(i)
        half, (op, of_ones) = self.white / 2, self._operator()
        y = p / half - of_ones
        first = filtered_back_projection(self.geometry, p) / half - 1
        low, high = self._values(-1.0), self._values(1.0)
        return Slice(op, y, Gaussian(sigma / half), (high - low) / 2, (high + low) / 2, first)

    def _values(self, x: float) -> float:
        """What a value of an image stands for, in the unit of the scan."""
        attenuation = self.white * (x + 1) / 2
        if self.sinogram.unit:
            attenuation *= 10  # per cm
        return 1000 * (attenuation / self.water - 1) if self.water else attenuation

    @property
    def _noise_by(self) -> str:
        if self.sinogram.blank is not None:
            return "by the counts"
        return f"by {self.photons:g} photons" if self.photons else "estimated from neighboring bins"

    def _integrals(self, i: int) -> tuple[Tensor, Tensor, list[str]]:
        """Line integrals of slice `i`, (1, 1, views, bins), their deviations, or one of all, and what is to be said."""
        values = torch.from_numpy(self.sinogram.values[i][self.chosen].astype(np.float64))[None, None]
        if self.sinogram.blank is not None:
            p, sigma = line_integrals(values, torch.from_numpy(self.sinogram.blank))
            few = int((values < FAINT).sum())
            told = f"{few:,} of {values.numel():,} rays of slice {i} counted fewer than {FAINT} photons, and "
            told += f"{int((values == 0).sum()):,} none: they are given little weight"
            return p.float(), sigma.float(), [told] if few else []
        if self.photons:
            return values.float(), ((values / 2).exp() / math.sqrt(self.photons)).float(), []
        wiggles = values.diff(n=2, dim=-1).abs().flatten().quantile(0.5) / 0.6745 / SMOOTHED
        level = wiggles.clamp(min=LEAST_NOISE * float(values.abs().max().clamp(min=1e-9)))
        return values.float(), level.float(), []
