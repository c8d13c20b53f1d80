"""What the baselines share: the kinds of networks they take, their random numbers, and checks before any work."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor

from firm._sampling import Generators, noise_like, prepare
from firm.acceleration.replay import Step, replayed
from firm.operators.base import LinearOperator, synchronizes

Prior = Callable[[Tensor, Tensor], Tensor]  # v(x, t) of a flow from noise (t = 0) to images (t = 1); t is (B,)
Denoiser = Callable[[Tensor, Tensor], Tensor]  # D(x, sigma), the estimate of clean images from x; sigma is (B,)
Progress = Callable[[int, int, Tensor], None]  # (steps done, steps in all, the current images)


def begin(net: object, op: LinearOperator, y: Tensor, sigma: float) -> Tensor:
    """Check what every baseline is given, before any work; returns A'y, which has the shape of the images."""
    given = prepare(net, op, y, sigma)
    given.settle()
    like = given.Aty
    config = getattr(net, "config", None) or {}
    channels = config.get("channels")
    if channels is not None and (like.ndim != 4 or like.shape[1] != channels):
        raise ValueError(f"the network is for images (B, {channels}, H, W), these are {tuple(like.shape)}")
    stride = getattr(net, "stride", 1)
    if like.ndim == 4 and (like.shape[2] % stride or like.shape[3] % stride):
        raise ValueError(
            f"the network needs sides that are multiples of {stride}, the images have {like.shape[2]}x{like.shape[3]}"
        )
    return like


def at_time(prior: Prior, x: Tensor, t: float | Tensor) -> Tensor:
    """v(x, t) for one time of the whole batch."""
    return prior(x, _each(t, x))


def clean(prior: Prior, x: Tensor, t: float | Tensor) -> Tensor:
    """D_t(x) = x + (1 - t) v(x, t), the flow's estimate of the clean images at time t."""
    return x + (1 - t) * at_time(prior, x, t)


def _each(value: float | Tensor, x: Tensor) -> Tensor:
    if isinstance(value, Tensor):
        return value.to(x.dtype).expand(len(x))
    return torch.full((len(x),), value, dtype=x.dtype, device=x.device)


def recorded(step: Step, op: LinearOperator, y: Tensor) -> Step:
    """A step that solves with the operator, replayed as a graph on a GPU unless the solve waits for the device."""
    return step if synchronizes(op) else replayed(step, y.device)


def on_device(generator: Generators, device: torch.device) -> Generators:
    """Generators on the device of the images, seeded from the given ones.

    The baselines draw noise hundreds of times, which on the CPU would take longer than their networks on a GPU. So a
    seed gives one result on every CPU and one on every GPU of a kind; each image's does not depend on its batch.
    """
    if device.type == "cpu":
        return generator
    if isinstance(generator, Sequence):
        return [_moved(g, device) for g in generator]
    return _moved(generator, device)


def _moved(generator: Generator | None, device: torch.device) -> Generator:
    if generator is not None and generator.device.type == device.type:
        return generator
    seed = torch.randint(2**62, (), generator=generator).item()
    return Generator(device).manual_seed(int(seed))


def noise_source(x: Tensor, generator: Generators) -> Callable[[], Tensor]:
    """A function that draws fresh Gaussian noise in the shape of `x`, on its device."""
    generators = on_device(generator, x.device)
    return lambda: noise_like(x, generators)


def level(value: float | Tensor, x: Tensor) -> Tensor:
    """One number of the whole batch as a tensor without dimensions, of the type and on the device of `x`."""
    return torch.as_tensor(value, dtype=x.dtype, device=x.device)
