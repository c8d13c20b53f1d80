"""Volumes of any instrument, restored as pictures are: slice by slice, in their units, and written in their format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from firm._util.checks import require
from firm.data.opening import MAX_MEGAPIXELS
from firm.data.picture import Range
from firm.data.volumes import Volume, open_volume
from firm.restoration.estimates import estimate_noise
from firm.restoration.reading import ProblemError, as_problem, picture_settings, read_kernel
from firm.restoration.scan import Scan, Slice
from firm.tasks import BaseTask

TASKS = ("denoising", "deblurring", "motion-deblurring")  # which leave size and spacing as they are
SLICES, PIXELS = 12, 2**16  # of a volume and of a slice, from which the range of values is taken
ENDS = 0.001, 0.999  # quantiles that become -1 and 1: single hot pixels do not decide
BACKGROUND = 0.05  # of the range: below, there is air, whose noise is another


class VolumeScan(Scan):
    """A DICOM series, a NIfTI file, a TIFF or an OME-Zarr image, for a task of degraded pictures.

    Robust ends of its values, of each channel by itself, become -1 and 1; nothing is clipped there.
    """

    kind: type[BaseTask]
    settings: dict[str, Any]  # of the task
    given: Tensor | None = None  # the kernel of a blur, (h, w)
    sigma: float | None = None  # the noise level, where it is not estimated
    strength: float = 1.0

    def __init__(self, volume: Volume, ranges: Sequence[Range]) -> None:
        self.volume, self.ranges = volume, list(ranges)
        self.path, self.unit = volume.path, volume.unit

    @classmethod
    def open(
        cls, path: Path, task: str | None = None, sigma: float | None = None, strength: float = 1.0,
        kernel: Path | None = None, value_range: Range | None = None, max_megapixels: float = MAX_MEGAPIXELS,
        **settings: Any,
    ) -> VolumeScan:  # fmt: skip
        """Open a volume for a task.

        Parameters
        ----------
        path
            What `firm.data.volumes.open_volume` takes.
        task, settings
            "denoising" (if not given), "deblurring" or "motion-deblurring", and the settings of the blur.
        sigma, strength, kernel
            As for pictures: the noise level where -1 and 1 are the ends of the range, estimated for every slice if not
            given; what an estimate is multiplied by; and the file of a blur.
        value_range
            The values that become -1 and 1, instead of robust ends.
        """
        task = task or "denoising"
        known = f"volumes are restored slice by slice by {', '.join(TASKS)}, not by {task}"
        require(task in TASKS, known, ProblemError)
        kind, values = picture_settings(task, sigma, kernel=kernel, **settings)
        given = None if kernel is None else read_kernel(kernel, max_megapixels)[0]
        blurred = task == "denoising" or bool(values) or given is not None
        require(blurred, f"{task} of a volume needs the blur: give --blur, or its --kernel", ProblemError)
        with as_problem(""):
            volume = open_volume(path)
            scan = cls(volume, ranges_of(volume, value_range))
        scan.kind, scan.settings, scan.given = kind, values, given
        scan.sigma, scan.strength = sigma, strength
        level = scan.level(scan.image(len(scan) // 2))
        said = "given" if sigma is not None else "estimated in the middle slice"
        scan.about = f"{volume}; {scan.said(level)}, {said}"
        return scan

    def __len__(self) -> int:
        return self.volume.count

    def slice(self, i: int) -> Slice:
        """Read slice `i` and make its problem."""
        image = self.image(i)
        with as_problem(f"{self.path}: "):
            op, y, rim = self.kind.from_picture(image, self.settings, self.given)
        return self.problem(i, op, y, self.level(image), rim)

    def writer(self, stem: Path, deviation: bool = False) -> Any:
        """Return what writes a file of the same format, see `Volume.writer`."""
        return self.volume.writer(stem, deviation)

    def image(self, i: int) -> Tensor:
        """Read slice `i` as an image, (1, 1, H, W), its range of values from -1 to 1."""
        with as_problem(""):
            values = self.volume.read(i)
        bad = f"{self.path}: slice {i + 1} has values that are NaN or infinite"
        require(np.isfinite(values).all(), bad, ProblemError)
        low, high = self.ranges[self.volume.channel(i)]
        return torch.from_numpy(2 * (values.astype(np.float64) - low) / (high - low) - 1).float()[None, None]

    def problem(self, i: int, op: Any, y: Tensor, noise: Any, rim: int = 0) -> Slice:
        """Make a slice whose results are in the units of the volume."""
        low, high = self.ranges[self.volume.channel(i)]
        return Slice(op, y, noise, (high - low) / 2, (high + low) / 2, rim=rim)

    def level(self, image: Tensor) -> float:
        """Return the noise level of an image, estimated where it is not given: above the background, if that tells."""
        if self.sigma is not None:
            return self.sigma
        with as_problem(f"{self.path}: ", ": give the noise level with --sigma"):
            seen = (image > 2 * BACKGROUND - 1)[0, 0].float()
            return self.strength * estimate_noise(image, seen if float(seen.mean()) > 0.05 else None)

    def said(self, level: float) -> str:
        """Say the range and a noise level in the units of the volume."""
        low, high = self.ranges[0]
        unit = f" {self.unit}" if self.unit else ""
        return f"{low:.5g} to {high:.5g}{unit} become -1 to 1; noise {level:.3g}, {level * (high - low) / 2:.3g}{unit}"


def ranges_of(volume: Volume, given: Range | None = None) -> list[Range]:
    """Find the values of each channel that become -1 and 1: robust ends of a sample, or those that are given."""
    if given is not None:
        return [given] * volume.channels
    return [_range(volume, c, sample(volume, c)) for c in range(volume.channels)]


def sample(volume: Volume, channel: int, slices: int = SLICES) -> list[Any]:
    """Read some slices of a channel, evenly over the volume."""
    of_it = [i for i in range(volume.count) if volume.channel(i) == channel]
    picked = np.unique(np.linspace(0, len(of_it) - 1, min(slices, len(of_it))).round().astype(int))
    return [volume.read(of_it[i]) for i in picked]


def _range(volume: Volume, channel: int, slices: Sequence[Any]) -> Range:
    step = max(1, int((slices[0].size / PIXELS) ** 0.5))
    values = np.concatenate([values[::step, ::step].ravel() for values in slices]).astype(np.float64)
    which = f" of channel {channel + 1}" if volume.channels > 1 else ""
    bad = f"{volume.path}: values{which} that are NaN or infinite"
    require(np.isfinite(values).all(), bad, ProblemError)
    low, high = (float(end) for end in np.quantile(values, ENDS))
    if low == high:  # few pixels show something
        low, high = float(values.min()), float(values.max())
    nothing = f"{volume.path}: all values{which} are {low:g}: nothing was recorded"
    require(low < high, nothing, ProblemError)
    return low, high
