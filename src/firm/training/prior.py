"""An unconditional flow prior: v(x, t) between noise and images, the network that PnP-Flow and its kin plug in.

Also minibatch optimal transport, which says which noise goes with which image.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from firm._flow import interpolate
from firm._prepare import noise_like
from firm.data.images import Images
from firm.networks import PriorUNet
from firm.networks.denoisers import denoise
from firm.training.objectives import Batch, Objective
from firm.training.validation import denoising_scores, save_sheet

LEVELS = (0.2, 0.1, 0.5)  # of the noise that validation removes, for images in [-1, 1]; the first one chooses the best
DRAWN, EULER_STEPS = 12, 20  # pictures drawn in a validation, Euler steps for each
WIDEST, NARROWEST = 1.0, 0.02  # of the entropy that smooths the transport, in deviations of the gain
SETTLE, ROUNDS, SWAPS = 60, 16, 8  # iterations: of the transport, of rounding it to pairs, of swaps


class Prior(Objective):
    """E |v(x_t, t) - (x_1 - x_0)|^2 with x_t = (1 - t) x_0 + t x_1 and uniform t (set t_min: 0 and t_max: 0.9999)."""

    kind = "prior"
    noise_level = False
    measures = False
    network_class = PriorUNet
    fits = ("PriorUNet", "PriorResUNet")

    def loss(self, net: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Compute the error of the velocity, averaged over the pixels."""
        x_0 = batch.randn()
        if self.config.pairing == "optimal":
            x_0 = x_0[_pair(x_0, batch.x_1)]
        v = net(interpolate(x_0, batch.x_1, batch.t), batch.t)
        return (v - (batch.x_1 - x_0)).square().flatten(1).mean(1), batch.t

    @torch.no_grad()
    def validate(self, net: nn.Module, images: Images, picture: Path | None) -> dict[str, float]:
        """Score by the PSNR of denoising with the prior, at the noise of `LEVELS`, and draw a picture of samples."""
        device = next(net.parameters()).device
        scores, _ = denoising_scores(lambda y, sigma: denoise(net, y, sigma), LEVELS, images, device)
        if picture is not None:
            x = noise_like(torch.empty(DRAWN, *images.data.shape[1:], device=device), torch.Generator().manual_seed(0))
            for i in range(EULER_STEPS):
                x = x + net(x, torch.full((DRAWN,), i / EULER_STEPS, device=device)) / EULER_STEPS
            titled = [(f"sample {i + 1}", image) for i, image in enumerate(x)]
            save_sheet([titled[i : i + DRAWN // 3] for i in range(0, DRAWN, DRAWN // 3)], picture)
        return scores


def _pair(x_0: Tensor, x_1: Tensor) -> Tensor:
    """Find a permutation (B,) of the noises that brings them nearer to the images: |x_1 - x_0[_pair]|^2 becomes small.

    An entropic transport plan (Sinkhorn's iteration, in logarithms, with ever less entropy) is rounded to pairs that
    prefer each other, and polished by swaps: within one percent of the exact assignment (see the tests). It needs no
    answer from the device, so a CUDA graph can hold it. Samples are paired within a process's part of the batch, whose
    noises and images are `x_0` and `x_1`, (B, C, H, W).
    """
    with torch.autocast(x_0.device.type, enabled=False):
        gain = x_1.flatten(1).float() @ x_0.flatten(1).float().T  # |x_1 - x_0|^2 but for what no pairing changes
    gain = (gain - gain.mean()) / gain.std(correction=0).clamp(min=1e-12)
    return _swapped(gain, _rounded(_transport(gain)))


def _transport(gain: Tensor) -> Tensor:
    """Compute the logarithm of the plan, times its entropy: how much image i and noise j like each other, (B, B)."""
    of_image, of_noise = gain.new_zeros(len(gain)), gain.new_zeros(len(gain))
    for k in range(SETTLE):
        entropy = WIDEST * (NARROWEST / WIDEST) ** min(1.0, k / (0.8 * SETTLE))
        of_noise = -entropy * torch.logsumexp((gain + of_image[:, None]) / entropy, 0)
        of_image = -entropy * torch.logsumexp((gain + of_noise) / entropy, 1)
    return gain + of_image[:, None] + of_noise


def _rounded(score: Tensor) -> Tensor:
    """Round to a permutation: pairs that prefer each other among those left, round by round; the last as they come."""
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
    """Swap the partners of two images where both gain most from each other, until (nearly) none gains."""
    index = torch.arange(len(gain), device=gain.device)
    for _ in range(SWAPS):
        now = gain.gather(1, partner[:, None])  # (B, 1)
        other = gain[:, partner]  # [i, j]: image i with the noise of j
        best, chosen = (other + other.T - now - now.T).max(1)
        mutual = (chosen[chosen] == index) & (best > 1e-6)
        partner = torch.where(mutual, partner[chosen], partner)
    return partner
