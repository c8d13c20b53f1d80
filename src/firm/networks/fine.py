"""Thin levels at the picture's own resolution, around a trunk that works on folded pixels."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from firm.networks.blocks import Block, Head, Stem, Unfold


class Fine(nn.Module):
    """One residual block a level on the way down and one on the way up, each level at half the resolution of the last.

    The way down gives the trunk something to add to its first features; the way up starts from the trunk's last
    features and gives an image to add to the trunk's. Both are almost zero at first.

    Parameters
    ----------
    inputs, outputs
        Channels of all images together, and of the image that comes out.
    widths
        Channels of each level, the first at full resolution.
    first, last
        Channels of the trunk's first and last features.
    unshuffle
        How many pixels a side the trunk folds together.
    groups
        Of GroupNorm.
    """

    def __init__(
        self, inputs: int, outputs: int, widths: Sequence[int], first: int, last: int, unshuffle: int, groups: int
    ) -> None:
        super().__init__()
        strides = [2] * (len(widths) - 1) + [unshuffle // 2 ** (len(widths) - 1)]
        self.stem = Stem(inputs, widths[0], 1)
        self.down = nn.ModuleList(Block(w, w, groups) for w in widths)
        to = zip(widths, [*widths[1:], first], strides, strict=True)
        back = zip([*widths[1:], last], widths, strides, strict=True)
        self.fold = nn.ModuleList(nn.Conv2d(a, b, r, stride=r) for a, b, r in to)
        self.unfold = nn.ModuleList(Unfold(a, b, r) for a, b, r in back)
        self.up = nn.ModuleList(Block(w, w, groups) for w in widths)
        self.head = Head(widths[0], outputs, groups, 1)

    def descend(self, images: Sequence[Tensor], shifts: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """What the trunk adds to its first features, and the features of every level."""
        h, levels = self.stem(*images), []
        for block, fold, shift in zip(self.down, self.fold, shifts, strict=True):
            levels.append(block(h, shift))
            h = fold(levels[-1])
        return h, levels

    def ascend(self, h: Tensor, levels: list[Tensor], shifts: Sequence[Tensor]) -> Tensor:
        """The image (B, outputs, H, W) to add, from the trunk's last features and those of the way down."""
        way = zip(self.unfold, levels, self.up, shifts, strict=True)
        for unfold, level, block, shift in reversed(list(way)):
            h = block(unfold(h, level), shift)
        out: Tensor = self.head(h)
        return out
