"""A JPEG file as a measurement: the cells that its coefficients were rounded in."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from firm._util.checks import require
from firm.data.jpeg import Component, read_coefficients
from firm.operators import JPEG
from firm.operators.jpeg import SUBSAMPLING


def cells_of(path: Path, max_megapixels: float) -> tuple[JPEG, Tensor]:
    """Read a JPEG file as an operator and its measurement, see `JPEG`; a gray one has colors of 0, almost exactly."""
    found = read_coefficients(path, max_megapixels)
    names = {sampling: name for name, sampling in SUBSAMPLING.items()}
    across, down = found.sampling
    known = f"{path}: {across}x{down} pixels share a sample of color: only 1x1, 2x1 and 2x2 can be restored"
    require((across, down) in names, known)
    Y, *chroma = found.planes
    size = (found.height, found.width) if found.orientation < 5 else (found.width, found.height)
    tables = [torch.from_numpy(c.quantization).float() for c in (Y, chroma[0] if chroma else Y)]
    if not chroma:
        tables[1] = torch.ones(8, 8)
    op = JPEG(tables[0], tables[1], names[across, down], size, found.orientation)
    planes = [_values(c) for c in found.planes]
    return op, op.decoded(planes if chroma else [planes[0], torch.zeros_like(planes[0]), torch.zeros_like(planes[0])])


def _values(c: Component) -> Tensor:
    """Multiply numbers by their table, (1, rows, columns, 8, 8)."""
    blocks = c.numbers.reshape(*c.numbers.shape[:2], 8, 8) * c.quantization
    return torch.from_numpy(blocks)[None].float()
