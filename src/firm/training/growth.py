"""Start a larger network from the weights of a smaller one; at first the two compute the same."""

from __future__ import annotations

import torch
from torch import Tensor

STEM, ITERATION = "stem.conv.weight", "conditioning.iteration"


def grown(weights: dict[str, Tensor], own: dict[str, Tensor]) -> dict[str, Tensor]:
    """`weights` in the shapes of `own`, a network that differs from theirs by more of `extra` only.

    The stem's weights for further images are 0 (they are its last inputs), and so are the rows of the iteration.
    """
    found = dict(weights)
    if STEM in found and STEM in own:
        found[STEM] = _widened(found[STEM], own[STEM])
    if ITERATION in own and ITERATION not in found:
        found[ITERATION] = torch.zeros_like(own[ITERATION])
    return found


def _widened(weight: Tensor, own: Tensor) -> Tensor:
    """A convolution's weight with further inputs, whose weights are 0; itself where that is not the difference."""
    (outputs, inputs, *kernel), wanted = weight.shape, own.shape
    if wanted[1] <= inputs or (outputs, *kernel) != (wanted[0], *wanted[2:]):
        return weight
    return torch.cat([weight, weight.new_zeros(outputs, wanted[1] - inputs, *kernel)], dim=1)
