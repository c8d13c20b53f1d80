"""Start a larger network from the weights of a smaller one; at first the two compute the same."""

from __future__ import annotations

import torch
from torch import Tensor

STEM, ITERATION, SHIFTS = "stem.conv.weight", "conditioning.iteration", "conditioning.project."


def grown(weights: dict[str, Tensor], own: dict[str, Tensor]) -> dict[str, Tensor]:
    """`weights` in the shapes of `own`, a `firm.UNet` that differs from theirs by more of `extra` or `fine` only.

    The stem's weights for further images are 0 (they are its last inputs), and so are the rows of the iteration. Fine
    levels keep the values in `own`, but what they give to the trunk and to the image is 0.
    """
    found = dict(weights)
    if STEM in found and STEM in own:
        found[STEM] = _widened(found[STEM], own[STEM])
    if ITERATION in own and ITERATION not in found:
        found[ITERATION] = torch.zeros_like(own[ITERATION])
    fine = [key for key in own if key.startswith("fine.")]
    if fine and not any(key.startswith("fine.") for key in found):
        last = max(key for key in fine if key.startswith("fine.fold.")).rpartition(".")[0]  # towards the trunk
        for key in fine:
            found[key] = torch.zeros_like(own[key]) if key.startswith(("fine.head.conv.", f"{last}.")) else own[key]
        for key in (SHIFTS + "weight", SHIFTS + "bias"):  # a shift for every block, those of the fine levels last
            if key in found and len(found[key]) < len(own[key]):
                found[key] = torch.cat([found[key], own[key][len(found[key]) :]])
    elif "fine.stem.conv.weight" in own:
        key = "fine.stem.conv.weight"
        found[key] = _widened(found[key], own[key])
    return found


def _widened(weight: Tensor, own: Tensor) -> Tensor:
    """A convolution's weight with further inputs, whose weights are 0; itself where that is not the difference."""
    (outputs, inputs, *kernel), wanted = weight.shape, own.shape
    if wanted[1] <= inputs or (outputs, *kernel) != (wanted[0], *wanted[2:]):
        return weight
    return torch.cat([weight, weight.new_zeros(outputs, wanted[1] - inputs, *kernel)], dim=1)
