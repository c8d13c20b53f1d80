"""JPEG: every coefficient of the 8x8 blocks is known up to its quantization cell, and images are projected onto them.

The transform is that of ITU-T T.81 with the colors of JFIF, as libjpeg's encoder makes it, without its rounding of
pixels to whole numbers between the colors and the cosines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from firm._util.checks import require
from firm.operators.base import shape
from firm.operators.gauss_newton import NonlinearOperator

COLORS = ((0.299, 0.587, 0.114), (-0.168735892, -0.331264108, 0.5), (0.5, -0.418687589, -0.081312411))  # Y, Cb, Cr
BACK = torch.linalg.inv(torch.tensor(COLORS, dtype=torch.float64, device="cpu")).tolist()
# The tables of Annex K, which quality 50 of the usual programs means.
LUMA = (16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29,
        51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92, 49, 64, 78, 87, 103, 121,
        120, 101, 72, 92, 95, 98, 112, 100, 103, 99)  # fmt: skip
CHROMA = (17, 18, 24, 47, 18, 21, 26, 66, 24, 26, 56, 99, 47, 66, 99, 99)  # its upper left quarter; the rest is 99
SUBSAMPLING = {"4:4:4": (1, 1), "4:2:2": (2, 1), "4:2:0": (2, 2)}  # pixels of a sample of color, across and down
HALF = 0.5  # Y is counted from gray level 128, and 0 in an image is 127.5
EDGE = 0.499  # of a cell to both sides, so that a projected image falls into the same cells when compressed again
SPREAD = 7000.0  # of photographs, see `error_level`
ROUNDS = 30  # of alternating projections, where blocks reach beyond the picture
TURNS = {1: (False, ()), 2: (False, (-1,)), 3: (False, (-2, -1)), 4: (False, (-2,)),
         5: (True, ()), 6: (True, (-1,)), 7: (True, (-2, -1)), 8: (True, (-2,))}  # fmt: skip


class JPEG(NonlinearOperator):
    """A(x) is the decompressed picture of x, (B, 3, H, W) in [-1, 1]: color samples repeated, values not clamped.

    It has whole blocks, so that its sides are those of the image rounded up. Every coefficient of its blocks lies in
    the middle of a cell, of the width of its entry in the table, in which that of x was before it was rounded.
    `project`, which ends every restoration, is exact in the metric of Y, Cb and Cr; the data-consistency step also
    draws towards the middles of the cells. Where the sides are not whole blocks, the pixels beyond them repeat the last
    ones, as in the encoder, and projections on both sets alternate.

    Parameters
    ----------
    luma, chroma
        The tables (8, 8) or one a sample, (B, 8, 8), in the order of frequencies: down, then across.
    subsampling
        "4:4:4", "4:2:2" or "4:2:0".
    image_size
        (H, W) of the images. Needed only where they are not whole blocks.
    orientation
        Of the images in the file, as its EXIF data say, 1 to 8: images are upright, and y is as it is stored.
    """

    luma: Tensor
    chroma: Tensor

    def __init__(
        self, luma: Tensor, chroma: Tensor, subsampling: str = "4:2:0", image_size: tuple[int, int] | None = None,
        orientation: int = 1,
    ) -> None:  # fmt: skip
        super().__init__()
        known = ", ".join(SUBSAMPLING)
        require(subsampling in SUBSAMPLING, f"JPEG: subsampling must be one of {known}, got {subsampling!r}")
        require(orientation in TURNS, f"JPEG: orientation must be from 1 to 8, got {orientation}")
        self.subsampling, self.image_size, self.orientation = subsampling, image_size, orientation
        for key, table in (("luma", luma), ("chroma", chroma)):
            fits = table.ndim in (2, 3) and shape(table)[-2:] == (8, 8)
            require(fits, f"JPEG: the table {key} must be (8, 8) or one a sample, (B, 8, 8), got {shape(table)}")
            self.register_buffer(key, table.float().reshape(-1, 1, 1, 8, 8))

    def A(self, x: Tensor) -> Tensor:
        """Compress and decompress images (B, 3, H, W)."""
        return self.decoded([self._centers(c, table) for c, table in self._cells(self._padded(self._stored(x)))])

    def guess(self, y: Tensor) -> Tensor:
        """Take the decompressed picture itself."""
        return self._upright(self._cropped(y))

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """The exact step for an error that is Gaussian within its cell: (c + rho z) / (1 + rho) in each coefficient,

        with c the middle of its cell and rho = 1/gamma, or the nearest border of the cell. What is finer than the
        samples of color keeps the value it has in `z`.
        """
        return self._moved(z, y, gamma)

    def project(self, x: Tensor, y: Tensor) -> Tensor:
        """Bring every coefficient of images `x`, (B, 3, H, W), into its cell: the nearest image in all cells."""
        return self._moved(x, y, 0.0)

    def _moved(self, x: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """Average the coefficients of `x` with the middles of their cells, weighted by 1 and `gamma`; then project."""
        x = self._stored(x)
        whole = self._size(x) == tuple(x.shape[-2:])
        gamma = gamma[..., None] if isinstance(gamma, Tensor) and gamma.ndim else gamma  # of blocks
        centers = [self._centers(c, table) for c, table in self._cells(y)]
        for _ in range(1 if whole else ROUNDS):
            padded = self._padded(x)
            moves = []
            for (c, table), middle in zip(self._cells(padded), centers, strict=True):
                average = (gamma * middle + c) / (gamma + 1)
                moves.append(torch.minimum(torch.maximum(average, middle - EDGE * table), middle + EDGE * table) - c)
            moves[0] = self._seen(moves[0], x)
            x, gamma = self._joined(padded + self._image(moves), x), 0.0
        return self._upright(x)

    def excess(self, x: Tensor, y: Tensor) -> Tensor:
        """Return by how much the coefficient farthest from its cell lies outside, as a share of the cell, (B,)."""
        x = self._stored(x)
        found = []
        for (c, table), (given, _) in zip(self._cells(self._padded(x)), self._cells(y), strict=True):
            found.append(((c - self._centers(given, table)).abs() / table - 0.5).clamp(min=0))
        found[0] = self._seen(found[0], x)
        return torch.stack([outside.flatten(1).amax(1) for outside in found]).amax(0)

    def decoded(self, coefficients: list[Tensor]) -> Tensor:
        """Make a picture, such as `y`, of coefficients: of Y, Cb and Cr, (B, rows, columns, 8, 8) each."""
        return self._image(coefficients) + HALF / 127.5

    # Between pixels and blocks

    def _cells(self, x: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return the coefficients of Y, Cb and Cr, (B, rows, columns, 8, 8), of whole blocks, with their tables."""
        across, down = SUBSAMPLING[self.subsampling]
        colors = _mixed(COLORS, 127.5 * x)
        planes = [colors[:, :1] - HALF, *F.avg_pool2d(colors[:, 1:], (down, across)).chunk(2, dim=1)]
        tables = [self.luma, self.chroma, self.chroma]
        return [(_cosines(plane), table.to(x.dtype)) for plane, table in zip(planes, tables, strict=True)]

    def _image(self, coefficients: list[Tensor]) -> Tensor:
        """Turn differences of coefficients into the difference of images."""
        across, down = SUBSAMPLING[self.subsampling]
        Y, *chroma = (_pixels(c) for c in coefficients)
        full = [v.repeat_interleave(down, -2).repeat_interleave(across, -1) for v in chroma]
        return _mixed(BACK, torch.cat([Y, *full], dim=1)) / 127.5

    @staticmethod
    def _centers(c: Tensor, table: Tensor) -> Tensor:
        return torch.round(c / table) * table

    # The sides of the picture

    def _size(self, x: Tensor) -> tuple[int, int]:
        """Return the sides of images like `x`, rounded up to whole blocks."""
        across, down = SUBSAMPLING[self.subsampling]
        return tuple(n + -n % (8 * k) for n, k in zip(x.shape[-2:], (down, across), strict=True))  # type: ignore[return-value]

    def _padded(self, x: Tensor) -> Tensor:
        height, width = self._size(x)
        return F.pad(x, (0, width - x.shape[-1], 0, height - x.shape[-2]), mode="replicate")

    @staticmethod
    def _seen(values: Tensor, x: Tensor) -> Tensor:
        """Set values of blocks of Y without a pixel of `x` to 0: an encoder fills units of several blocks."""
        rows, columns = (-(-n // 8) for n in x.shape[-2:])
        more = values.shape[2] - columns, values.shape[1] - rows
        return F.pad(values[:, :rows, :columns], (0, 0, 0, 0, 0, more[0], 0, more[1]))

    def _joined(self, padded: Tensor, like: Tensor) -> Tensor:
        """Return the image whose `_padded` is nearest: a pixel that was repeated is the mean of its copies."""
        for axis in (-2, -1):
            n = like.shape[axis]
            last = padded.narrow(axis, n - 1, padded.shape[axis] - n + 1).mean(axis, keepdim=True)
            padded = torch.cat([padded.narrow(axis, 0, n - 1), last], dim=axis)
        return padded

    def _cropped(self, y: Tensor) -> Tensor:
        height, width = self.image_size or tuple(y.shape[-2:])
        if self.image_size is not None and TURNS[self.orientation][0]:
            height, width = width, height
        return y[..., :height, :width]

    def _stored(self, x: Tensor) -> Tensor:
        turned, flips = TURNS[self.orientation]
        x = x.flip(flips) if flips else x
        return x.transpose(-2, -1) if turned else x

    def _upright(self, x: Tensor) -> Tensor:
        turned, flips = TURNS[self.orientation]
        x = x.transpose(-2, -1) if turned else x
        return x.flip(flips) if flips else x

    def extra_repr(self) -> str:
        """Show the subsampling."""
        return self.subsampling


def quality_tables(quality: Tensor) -> tuple[Tensor, Tensor]:
    """Make the tables of Annex K scaled to qualities from 1 to 100, (B,), as libjpeg does: two tensors (B, 8, 8)."""
    quality = quality.round().clamp(1, 100)
    scale = torch.where(quality < 50, (5000 / quality).floor(), 200 - 2 * quality)[:, None, None]
    chroma = torch.full((8, 8), 99.0, device=quality.device)
    chroma[:4, :4] = _tensor(CHROMA, quality)
    tables = (_tensor(LUMA, quality), chroma)
    luma, chroma = (((table * scale + 50) / 100).floor().clamp(1, 255) for table in tables)
    return luma, chroma


def error_level(luma: Tensor) -> Tensor:
    """Estimate the standard deviation, in images in [-1, 1], of what the tables (B, 8, 8) leave open, (B,).

    A coefficient varies by a twelfth of its squared cell, or by its own variance where that is less: in photographs
    about `SPREAD` over the squared frequency.
    """
    k = torch.arange(8, device=luma.device, dtype=luma.dtype)
    variance = SPREAD / (k[:, None].square() + k.square()).clamp(min=0.25)
    return torch.minimum(luma.square() / 12, variance).mean((1, 2)).sqrt() / 127.5


def _tensor(table: tuple[int, ...], like: Tensor) -> Tensor:
    """Make a square table of a constant, filled in on the device: nothing is copied to it inside a CUDA graph."""
    side = math.isqrt(len(table))
    return torch.stack([torch.full((), float(v), device=like.device) for v in table]).reshape(side, side)


def _basis(like: Tensor) -> Tensor:
    """The orthonormal cosines of eight samples, (8, 8): row k has the frequency k."""
    n = torch.arange(8, device=like.device, dtype=like.dtype)
    rows = torch.cos(math.pi / 8 * (n + 0.5) * n[:, None]) / 2
    return torch.where(n[:, None] == 0, rows / math.sqrt(2), rows)


def _cosines(plane: Tensor) -> Tensor:
    """Transform a plane (B, 1, 8 m, 8 n) into coefficients (B, m, n, 8, 8)."""
    blocks = plane[:, 0].unflatten(-1, (-1, 8)).unflatten(-3, (-1, 8)).transpose(-3, -2)
    basis = _basis(plane)
    return basis @ blocks @ basis.T


def _pixels(coefficients: Tensor) -> Tensor:
    """Transform coefficients (B, m, n, 8, 8) into a plane (B, 1, 8 m, 8 n)."""
    basis = _basis(coefficients)
    blocks = basis.T @ coefficients @ basis
    return blocks.transpose(-3, -2).flatten(-2).flatten(-3, -2)[:, None]


def _mixed(matrix: Sequence[Sequence[float]], x: Tensor) -> Tensor:
    """Mix the three channels of (B, 3, H, W) by the rows of a matrix, whose numbers need no copy to the device."""
    return torch.stack([sum(w * x[:, j] for j, w in enumerate(row)) for row in matrix], dim=1)  # type: ignore[misc]
