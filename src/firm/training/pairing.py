"""Minibatch optimal transport: which noise goes with which image."""

from __future__ import annotations

import torch
from torch import Tensor

WIDEST, NARROWEST = 1.0, 0.02  # of the entropy that smooths the transport, in deviations of the gain
SETTLE, ROUNDS, SWAPS = 60, 16, 8  # iterations: of the transport, of rounding it to pairs, of swaps


def pair(x_0: Tensor, x_1: Tensor) -> Tensor:
    """A permutation (B,) of the noises that brings them nearer to the images: |x_1 - x_0[pair]|^2 becomes small.

    An entropic transport plan (Sinkhorn's iteration, in logarithms, with ever less entropy) is rounded to pairs that
    prefer each other, and polished by swaps: within one percent of the exact assignment (see the tests). It needs no
    answer from the device, so a CUDA graph can hold it. Samples are paired within a process's part of the batch.
    """
    with torch.autocast(x_0.device.type, enabled=False):
        gain = x_1.flatten(1).float() @ x_0.flatten(1).float().T  # |x_1 - x_0|^2 but for what no pairing changes
    gain = (gain - gain.mean()) / gain.std(correction=0).clamp(min=1e-12)
    return _swapped(gain, _rounded(_transport(gain)))


def _transport(gain: Tensor) -> Tensor:
    """The logarithm of the plan, times its entropy: how much image i and noise j prefer each other, (B, B)."""
    of_image, of_noise = gain.new_zeros(len(gain)), gain.new_zeros(len(gain))
    for k in range(SETTLE):
        entropy = WIDEST * (NARROWEST / WIDEST) ** min(1.0, k / (0.8 * SETTLE))
        of_noise = -entropy * torch.logsumexp((gain + of_image[:, None]) / entropy, 0)
        of_image = -entropy * torch.logsumexp((gain + of_noise) / entropy, 1)
    return gain + of_image[:, None] + of_noise


def _rounded(score: Tensor) -> Tensor:
    """A permutation: pairs that prefer each other among those left, round by round; the last ones as they come."""
    index = torch.arange(len(score), device=score.device)
    partner, free, untaken = index.clone(), torch.ones_like(index, dtype=torch.bool), torch.ones_like(index).bool()
    left = score
    for _ in range(ROUNDS):
        best, suitor = left.max(1).indices, left.max(0).indices
        agreed = (suitor[best] == index) & free & untaken[best]
        partner = torch.where(agreed, best, partner)
        free = free & ~agreed
        untaken = untaken & ~torch.zeros_like(index).scatter_reduce(0, best, agreed.long(), "amax").bool()
        left = torch.where(free[:, None] & untaken, score, -torch.inf)
    images, noises = ((~some).long().argsort(stable=True) for some in (free, untaken))
    return torch.where(free, torch.empty_like(index).scatter(0, images, noises), partner)


def _swapped(gain: Tensor, partner: Tensor) -> Tensor:
    """The partners of two images swapped where both gain most from each other, until (nearly) none gains."""
    index = torch.arange(len(gain), device=gain.device)
    for _ in range(SWAPS):
        own = gain.gather(1, partner[:, None])  # (B, 1)
        other = gain[:, partner]  # [i, j]: image i with the noise of j
        best, chosen = (other + other.T - own - own.T).max(1)
        mutual = (chosen[chosen] == index) & (best > 1e-6)
        partner = torch.where(mutual, partner[chosen], partner)
    return partner
