"""Start a network from the weights of another that sees less, or more, or is not as deep."""

from __future__ import annotations

from itertools import islice

import torch
from torch import Tensor

from firm.networks.res_unet import Level, ResUNet

STEM, ITERATION, NOISE = "stem.conv.weight", "conditioning.iteration", "conditioning.noise."


def grown(weights: dict[str, Tensor], own: dict[str, Tensor]) -> dict[str, Tensor]:
    """`weights` in the shapes of `own`, a network that differs from theirs by further inputs only.

    At first the two compute the same: the stem's weights for further images are 0 (they are its last inputs), and so
    are the rows of the iteration.
    """
    found = dict(weights)
    if STEM in found and STEM in own:
        found[STEM] = _widened(found[STEM], own[STEM])
    if ITERATION in own and ITERATION not in found:
        found[ITERATION] = torch.zeros_like(own[ITERATION])
    return found


def narrowed(weights: dict[str, Tensor], own: dict[str, Tensor], images: int) -> dict[str, Tensor]:
    """The weights of an estimator that sees so many `images`, for `own`, the same network on one.

    That is a prior, or a bridge that sees its state alone. The one image stands for x and x_t, the first two. What else
    it saw, the iteration, and the noise level where `own` has none are dropped.
    """
    gone = [key for key in weights if key not in own and (key == ITERATION or key.startswith(NOISE))]
    found = {key: value for key, value in weights.items() if key not in gone}
    if STEM in found:
        x, x_t, *_ = found[STEM].chunk(images, dim=1)
        found[STEM] = x + x_t
    return found


def deepened(weights: dict[str, Tensor], own: dict[str, Tensor], theirs: ResUNet, net: ResUNet) -> dict[str, Tensor]:
    """The `weights` of `theirs` for `net`, whose weights at first are `own` and whose levels have more blocks.

    They compute the same: the further blocks, the last of their levels, add nothing before they are trained.
    """
    were, are = ([m.widths for m in n.modules() if isinstance(m, Level)] for n in (theirs, net))
    if were == are or len(were) != len(are):
        return weights
    found = {key: value for key, value in own.items() if ".blocks." in key} | weights
    for key in ("conditioning.project.weight", "conditioning.project.bias"):  # rows for each block, in their order
        old = iter(weights[key].split(theirs.conditioning.widths))
        new = iter(own[key].split(net.conditioning.widths))
        rows: list[Tensor] = []
        for a, b in zip(were, are, strict=True):
            first = list(islice(new, len(b)))
            rows += [*islice(old, len(a)), *first[len(a) :]]
        found[key] = torch.cat(rows)
    return found


def _widened(weight: Tensor, own: Tensor) -> Tensor:
    """A convolution's weight with further inputs, whose weights are 0; itself where that is not the difference."""
    (outputs, inputs, *kernel), wanted = weight.shape, own.shape
    if wanted[1] <= inputs or (outputs, *kernel) != (wanted[0], *wanted[2:]):
        return weight
    return torch.cat([weight, weight.new_zeros(outputs, wanted[1] - inputs, *kernel)], dim=1)
