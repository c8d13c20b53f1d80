"""Measurements of an instrument, MRI, CT or a microscope, restored slice by slice and written back in its format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firm._model import Firm
from firm._restore import restore
from firm._util.files import write_atomically
from firm._util.terminal import progress_bar
from firm.noise.base import Noise
from firm.operators.base import LinearOperator
from firm.operators.complex import to_complex
from firm.restoration.output import write_side_by_side
from firm.restoration.run import warnings_as_notes

Values = NDArray[Any]


@dataclass(frozen=True)
class Slice:
    """One image of a scan to restore, and the units of the result: a value is ``offset + gain * x``."""

    op: LinearOperator  # on real images (1, C, H, W); of complex ones `firm.operators.as_real` makes them
    y: Tensor  # its measurements
    noise: float | Noise  # their noise level, or a model of it
    gain: float = 1.0
    offset: float = 0.0
    first: Tensor | None = None  # a look before: (1, C, H, W) in the units of x, such as a filtered back-projection
    rim: int = 0  # pixels around the image that are restored with it, and cut off


class Writer(Protocol):
    """Writes a volume image by image; the file appears, whole, when the writer is closed without an error."""

    path: Path

    def put(self, i: int, values: Values) -> None:
        """Take the image of slice `i` in physical units: (H, W), or (C, H, W) of several channels."""
        ...


class Scan(ABC):
    """A file of an instrument, opened: slices to restore, what was read, and how results are written back.

    A subclass is opened by ``open(path, **settings)``, with the settings that its task declares for real measurements;
    a file that cannot be read or does not fit raises `ProblemError`, one sentence.
    """

    path: Path
    about: str  # one sentence on what was read, such as "16 coils, 96x96, every 4th line, noise 0.3 % of the maximum"
    complex: bool = False  # whether images are complex, restored as real and imaginary channels
    unit: str = ""  # of the values, such as "HU"
    window: ClassVar[tuple[float, float] | None] = None  # values that are shown black and white; None: the range
    notes: tuple[str, ...] = ()

    @classmethod
    @abstractmethod
    def open(cls, path: Path, **settings: Any) -> Scan:
        """Open a file; nothing large is read."""

    @abstractmethod
    def __len__(self) -> int:
        """Count the slices."""

    @abstractmethod
    def slice(self, i: int) -> Slice:
        """Read slice `i` and make its problem."""

    def writer(self, stem: Path, deviation: bool = False) -> Any:
        """Return a context manager that yields a `Writer` of the file ``stem`` with the ending of its format.

        By default that is .npy. `deviation` tells that standard deviations are written, in the same unit.
        """
        return array_writer(stem.with_name(stem.name + ".npy"), len(self))


@contextmanager
def array_writer(path: Path, count: int) -> Iterator[Writer]:
    """Yield a writer of one .npy file (slices, ...), or of one slice without that axis."""
    import io

    collected = _Collected(path, [None] * count)
    yield collected
    buffer = io.BytesIO()
    stacked = np.stack([v for v in collected.values if v is not None])
    np.save(buffer, stacked[0] if count == 1 else stacked)
    write_atomically(path, buffer.getvalue())


@dataclass
class _Collected:
    path: Path
    values: list[Values | None] = field(default_factory=list)

    def put(self, i: int, values: Values) -> None:
        self.values[i] = values


@dataclass(frozen=True)
class ScanReport:
    """What was restored, and how well it fits the measurements."""

    written: list[Path]
    residual: float | None  # root mean square of A x - y over all slices, in units of the noise
    nfe: int
    seconds: float
    notes: list[str]


def restore_scan(
    model: Firm, scan: Scan, out: Path, steps: int, samples: int, seed: int, device: torch.device, *,
    final_solve: bool = False, scale: Callable[[Slice, Tensor], Tensor] | None = None, progress: bool = True,
) -> ScanReport:  # fmt: skip
    """Restore all slices of a scan and write ``out/NAME_restored.*``; with several samples their mean and deviation.

    One slice is in memory at a time. The deviation of complex images is that of their magnitudes. ``NAME_compare.png``
    shows the middle slice before and after.

    Parameters
    ----------
    model, steps, samples, seed, final_solve
        As in `firm.restore`.
    scan
        What is restored.
    out
        The folder of the results.
    device
        Where to compute.
    scale
        What standard deviations are turned into, by a calibration.
    progress
        Show a bar over the slices.
    """
    stem = out / scan.path.name.split(".")[0]
    kinds = ["restored", *(["mean", "std"] if samples > 1 else [])]
    residuals: list[float] = []
    notes, nfe, seconds, written = list(scan.notes), 0, 0.0, []
    with ExitStack() as stack:
        told = stack.enter_context(warnings_as_notes())
        to = {
            kind: stack.enter_context(scan.writer(stem.with_name(f"{stem.name}_{kind}"), kind == "std"))
            for kind in kinds
        }
        for i in progress_bar(range(len(scan)), unit="slice", shown=progress and len(scan) > 1):
            s = scan.slice(i)
            op: Any = s.op.to(device) if isinstance(s.op, torch.nn.Module) else s.op
            noise = s.noise.to(device) if isinstance(s.noise, Noise) else s.noise
            r = restore(model, op, s.y.to(device), steps, samples, seed, sigma=noise, final_solve=final_solve)
            nfe, seconds = r.nfe, seconds + r.seconds
            residuals += [] if r.residual is None else r.residual.square().tolist()
            image, mean = (_within(x, s.rim) for x in (r.image, r.mean))
            std = None
            if samples > 1:
                drawn = _within(r.samples[:, 0], s.rim)
                shown = _magnitude(drawn) if scan.complex else drawn
                std = shown.std(0)[None]
                std = std if scale is None else scale(s, std)
            values = {"restored": image, "mean": mean}
            for kind in kinds:
                result = std if kind == "std" else values[kind]
                assert result is not None
                offset = 0.0 if kind == "std" else s.offset
                to[kind].put(i, _physical(result[0], s.gain, offset, scan.complex and kind != "std"))
            if i == len(scan) // 2:
                panels = _panels(scan, s, image, mean, std)
        written = [writer.path for writer in to.values()]
    write_side_by_side(stem.with_name(f"{stem.name}_compare.png"), [panels])
    written.append(stem.with_name(f"{stem.name}_compare.png"))
    residual = float(np.sqrt(np.mean(residuals))) if residuals else None
    return ScanReport(written, residual, nfe * len(scan), seconds, [*notes, *told])


def _within(x: Tensor, rim: int) -> Tensor:
    """Cut off a rim of so many pixels."""
    return x[..., rim:-rim, rim:-rim] if rim else x


def _magnitude(x: Tensor) -> Tensor:
    """Magnitudes (S, C, H, W) of complex images that are given as real and imaginary channels (S, 2C, H, W)."""
    return to_complex(x).abs()


def _physical(x: Tensor, gain: float, offset: float, complex_image: bool) -> Values:
    """An image (C, H, W) in physical units: (H, W), or (C, H, W) of several channels."""
    x = x.detach().cpu()
    x = to_complex(x[None])[0] if complex_image else x
    values: Values = (offset + gain * x).numpy()
    return values[0] if len(values) == 1 else values


def _panels(scan: Scan, s: Slice, image: Tensor, mean: Tensor, std: Tensor | None) -> list[tuple[str, Tensor]]:
    """What the picture shows: before, after, and with several samples their mean and deviation."""
    seen = _magnitude if scan.complex else lambda x: x
    first = _within(s.first if s.first is not None else s.op.A_adjoint(s.y), s.rim)
    restored = seen(image).cpu()
    if scan.window is None:
        low, high = float(restored.min()), float(restored.quantile(0.999))
    else:
        low, high = ((end - s.offset) / s.gain for end in scan.window)

    def gray(x: Tensor) -> Tensor:
        x = (2 * (seen(x).cpu() - low) / max(high - low, 1e-9) - 1).clamp(-1, 1)[0]
        return x if len(x) in (1, 3) else x[:1]

    panels = [("measured", gray(first)), ("restored", gray(image))]
    if std is not None:
        panels += [("mean", gray(mean)), ("standard deviation", std[0].mean(0).cpu())]
    return panels
