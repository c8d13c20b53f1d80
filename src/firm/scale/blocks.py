"""One block of an image larger than memory, restored so that the result does not depend on how the image was cut.

The network works on the tiles that `firm.tiled` would take for the whole image, and a block takes those it needs out of
that one grid. Its starting noise is that of its place. What remains is what a tile learns of tiles beyond the block's
margin, from call to call: with a margin of two tiles this is below the rounding of float32 (docs/scale.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from firm._model import Firm
from firm._sampling import sample
from firm._util.checks import require
from firm.acceleration.tiling import Grid, Tiled
from firm.operators import LinearOperator, Mask
from firm.operators.base import Operator, data_consistency, has_closed_form
from firm.restoration.estimates import ROUNDING
from firm.restoration.problem import COPIES_FACTOR
from firm.restoration.reading import ProblemError
from firm.tasks import picture_tasks

CELL = 128  # pixels: noise is drawn for squares of this side
STARTING, CHANNELS = 0, 1  # what noise is drawn for
LOCAL = ("denoising", "inpainting", "deblurring", "motion-deblurring")
EXACT = 1e-9  # residual of conjugate gradients: stopped early, their result would depend on the whole block


def placed_noise(
    seed: int, plane: int, channels: int, rows: range, columns: range, purpose: int = STARTING
) -> NDArray[np.float32]:
    """Draw the Gaussian noise of a place in an endless image, (channels, len(rows), len(columns)).

    It is a function of the seed, the plane, the purpose and the pixel: overlapping places share what they share.
    """
    out = np.empty((channels, len(rows), len(columns)), np.float32)
    for i in range(rows.start // CELL, -(-rows.stop // CELL)):
        for j in range(columns.start // CELL, -(-columns.stop // CELL)):
            numbers = np.random.Generator(np.random.Philox(key=[seed, purpose], counter=[0, j, i, plane]))
            cell = numbers.standard_normal((channels, CELL, CELL), np.float32)
            top, left = max(rows.start, i * CELL), max(columns.start, j * CELL)
            below, right = min(rows.stop, (i + 1) * CELL), min(columns.stop, (j + 1) * CELL)
            out[:, top - rows.start : below - rows.start, left - columns.start : right - columns.start] = cell[
                :, top - i * CELL : below - i * CELL, left - j * CELL : right - j * CELL
            ]
    return out


@dataclass(frozen=True)
class Part:
    """What a block needs of one side of an image: the tiles that it touches and those of its margin."""

    start: int  # of the first tile
    stop: int  # the end of the last tile, or of the image
    tiles: Grid  # counted from `start`

    @classmethod
    def around(cls, first: int, last: int, length: int, grid: Grid, margin: int) -> Part:
        """Take the tiles of the pixels ``first:last`` of a side of `length`, and `margin` more on both sides."""
        side, places = grid
        touched = [k for k, place in enumerate(places) if place < last and place + side > first]
        chosen = places[max(0, touched[0] - margin) : touched[-1] + 1 + margin]
        return cls(chosen[0], min(length, chosen[-1] + side), (side, [place - chosen[0] for place in chosen]))


class _Tiles(Tiled):
    """The tiles of a part of an image, as they lie in the whole."""

    def __init__(self, estimator: nn.Module, tile: int, overlap: int, parts: tuple[Part, Part]) -> None:
        super().__init__(estimator, tile, overlap)
        self.parts = parts

    def grid(self, height: int, width: int) -> tuple[Grid, Grid]:
        """Return the tiles of the part, which is what the network is called with."""
        down, across = (part.tiles for part in self.parts)
        return down, across


@dataclass(frozen=True)
class Recipe:
    """How blocks are restored: all that their values depend on beside the image and the model."""

    task: str
    settings: Mapping[str, Any]  # of the task
    sigma: float
    steps: int  # N; K is the model's
    seed: int
    tile: int = 128
    overlap: int = 32
    margin: int = 2  # tiles
    kernel: Tensor | None = field(default=None, repr=False)  # (h, w) of a blur, instead of its settings
    keep_known: bool = False  # leave the pixels that were seen as they are

    @property
    def rim(self) -> int:
        """Pixels around the image that are restored with it, and not kept: what a blur brought in from there."""
        return 0 if self.task == "inpainting" else self.operator(torch.zeros(1, 1, 1024, 1024), None)[1]

    def operator(self, picture: Tensor, seen: Tensor | None) -> tuple[LinearOperator, int]:
        """Return the operator of a part of the image, (1, C, h, w), and the rim around it that it reaches into."""
        if seen is not None:
            return Mask(seen, check=False), 0  # all of a part may be missing
        op, _, rim = picture_tasks()[self.task][0].from_picture(picture, self.settings, self.kernel)
        return op if has_closed_form(op) else _Exact(op), rim


class _Exact(Operator):
    """An operator whose data-consistency step is solved in float64, so that it hardly knows the block it is solved in.

    Conjugate gradients stop by a sum over the block: what they leave undone depends on all of it.
    """

    def __init__(self, op: Operator) -> None:
        super().__init__()
        self.op = op.double()
        self.op.cg_tol, self.op.cg_iterations = EXACT, Operator.cg_iterations

    def A(self, x: Tensor) -> Tensor:
        """Measure images `x` (B, ...)."""
        return self.op.A(x.double()).to(x.dtype)

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Apply the adjoint to measurements `y`."""
        return self.op.A_adjoint(y.double()).to(y.dtype)

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """Solve (A'A + I/gamma) x = A'y + z/gamma in float64."""
        return data_consistency(self.op, z.double(), y.double(), 1 / gamma).to(z.dtype)


def check_local(task: str) -> None:
    """Refuse a task whose measurements cannot be restored one block after the other."""
    wrong = f"{task} is not restored block by block, only {', '.join(LOCAL)}: others change the size of the image, or "
    require(task in LOCAL, f"{wrong}measure all of it at once", ProblemError)


@dataclass(frozen=True)
class Block:
    """One block of an image: the pixels that it gives, and the parts of the image that it is computed from."""

    plane: int
    rows: range
    columns: range
    parts: tuple[Part, Part]  # with the rim: the image restored is larger than the measured one

    @classmethod
    def of(
        cls, plane: int, rows: range, columns: range, size: tuple[int, int], recipe: Recipe, net: nn.Module
    ) -> Block:
        """Find what the block of these pixels needs, in an image of `size`."""
        rim = recipe.rim
        whole = size[0] + 2 * rim, size[1] + 2 * rim
        grids = Tiled(net, recipe.tile, recipe.overlap).grid(*whole)
        down, across = (
            Part.around(pixels.start + rim, pixels.stop + rim, length, grid, recipe.margin)
            for pixels, length, grid in zip((rows, columns), whole, grids, strict=True)
        )
        return cls(plane, rows, columns, (down, across))

    def measured(self, rim: int) -> tuple[range, range]:
        """Return the rows and columns of the measured image that it is computed from."""
        down, across = (range(part.start, part.stop - 2 * rim) for part in self.parts)
        return down, across


@torch.no_grad()
def restore_block(model: Firm, recipe: Recipe, block: Block, y: Tensor, seen: Tensor | None = None) -> Tensor:
    """Restore the pixels of a block, (C, h, w) in [-1, 1], by Algorithm 2.

    Parameters
    ----------
    model
        As it was loaded; its tiles are those of the block.
    recipe, block
        How it is restored, and where it lies.
    y
        The image where `Block.measured` says, (C, rows, columns) in [-1, 1], on the device. One channel for a model of
        three is gray: noise that sums to zero makes its channels independent, see `firm._channels.independent`.
    seen
        1 where a pixel of `y` was measured, (rows, columns), for inpainting.
    """
    channels = int(getattr(model.estimator, "config", {}).get("channels", len(y)))
    gray, sigma = len(y) == 1 < channels, recipe.sigma
    y = y if seen is None else torch.where(seen.bool(), y, 0)
    op, rim = recipe.operator(y[None], seen)
    given = y
    if gray:
        sigma = COPIES_FACTOR * sigma
        drawn = placed_noise(recipe.seed, block.plane, channels, *block.measured(rim), CHANNELS)
        noise = torch.from_numpy(drawn).to(y)
        given = y + sigma * (noise - noise.mean(0, keepdim=True))
    down, across = block.parts
    place = range(down.start, down.stop), range(across.start, across.stop)
    x_0 = torch.from_numpy(placed_noise(recipe.seed, block.plane, channels, *place)).to(y)
    part = Firm(_Tiles(model.estimator, recipe.tile, recipe.overlap, block.parts), model.solver, model.card)
    moved = op.to(y.device) if isinstance(op, nn.Module) else op
    x = sample(part, moved, given[None], recipe.steps, sigma=sigma, x_0=x_0[None])[0]
    top, left = block.rows.start + rim - down.start, block.columns.start + rim - across.start
    x = x[:, top : top + len(block.rows), left : left + len(block.columns)]
    x = x.mean(0, keepdim=True) if gray else x
    if seen is None or not recipe.keep_known:
        return x
    rows, columns = (slice(n, n + len(p)) for n, p in ((top - rim, block.rows), (left - rim, block.columns)))
    return torch.where(seen[rows, columns].bool(), y[:, rows, columns], x)


def keeps_known(sigma: float) -> bool:
    """Tell whether pixels that were seen are left as they are: where there is no noise to remove from them."""
    return sigma <= ROUNDING
