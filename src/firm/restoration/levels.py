"""The noise of what was read: its level, or its model, estimated where nobody says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from firm.noise import Noise
from firm.operators import LinearOperator
from firm.restoration.estimates import estimate_noise, smoothest_noise
from firm.restoration.grain import estimate_grain
from firm.restoration.reading import Reading, as_problem
from firm.tasks import BaseTask


def estimated_noise(reading: Reading, seen: Tensor | None, mosaic: bool) -> float:
    """Estimate the noise at the pixels that were seen (H, W), and not transparent; in a mosaic, for each color."""
    if reading.alpha is not None:
        opaque = (reading.alpha > 0).float()
        seen = opaque if seen is None else opaque * seen
    with as_problem("", ": give its level with --sigma"):
        if mosaic:
            height, width = (n - n % 2 for n in reading.image.shape[-2:])
            return smoothest_noise(F.pixel_unshuffle(reading.image[:, :1, :height, :width], 2))
        whole = seen is None and not reading.array
        return estimate_grain(reading.image).sigma if whole else estimate_noise(reading.image, seen)


def modeled_noise(
    path: Path, kind: type[BaseTask], values: dict[str, Any], op: LinearOperator, y: Tensor, gray: bool
) -> tuple[float, Noise, bool]:
    """Make the noise model of a picture, and its average level; `values` gets the settings that had to be estimated.

    Whether there were some is the last that is returned.
    """
    y = y[:, :1] if gray else y
    with as_problem(f"{path}: ", f": give {' and '.join(f'--{key}' for key in kind.noise_settings[:2])}"):
        found = kind.estimated(y, values)
        estimated = bool(found)
        values |= {key: round(value, 6) for key, value in found.items() if key not in values}
        settings = {key: values[key] for key in kind.parameters if key in values}
        made = kind((int(y.shape[-2]), int(y.shape[-1])), **settings)
    noise = made.noise_for(y)
    assert isinstance(noise, Noise)
    return float(noise.on(op, y, y).level(y).mean()), noise, estimated
