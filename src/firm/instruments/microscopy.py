"""Microscopy: stacks of counts, whose noise is that of photons and of reading the sensor, estimated from the stack."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from firm._util.checks import require
from firm.data.opening import MAX_MEGAPIXELS
from firm.data.picture import Range
from firm.data.volumes import Volume, open_volume
from firm.instruments.volume import VolumeScan, ranges_of, sample
from firm.noise import PoissonGaussian
from firm.noise.counts import Counts, fit_counts
from firm.noise.estimates import ROUNDING, estimate_noise
from firm.restoration.reading import ProblemError, as_problem, read_kernel
from firm.restoration.scan import Slice
from firm.tasks.microscopy import Microscopy

LOOKED_AT = 8  # slices, for the noise
OTHER = "noise that does not grow with the brightness as that of photons does, of the level"


class MicroscopyScan(VolumeScan):
    """A stack of a microscope, (t, c, z, y, x) in any combination: every plane is denoised, or deblurred, by itself.

    Each channel has its own range of values and its own noise. Black, -1, is the offset: no light.
    """

    noises: list[Counts | float]  # of each channel, in counts: that of photons, or a level

    @classmethod
    def open(  # type: ignore[override]
        cls, path: Path, gain: float | None = None, read: float | None = None, offset: float | None = None,
        kernel: Path | None = None, max_megapixels: float = MAX_MEGAPIXELS,
    ) -> MicroscopyScan:  # fmt: skip
        """Open a stack.

        Parameters
        ----------
        path
            A TIFF (OME, of ImageJ, or plain) or an OME-Zarr image, of counts; other volumes are taken, too.
        gain, read, offset
            What a photon adds, the standard deviation of the read noise, and what is counted without light, all in
            counts; estimated where they are not given, for each channel.
        kernel
            The point-spread function in a plane, a small picture or an array (h, w).
        """
        with as_problem(""):
            volume = open_volume(path)
            ranges = ranges_of(volume)
        noises = [_noise(volume, c, ends, gain, read, offset) for c, ends in enumerate(ranges)]
        # Black is no light, white the robust end of the channel.
        ranges = [(noise.offset if isinstance(noise, Counts) else low, high)
                  for noise, (low, high) in zip(noises, ranges, strict=True)]  # fmt: skip
        scan = cls(volume, ranges)
        scan.noises = noises
        scan.given = None if kernel is None else read_kernel(kernel, max_megapixels)[0]
        said = [str(noise) if isinstance(noise, Counts) else f"{OTHER} {noise:.3g}" for noise in noises]
        each = said[0] if len(said) == 1 else "; ".join(f"channel {c + 1}: {text}" for c, text in enumerate(said))
        estimated = "given" if None not in (gain, read, offset) else "estimated"
        scan.about = f"{volume}; {estimated}: {each}"
        return scan

    def slice(self, i: int) -> Slice:
        """Read plane `i` and make its problem."""
        image, c = self.image(i), self.volume.channel(i)
        with as_problem(f"{self.path}: "):
            op, y, rim = Microscopy.from_picture(image, {}, self.given)
        (low, high), counts = self.ranges[c], self.noises[c]
        half = (high - low) / 2
        if isinstance(counts, Counts):
            noise = PoissonGaussian(counts.gain / half, max(counts.read / half, ROUNDING / 4))
            return self.problem(i, op, y, noise, rim)
        return self.problem(i, op, y, counts / half, rim)


def _noise(
    volume: Volume, channel: int, ends: Range, gain: float | None, read: float | None, offset: float | None
) -> Counts | float:
    """Return the noise of a channel, in counts; where it is not that of photons, its level."""
    if gain is None or read is None or offset is None:
        with as_problem(""):
            planes = torch.from_numpy(np.stack(sample(volume, channel, LOOKED_AT)).astype(np.float64))
        full = volume.ends[1] if volume.dtype.kind in "ui" else np.inf
        try:
            found = fit_counts(planes, full, offset)
        except ValueError as error:
            some = f"{volume.path}: {error}: give all of --gain, --read and --offset, or none of them"
            require(gain is None and read is None and offset is None, some, ProblemError)
            with as_problem(f"{volume.path}: ", ": give --gain, --read and --offset"):
                span = ends[1] - ends[0]
                return span * estimate_noise(planes / span)
        given = (gain, read, offset), (found.gain, found.read, found.offset)
        gain, read, offset = (own if value is None else value for value, own in zip(*given, strict=True))
    bright = f"{volume.path}: the offset, {offset:g} counts, is above almost all there are, {ends[1]:g}"
    require(offset < ends[1], bright, ProblemError)
    return Counts(gain, read, offset)
