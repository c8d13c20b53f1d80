"""Start a network that sees more from the weights of one that saw less; at first the two compute the same."""

from __future__ import annotations

import torch
from torch import Tensor

STEM, ITERATION = "stem.conv.weight", "conditioning.iteration"


def grown(weights: dict[str, Tensor], own: dict[str, Tensor]) -> dict[str, Tensor]:
    """`weights` in the shapes of `own`, where the only differences are the further inputs of `firm.UNet` (`extra`).

    The stem's weights for further images are 0 (they are its last inputs), and so are the rows of the iteration.
    """
    found = dict(weights)
    if STEM in found and STEM in own:
        (outputs, inputs, *kernel), wanted = found[STEM].shape, own[STEM].shape
        if wanted[1] > inputs and (outputs, *kernel) == (wanted[0], *wanted[2:]):
            found[STEM] = torch.cat([found[STEM], found[STEM].new_zeros(outputs, wanted[1] - inputs, *kernel)], dim=1)
    if ITERATION in own and ITERATION not in found:
        found[ITERATION] = torch.zeros_like(own[ITERATION])
    return found
