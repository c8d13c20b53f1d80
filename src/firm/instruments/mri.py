"""Raw k-space of a scanner: coils' maps and noise from the data themselves, images restored and written back."""

from __future__ import annotations

import importlib
import io
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firm._util.checks import counted, require
from firm._util.files import write_atomically
from firm.data.array_file import ArrayError
from firm.data.kspace import KSpace, bart_header, cut_middle, open_kspace
from firm.operators import Operator, to_complex
from firm.operators.coils import edge_covariance, espirit_maps, noise_covariance, whiten
from firm.operators.sampling import uniform_lines
from firm.restoration.reading import ProblemError
from firm.restoration.scan import Scan, Slice, Writer, array_writer
from firm.tasks.mri import multicoil

CALIBRATION, FEWEST = 24, 8  # samples along each side that make maps, at most and at least
CENTERED = (-2, -1)
SENSE, LEAST_RHO = 40, 1e-3  # iterations and rho of the least-squares image: smaller ones change little
BRIGHT = 0.999  # quantile of the first look that stands for 1: single pixels may be brighter


@dataclass
class MeasuredImage:
    """One image of the file: whitened k-space, maps, and how its result becomes what the scanner would show."""

    y: Tensor  # (C, H, W), centered, 0 where not measured
    mask: Tensor  # (1, W) of whole lines, or (H, W); centered
    maps: Tensor  # (C, H, W); the smooth phase of the image is in them
    phase: Tensor  # (H, W), of modulus 1, which is taken out of the image that is restored; 0 where no coil sees
    noise: float  # standard deviation of samples of y
    image_shape: tuple[int, int]


class MriScan(Scan):
    """K-space of several coils, as ISMRMRD, fastMRI-style .h5 or BART's .cfl hold it.

    Every image by itself: the noise of the coils comes from a scan of noise, or from the corners of k-space, and is
    whitened; without a scan its level is that, or what the least-squares image leaves unexplained, if that is less. The
    maps come from the file, or by ESPIRiT from the lines in the middle; what the scanner measured beyond the image
    along the readout is cut off. The smooth phase that the middle of k-space shows goes into the maps, so that the
    image to restore is almost real, and comes back into the result. Images are divided by about their brightest value,
    and results are in the unit of the file: that of the root of the sum of squares over the coils.
    """

    complex = True

    def __init__(self, path: Path, source: KSpace, acceleration: float, center_lines: int) -> None:
        self.path, self.source = path, source
        self.acceleration, self.center_lines = acceleration, center_lines
        self._noise = source.noise()
        self._last: tuple[int, MeasuredImage] | None = None
        problem, middle = self.slice(len(self) // 2), self.image(len(self) // 2)
        noise = float(problem.noise) * problem.gain  # type: ignore[arg-type]  # a number, not a model
        lines = "lines" if len(middle.mask) == 1 else "samples"
        taken = f" (one in {acceleration:g} taken, and {center_lines} in the middle)" if acceleration > 1 else ""
        (H, W), (h, w) = source.shape, source.image_shape
        shown = "" if (h, w) == (H, W) else f", shown {h}x{w}"
        covered = float(middle.maps.ne(0).any(0).float().mean())
        self.about = (
            f"{source.kind}: {counted(len(self))}, {counted(source.coils, 'coil')}, {H}x{W}{shown}, "
            f"{int(middle.mask.sum())} of {middle.mask.numel()} {lines} measured{taken}, noise {noise:.3g} "
            f"{'estimated' if self._noise is None else 'by a scan of it'}, maps "
            f"{'by ESPIRiT' if source.maps(0) is None else 'of the file'}, which cover {covered:.0%} of the image"
        )
        self.notes = tuple(source.notes)

    @classmethod
    def open(cls, path: Path, acceleration: float = 1.0, center_lines: int = 24, **settings: Any) -> MriScan:
        """Open a file, and look at its middle image.

        Parameters
        ----------
        path
            The file, see `firm.data.kspace.open_kspace`.
        acceleration, center_lines
            Take only every so many of the lines, and those in the middle; 1 takes all that were measured.
        settings
            Others that the task declares for scans; there are none.
        """
        with _one_sentence():
            return cls(Path(path), open_kspace(path), acceleration, center_lines)

    def __len__(self) -> int:
        return self.source.count

    def slice(self, i: int) -> Slice:
        """Read image `i`, estimate its noise and its maps, and bring it to magnitudes of about 1."""
        with _one_sentence():
            one = self.image(i)
        mask = torch.fft.ifftshift(one.mask, dim=[axis for axis in CENTERED if one.mask.shape[axis] > 1])
        # of pixels counted from the corner, as those of the operator
        y = (mask * torch.fft.fft2(_transformed(torch.fft.ifft2, one.y), norm="ortho"))[None]
        sense = multicoil(mask, one.maps, iterations=SENSE)
        first = sense.prox_l2(torch.zeros_like(sense.A_adjoint(y)), y, 1 / LEAST_RHO)
        bright = float(to_complex(first).abs().flatten().quantile(BRIGHT))
        require(bright > 0, f"{self.path}: image {i} holds nothing but zeros", ProblemError)
        noise = one.noise if self._noise is not None else min(one.noise, _unexplained(sense, first, y, one))
        return Slice(multicoil(mask, one.maps), y / bright, noise / bright, gain=bright)

    def image(self, i: int) -> MeasuredImage:
        """Read image `i`, whitened, with its maps; the last one is kept."""
        if self._last is None or self._last[0] != i:
            self._last = (i, self._read(i))
        return self._last[1]

    def _read(self, i: int) -> MeasuredImage:
        y = self.source.read(i)
        mask = y.ne(0).any(0)
        if self.source.sampled is not None:
            mask = mask & torch.from_numpy(self.source.sampled)
        require(bool(mask.any()), f"{self.path}: nothing was measured of image {i}", ArrayError)
        lines = bool(mask.any(1).all()) and bool((mask == mask.any(0)).all())
        if self.acceleration > 1:
            first, R, center = (torch.tensor([float(v)]) for v in (0, self.acceleration, self.center_lines))
            mask = mask & (torch.fft.fftshift(uniform_lines(first, R, center, mask.shape[1])[0, 0, 0]) > 0)
            require(bool(mask.any()), f"{self.path}: no line of image {i} is left: a lower acceleration", ArrayError)
        y = y * mask
        covariance = edge_covariance(y) if self._noise is None else noise_covariance(self._noise)
        level = covariance.diagonal().real.mean()
        y = whiten(y, covariance / level)  # in the unit of the file still
        if lines:
            mask = mask.any(0)[None]
            h = self.source.image_shape[0]
            y = _less_oversampled(y, h) * mask if h < y.shape[1] else y
        shape = (y.shape[1], y.shape[2])
        middle, maps = self._middle(y, mask), self.source.maps(i)
        few = f"fewer than {FEWEST}x{FEWEST} samples around zero frequency are measured in image {i}"
        advice = "maps of the coils cannot be made from them (center_lines; --center-lines on the command line)"
        require(maps is not None or middle is not None, f"{self.path}: {few}: {advice}", ArrayError)
        if maps is not None:
            maps = whiten(torch.from_numpy(cut_middle(maps.numpy(), shape)), covariance / level)
        elif middle is not None:
            maps = espirit_maps(middle, shape)
        assert maps is not None
        low = maps if middle is None else _low_resolution(middle, shape)
        phase = (maps.conj() * low).sum(0).sgn()
        return MeasuredImage(y, mask.float(), maps * phase, phase, float(level.sqrt()), self.source.image_shape)

    def _middle(self, y: Tensor, mask: Tensor) -> Tensor | None:
        """Cut out what was measured whole around zero frequency: the most lines, then the most samples of them."""
        H, W = y.shape[1:]
        center = self.center_lines if self.acceleration > 1 else W

        def block(h: int, w: int) -> tuple[slice, slice]:
            return slice(H // 2 - h // 2, H // 2 - h // 2 + h), slice(W // 2 - w // 2, W // 2 - w // 2 + w)

        full = mask.expand(H, W)
        for w in range(min(CALIBRATION, W, max(center, FEWEST)), FEWEST - 1, -1):
            for h in range(min(CALIBRATION, H), FEWEST - 1, -1):
                if bool(full[block(h, w)].all()):
                    return y[(slice(None), *block(h, w))].contiguous()
        return None

    @contextmanager
    def writer(self, stem: Path, deviation: bool = False) -> Iterator[Writer]:
        """Write .npy, and the format of the file beside it: .h5 with a data set ``image``, or .cfl with .hdr."""
        with array_writer(stem.with_name(stem.name + ".npy"), len(self)) as to:
            both = _Both(to, self, deviation)
            yield both
        images = np.stack(both.images)
        if self.source.path.suffix == ".cfl":
            sides = iter(images.shape[1:])
            dimensions: list[int] = list(getattr(self.source, "dimensions"))  # noqa: B009
            dimensions[:4] = [next(sides) if n > 1 else 1 for n in dimensions[:3]] + [1]
            values = np.moveaxis(images.astype(np.complex64), 0, -1)
            write_atomically(stem.with_name(stem.name + ".cfl"), values.tobytes(order="F"))
            write_atomically(stem.with_name(stem.name + ".hdr"), bart_header(tuple(dimensions)))
        else:
            buffer = io.BytesIO()
            with importlib.import_module("h5py").File(buffer, "w") as file:
                file["image"] = images
            write_atomically(stem.with_name(stem.name + ".h5"), buffer.getvalue())


@dataclass
class _Both:
    """Takes images, gives them their phase back, and cuts them to what the scanner shows."""

    to: Writer
    scan: MriScan
    deviation: bool
    images: list[NDArray[Any]] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.to.path

    def put(self, i: int, values: NDArray[Any]) -> None:
        one = self.scan.image(i)
        phase = one.phase.numpy()
        shown = values * (np.abs(phase) if self.deviation else phase)
        shown = cut_middle(shown, (min(one.image_shape[0], shown.shape[0]), min(one.image_shape[1], shown.shape[1])))
        self.images.append(shown.astype(np.float32 if self.deviation else np.complex64))
        self.to.put(i, self.images[-1])


@contextmanager
def _one_sentence() -> Iterator[None]:
    """Turn what is wrong with a file into the error that commands show."""
    try:
        yield
    except (ValueError, torch.linalg.LinAlgError, ModuleNotFoundError) as error:  # type: ignore[attr-defined]
        raise ProblemError(str(error)) from error


def _unexplained(sense: Operator, x: Tensor, y: Tensor, one: MeasuredImage) -> float:
    """Estimate the noise from what the least-squares image of all coils leaves of the measurements.

    |A x - y|^2 has as many degrees of freedom as there are more samples than pixels that coils see; too few say
    nothing. Errors of the maps count as noise, so that it is too large rather than too small, as what the corners of
    k-space hold is, too.
    """
    seen = one.mask.expand(one.y.shape) > 0
    samples, pixels = int(seen.sum()), int(one.maps.ne(0).any(0).sum())
    if samples - pixels < 0.2 * samples:
        return math.inf
    return math.sqrt(float((sense.A(x) - y).abs().square().sum()) / (samples - pixels))


def _transformed(transform: Callable[..., Tensor], y: Tensor) -> Tensor:
    """Apply a Fourier transform between centered images and centered k-space, (C, H, W)."""
    return torch.fft.fftshift(transform(torch.fft.ifftshift(y, dim=CENTERED), norm="ortho"), dim=CENTERED)


def _less_oversampled(y: Tensor, h: int) -> Tensor:
    """K-space (C, h, W) of the middle h rows of the images whose k-space is `y` (C, H, W), fully sampled along H."""
    top = y.shape[1] // 2 - h // 2
    return _transformed(torch.fft.fft2, _transformed(torch.fft.ifft2, y)[:, top : top + h])


def _low_resolution(middle: Tensor, shape: tuple[int, int]) -> Tensor:
    """Images (C, H, W) of the samples (C, h, w) around zero frequency, faded out towards the rim."""
    C, h, w = middle.shape
    (H, W), windows = shape, [torch.hann_window(n + 2)[1:-1] for n in (h, w)]
    y = torch.zeros(C, H, W, dtype=middle.dtype)
    top, left = H // 2 - h // 2, W // 2 - w // 2
    y[:, top : top + h, left : left + w] = middle * windows[0][:, None] * windows[1]
    return _transformed(torch.fft.ifft2, y)
