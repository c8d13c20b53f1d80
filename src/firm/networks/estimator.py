"""What the learned estimators R_theta(x^{k+1}, x_t, t) of equation (78) share: how they are called, and common parts.

Also here is the smallest one, the perceptron of the toy problem.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from firm._util.checks import short

# What a network may see beside x^{k+1} and x_t, and how many further images that is.
EXTRA = {"previous": 1, "context": 2, "iteration": 0, "noise": 1}
ITERATIONS = 8  # of the solver that a network tells apart; later ones count as the last


class Estimator(nn.Module):
    """Base of the U-Nets, called as ``net(x, x_t, t)`` with images (B, C, H, W) and times (B,).

    With ``noise_level=True`` a network is called as ``net(x, x_t, t, sigma)``, where sigma (B,) is the noise level of
    the measurements. The images of ``extra`` stand after x_t, and the iteration, (B,), comes last.

    A subclass builds its layers, `stem` and `conditioning` among them, and defines `_run`, what lies between the stem
    and the estimate.
    """

    images = 2  # that it sees: x^{k+1} and x_t
    adamw_only = ("stem.", "head.", "conditioning.")  # no maps between features: parameters that Muon leaves to AdamW
    config: dict[str, Any]  # the arguments that it was built with
    stem: Stem
    conditioning: Conditioning

    def _prepare(
        self, blocks: int | Sequence[int], levels: int, unshuffle: int, extra: Sequence[str]
    ) -> tuple[int, ...]:
        """Set the images it sees and its stride, before there are layers; returns the number of blocks of each level.

        ValueError says which settings do not go together.
        """
        kind = type(self).__name__
        if not set(extra) <= EXTRA.keys() or len(set(extra)) < len(extra):
            raise ValueError(f"{kind}: extra is a list out of {', '.join(EXTRA)}, got {short(extra)}")
        if extra and self.images == 1:
            raise ValueError(f"{kind} sees one image: it takes no extra, got {short(extra)}")
        each = tuple(blocks) if isinstance(blocks, Sequence) else (blocks,) * levels
        if len(each) != levels:
            raise ValueError(f"{kind}: blocks must be one number or one a level, got {each} for {levels}")
        self.images = type(self).images + sum(EXTRA[name] for name in extra)
        self.levels, self.unshuffle = levels, unshuffle
        self.stride = unshuffle * 2 ** (levels - 1)  # the sides of the images are multiples of it
        return each

    def forward(self, x: Tensor, x_t: Tensor, *others: Tensor | None) -> Tensor:
        """Estimate the clean images, (B, C, H, W), from `x`, x^{k+1} of Algorithm 3, and `x_t`, both (B, C, H, W).

        `others` are the further images of ``extra``, (B, C, H, W); then t, (B,); then, if the network was built to take
        them, sigma and the iteration k, (B,).
        """
        extra = self.config.get("extra", ())
        counts = "iteration" in extra
        images, scalars = (x, x_t, *others[: self.images - 2]), list(others[self.images - 2 :])
        alike = all(image is not None and image.shape == x.shape for image in images)
        if not alike or not 1 + counts <= len(scalars) <= 2 + counts:  # sigma's absence has a message of its own
            asked = f" and those of extra={extra}, which Firm.posterior_mean passes" if extra else ""
            given = [None if v is None else tuple(v.shape) for v in (x, x_t, *others)]
            raise ValueError(
                f"{type(self).__name__} takes {self.images} images of one shape, x, x_t{asked}; then t, then sigma "
                f"with noise_level=True{' and then the iteration' if counts else ''}; got inputs of shapes {given}"
            )
        k = scalars.pop() if counts else None
        t, *sigma = scalars
        return self._checked(images, t, sigma[0] if sigma else None, k)  # type: ignore[arg-type]

    def _run(self, h: Tensor, shifts: tuple[Tensor, ...]) -> Tensor:
        """The network after its stem: features and one shift (B, width, 1, 1) a block in, one image out."""
        raise NotImplementedError

    def _checked(
        self, images: tuple[Tensor, ...], t: Tensor, sigma: Tensor | None = None, k: Tensor | None = None
    ) -> Tensor:
        """Run the network on images that it can take, with a noise level if and only if it was built for one."""
        kind, x = type(self).__name__, images[0]
        if x.ndim != 4 or x.shape[1] != self.config["channels"]:
            raise ValueError(f"{kind} takes images (B, {self.config['channels']}, H, W), got {tuple(x.shape)}")
        if x.shape[2] % self.stride or x.shape[3] % self.stride:
            raise ValueError(
                f"{kind}: height and width must be multiples of {self.stride} "
                f"({self.levels} levels, unshuffle {self.unshuffle}), got {x.shape[2]}x{x.shape[3]}"
            )
        if (sigma is None) == self.config["noise_level"]:
            needs = "this network was built with noise_level=True and needs sigma, the noise of the measurements"
            other = "sigma was given, but this network was built with noise_level=False"
            raise ValueError(f"{kind}: {needs if sigma is None else other}")
        weights = self.conditioning.project.weight.dtype
        if t.dtype != weights:
            raise ValueError(
                f"{kind}: its weights are {weights}, its inputs {t.dtype}: leave the model in float32; "
                "firm.fast(model) computes in bfloat16 where that is quicker"
            )
        shifts = self.conditioning(t, sigma, k)
        return self._run(self.stem(*images), shifts)


class OneImage(Estimator):
    """Mixin that makes an estimator's network one on a single image: the velocity v(x, t) of an unconditional flow."""

    images = 1

    def forward(self, x: Tensor, t: Tensor, sigma: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """Return the velocity, (B, C, H, W), at the states `x` (B, C, H, W) and times `t` (B,)."""
        return self._checked((x,), t, sigma)


class Conditioning(nn.Module):
    """What the time t, the noise level and the iteration add between the two convolutions of every block.

    The blocks' linear maps are one matrix: one product serves all blocks.
    """

    compiled_alone = True  # see `firm.acceleration.compiled`

    def __init__(
        self, ch: int, widths: list[int], time_scale: float, noise_level: bool, iteration: bool = False
    ) -> None:
        super().__init__()
        self.ch, self.widths, self.time_scale = ch, widths, time_scale
        self.time = _embedding(ch, 4 * ch)
        self.noise = _embedding(ch, 4 * ch) if noise_level else None
        self.iteration = nn.Parameter(torch.zeros(ITERATIONS, 4 * ch)) if iteration else None  # one row for each k
        self.project = nn.Linear(4 * ch, sum(widths))

    @torch.no_grad()
    def extend(self, K: int) -> None:
        """Have all iterations after the K-th count as the K-th, where training went no further."""
        if self.iteration is not None:
            self.iteration[K:] = self.iteration[K - 1 : K]  # nothing, where training had more than there are rows

    def forward(self, t: Tensor, sigma: Tensor | None, k: Tensor | None = None) -> tuple[Tensor, ...]:
        """Map t, sigma and the iteration k, all (B,), to one shift (B, width, 1, 1) a block."""
        embedding: Tensor = self.time(_sinusoid(t * self.time_scale, self.ch))
        if self.noise is not None and sigma is not None:
            level = sigma.clamp(min=1e-4).log() / math.log(1e-4)  # 1 at 1e-4, 0 at 1
            embedding = embedding + self.noise(_sinusoid(level * self.time_scale, self.ch))
        if self.iteration is not None and k is not None:
            embedding = embedding + self.iteration[k.long().clamp(max=ITERATIONS - 1)]
        shifts: Tensor = self.project(F.silu(embedding))
        return shifts[:, :, None, None].split(self.widths, dim=1)


def _embedding(ch: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(ch, width), nn.SiLU(), nn.Linear(width, width))


def _sinusoid(t: Tensor, width: int) -> Tensor:
    """Sines and cosines of `t` (B,) at width/2 frequencies from 1 down to 1e-4, (B, width)."""
    half = width // 2
    k = torch.arange(half, device=t.device, dtype=torch.float32)
    phase = t.float()[:, None] * torch.exp(-k * (math.log(10_000) / max(half - 1, 1)))
    return torch.cat([phase.sin(), phase.cos()], dim=1).to(t.dtype)


class Stem(nn.Module):
    """The first convolution, on all images together, with their pixels folded into channels."""

    compiled_alone = True

    def __init__(self, inputs: int, outputs: int, unshuffle: int) -> None:
        super().__init__()
        self.conv, self.unshuffle = nn.Conv2d(inputs, outputs, 3, padding=1), unshuffle

    def forward(self, *images: Tensor) -> Tensor:
        """Map batches of images, each (B, C, H, W), to features."""
        joined, weight = images[0] if len(images) == 1 else torch.cat(images, dim=1), self.conv.weight
        if self.unshuffle > 1:  # by 1 it is a copy
            joined = F.pixel_unshuffle(joined, self.unshuffle)
        if weight.is_contiguous(memory_format=torch.channels_last):  # one copy, in their precision
            joined = joined.to(weight.dtype, memory_format=torch.channels_last)
        out: Tensor = self.conv(joined)
        return out


class MLP(nn.Module):
    """The estimator of the toy problem, for points of the plane: a perceptron on [x, x_t, t].

    Parameters
    ----------
    width, depth
        Features of a hidden layer, and the number of hidden layers.
    """

    def __init__(self, width: int = 128, depth: int = 3) -> None:
        super().__init__()
        self.config: dict[str, Any] = dict(width=width, depth=depth)
        sizes = [5] + [width] * depth
        hidden = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.SiLU())]
        self.layers = nn.Sequential(*hidden, nn.Linear(width, 2))

    def forward(self, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Estimate from the points `x` and `x_t`, both (B, 2), and the times `t`, (B,); returns (B, 2)."""
        if x.ndim != 2 or x.shape[1] != 2:
            raise ValueError(f"the toy problem's model takes points of the plane, (B, 2), got {tuple(x.shape)}")
        out: Tensor = self.layers(torch.cat([x, x_t, t[:, None]], dim=1))
        return out
