"""Measurements of an instrument, MRI, CT or a microscope, restored slice by slice and written back in its format."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firm._model import Firm
from firm._restore import restore
from firm._sampling import Integrator
from firm._util.files import write_atomically
from firm._util.sheet import Panel
from firm._util.terminal import progress_bar
from firm.noise.base import Noise
from firm.operators.base import LinearOperator, is_linear
from firm.operators.complex import to_complex
from firm.restoration.earlier import Row
from firm.restoration.output import write_side_by_side

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

    @property
    def path(self) -> Path:
        """The file."""
        ...

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
    window: tuple[float, float] | None = None  # values that are shown black and white; None: the range
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


Scale = Callable[[Tensor, LinearOperator], Tensor]  # of standard deviations, see `TaskScale.widened`


def restore_scan(
    model: Firm, scan: Scan, stem: Path, steps: int, samples: int, seed: int, device: torch.device, *,
    integrator: Integrator = "euler", final_solve: bool = False, scale: Scale | None = None, compare: bool = True,
    progress: bool = True,
) -> Row:  # fmt: skip
    """Restore all slices of a scan and write ``stem_restored.*``; with several samples their mean and deviation.

    One slice is in memory at a time. The deviation of complex images is that of their magnitudes. ``stem_compare.png``
    shows the middle slice before and after.

    Parameters
    ----------
    model, steps, samples, seed, integrator, final_solve
        As in `firm.restore`; a last solve where the scan has one, if nothing is said.
    scan
        What is restored.
    stem
        The path of the results, without what they are and the ending of their format.
    device
        Where to compute.
    scale
        What a calibration makes of standard deviations.
    compare, progress
        Write the picture; show a bar over the slices.

    Returns
    -------
    What is known of the results, a row of restore.json: among them ``residual``, the root mean square of A x - y over
    all slices in units of the noise.
    """
    kinds = ["restored", *(["mean", "std"] if samples > 1 else [])]
    residuals: list[float] = []
    levels: list[float] = []
    panels: list[Panel] = []
    nfe, seconds = 0, 0.0
    with ExitStack() as stack:
        to = {
            kind: stack.enter_context(scan.writer(stem.with_name(f"{stem.name}_{kind}"), kind == "std"))
            for kind in kinds
        }
        for i in progress_bar(range(len(scan)), unit="slice", shown=progress and len(scan) > 1):
            s = scan.slice(i)
            op: Any = s.op.to(device) if isinstance(s.op, torch.nn.Module) else s.op
            y, noise = s.y.to(device), s.noise.to(device) if isinstance(s.noise, Noise) else s.noise
            exact = final_solve and is_linear(op)
            r = restore(model, op, y, steps, samples, seed, sigma=noise, integrator=integrator, final_solve=exact)
            nfe, seconds = nfe + r.nfe, seconds + r.seconds
            residuals += [] if r.residual is None else r.residual.square().tolist()
            levels.append(float(noise.on(op, y, r.image).level(y).mean()) if isinstance(noise, Noise) else noise)
            image, mean = (_within(x, s.rim) for x in (r.image, r.mean))
            std = None
            if samples > 1:
                drawn = _within(r.samples[:, 0], s.rim)
                std = (_magnitude(drawn) if scan.complex else drawn).std(0)[None]
                std = std if scale is None else scale(std, op)
            for kind, result in (("restored", image), ("mean", mean), ("std", std)):
                if kind in kinds and result is not None:
                    offset = 0.0 if kind == "std" else s.offset
                    to[kind].put(i, _physical(result[0], s.gain, offset, scan.complex and kind != "std"))
            if i == len(scan) // 2:
                panels = _panels(scan, s, image, mean, std)
        written = [str(writer.path) for writer in to.values()]
    if compare:
        picture = stem.with_name(f"{stem.name}_compare.png")
        write_side_by_side(picture, [panels])
        written.append(str(picture))
    return {
        "read": scan.about, "slices": len(scan), "unit": scan.unit, "estimated": True,
        "sigma": round(sum(levels) / len(levels), 5), "N": steps, "integrator": integrator, "samples": samples,
        "nfe": nfe, "seconds": round(seconds, 3), "advice": list(scan.notes), "written": written,
        **({"residual": round(float(np.sqrt(np.mean(residuals))), 3)} if residuals else {}),
    }  # fmt: skip


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


def _panels(scan: Scan, s: Slice, image: Tensor, mean: Tensor, std: Tensor | None) -> list[Panel]:
    """What the picture shows: before, after, and with several samples their mean and deviation."""
    seen = _magnitude if scan.complex else lambda x: x
    first = _within(s.first if s.first is not None else s.op.A_adjoint(s.y), s.rim)
    restored = seen(image).cpu()
    if scan.window is None:
        low, high = float(restored.min()), float(np.quantile(restored.numpy(), 0.999))  # torch's has a limit of size
    else:
        low, high = ((end - s.offset) / s.gain for end in scan.window)

    def gray(x: Tensor) -> Tensor:
        x = (2 * (seen(x).cpu() - low) / max(high - low, 1e-9) - 1).clamp(-1, 1)[0]
        return x if len(x) in (1, 3) else x[:1]

    panels = [("measured", gray(first)), ("restored", gray(image))]
    if std is not None:
        panels += [("mean", gray(mean)), ("standard deviation", std[0].mean(0).cpu())]
    return panels
