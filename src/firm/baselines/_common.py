"""What the baselines share: the kinds of networks they take, their random numbers, and checks before any work."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor

from firm._prepare import Generators, noise_like, prepare
from firm._util.checks import require
from firm.networks import denoise
from firm.operators.base import LinearOperator, is_linear, name

Prior = Callable[[Tensor, Tensor], Tensor]  # v(x, t) of a flow from noise (t = 0) to images (t = 1); t is (B,)
Denoiser = Callable[[Tensor, Tensor], Tensor]  # D(x, sigma), the estimate of clean images from x; sigma is (B,)
Progress = Callable[[int, int, Tensor], None]  # (steps done, steps in all, the current images)


def begin(net: object, op: LinearOperator, y: Tensor, sigma: float, solves: bool = False) -> Tensor:
    """Check what every baseline is given, before any work: `prepare`, and that the images fit the network.

    They have to fit a network's ``config["channels"]`` and its ``stride``, if it has them. An operator that is not
    linear is for methods that only solve with it, `solves`. Returns A'y, in the shape of the images, (B, C, H, W).
    """
    require(solves or is_linear(op), f"this method is for linear operators, and {name(op)} is none")
    given = prepare(net, op, y, sigma, scale=False)
    given.settle()
    shape, channels = given.Aty.shape, (getattr(net, "config", None) or {}).get("channels")
    fits = channels is None or (len(shape) == 4 and shape[1] == channels)
    require(fits, f"the network is for images (B, {channels}, H, W), these are {tuple(shape)}")
    stride, sides = getattr(net, "stride", 1), shape[2:] if len(shape) == 4 else ()
    whole, found = not any(side % stride for side in sides), "x".join(map(str, sides))
    require(whole, f"the network needs sides that are multiples of {stride}, the images have {found}")
    return given.Aty


def at_time(prior: Prior, x: Tensor, t: float | Tensor) -> Tensor:
    """Return v(x, t), (B, C, H, W), for one time `t` of the whole batch."""
    times = t.to(x.dtype) if isinstance(t, Tensor) else torch.full((1,), t, dtype=x.dtype, device=x.device)
    return prior(x, times.expand(len(x)))


def clean(prior: Prior, x: Tensor, t: float | Tensor) -> Tensor:
    """Return D_t(x) = x + (1 - t) v(x, t), the flow's estimate of the clean images at time t, (B, C, H, W)."""
    return x + (1 - t) * at_time(prior, x, t)


def as_denoiser(prior: Prior) -> Denoiser:
    """Make a denoiser D(x, sigma) of a flow's velocity v(x, t).

    Noise of level sigma on an image, scaled by t = 1/(1 + sigma), is the flow's state at time t.
    """

    def denoiser(x: Tensor, sigma: Tensor) -> Tensor:
        return denoise(prior, x, sigma)

    for key in ("config", "stride"):  # so that images of a wrong size or kind are refused before any work
        if hasattr(prior, key):
            setattr(denoiser, key, getattr(prior, key))
    return denoiser


def noise_source(x: Tensor, generator: Generators) -> Callable[[], Tensor]:
    """Return a function that draws fresh Gaussian noise in the shape of `x`, on its device.

    The baselines draw noise hundreds of times, which on the CPU would take longer than their networks on a GPU. So the
    generators are on the device of the images, seeded from the given ones: a seed gives one result on every CPU and
    one on every GPU of a kind. Each image's does not depend on its batch.
    """

    def moved(given: Generator | None) -> Generator:
        if given is not None and given.device.type == x.device.type:
            return given
        seed = torch.randint(2**62, (), generator=given).item()
        return Generator(x.device).manual_seed(int(seed))

    if x.device.type != "cpu":
        generator = [moved(g) for g in generator] if isinstance(generator, Sequence) else moved(generator)
    return lambda: noise_like(x, generator)
