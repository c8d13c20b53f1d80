"""Models for color, or for gray, on images of any number of channels: each channel is restored as a picture."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from firm._util.checks import generator_for
from firm.noise.base import Noise
from firm.noise.gaussian import Gaussian
from firm.operators.base import LinearOperator, per_sample
from firm.operators.compose import Repeated


def of_channels(model: Any, like: Tensor) -> tuple[Any, int]:
    """Return a model for images `like` (B, C, H, W), and how many copies it takes of every image.

    A model for three colors takes three copies of an image of another number of channels: three estimates of every
    channel that differ in their noise, as the colors of a gray picture do. A model for gray takes the channels one by
    one. All other models are returned as they are, with one copy: the network says whether it takes such images.
    """
    config = getattr(getattr(model, "estimator", None), "config", None) or {}
    trained, found = config.get("channels"), like.shape[1] if like.ndim == 4 else None
    if found is None or trained in (None, found) or trained not in (1, 3):
        return model, 1
    estimator = PerChannel(model.estimator, trained, len(like), found)
    plain: Any = next(
        kind for kind in type(model).__mro__ if kind.__name__ == "Firm"
    )  # what is recorded is the network
    return plain(estimator, model.solver, model.card), trained


class PerChannel(nn.Module):
    """An estimator for images of `channels` channels, made of one for color or gray.

    Parameters
    ----------
    estimator
        The network, for images of `copies` channels.
    copies
        Copies of every image in a batch: 3 for color, 1 for gray.
    batch, channels
        How many images there are, and how many channels each has. The batch holds any number of runs; each is the first
        copy of all images, then the second, and so on.
    """

    def __init__(self, estimator: nn.Module, copies: int, batch: int, channels: int) -> None:
        super().__init__()
        self.estimator, self.copies, self.batch = estimator, copies, batch
        self.config: dict[str, Any] = {**getattr(estimator, "config", {}), "channels": channels}
        self.stride: int = getattr(estimator, "stride", 1)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Call the network on every channel: images (runs copies B, C, H, W) first, then numbers, (runs copies B,)."""
        C = inputs[0].shape[1]
        given = []
        for v in inputs:
            runs = v.unflatten(0, (-1, self.copies, self.batch))
            if v.ndim == 1:  # the copies share them
                given.append(runs[:, 0].flatten().repeat_interleave(C))
            else:
                given.append(runs.permute(0, 2, 3, 1, 4, 5).flatten(0, 2))  # (runs B C, copies, H, W)
        out: Tensor = self.estimator(*given)
        return out.unflatten(0, (-1, self.batch, C)).permute(0, 3, 1, 2, 4, 5).flatten(0, 2)


def independent(
    op: LinearOperator, y: Tensor, sigma: Tensor | None, noise: Tensor | Noise | None, copies: int
) -> tuple[Tensor, Tensor | Noise | None]:
    """Copy measurements (B, ...), so that the noise of the copies is independent; returns them and their noise.

    Models for color expect independent noise in the three colors, and copies of one measurement share theirs. Adding
    noise that sums to zero over the copies, of the right size, makes it independent with the deviation sqrt(3) sigma,
    and leaves the mean of the copies, which is all that is known, as it was.

    Parameters
    ----------
    op, y
        The operator and its measurements.
    sigma, noise
        The level of their noise, (B,), and the same or a model of the noise, as `Prepared` has them.
    copies
        How many to make.
    """
    many = y.repeat(copies, *[1] * (y.ndim - 1))
    if sigma is None:
        return many, None
    std: Any = noise.std(y) if isinstance(noise, Noise) else per_sample(sigma, y)
    std = math.sqrt(copies) * std.expand(y.shape)
    # The same measurement gives the same copies. These must not be the numbers that `restore` starts from.
    source = generator_for(0, 0, "channels")
    drawn = torch.randn((copies, *y.shape), dtype=y.dtype, generator=source, device="cpu")
    many = many + ((drawn - drawn.mean(0)).to(y.device) * std).flatten(0, 1)
    if not isinstance(noise, Noise):
        return many, math.sqrt(copies) * sigma.repeat(copies)
    std = std.clamp(min=1e-3 * std.abs().max())  # a counted zero has no noise of its own
    wide = std.repeat(copies, *[1] * (y.ndim - 1))
    return many, Gaussian(wide, check=False).on(Repeated(op, len(y)), many, many)
