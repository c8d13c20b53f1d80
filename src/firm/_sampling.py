"""Algorithm 2: from Gaussian noise to a posterior sample in a few steps of the learned flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from firm._posterior_mean import PosteriorMean
from firm.operators.base import LinearOperator, check_measurement, require_operator
from firm.operators.checks import name, require_one_scale, shape

Method = Literal["euler", "midpoint", "heun"]
Generators = Generator | Sequence[Generator] | None  # a sequence holds one generator per sample


@torch.no_grad()
def sample(
    model: PosteriorMean,
    op: LinearOperator,
    y: Tensor,
    steps: int = 2,
    *,
    generator: Generators = None,
    sigma: float | Tensor | None = None,
    method: Method = "euler",
    x_0: Tensor | None = None,
    callback: Callable[[int, float, Tensor, Tensor], None] | None = None,
) -> Tensor:
    """Integrate dx/dt = (E[x_1 | x_t, y] - x_t) / (1 - t) from noise at t = 0 to t = 1 (Algorithm 2).

    Few steps give the least distortion, more steps sharper samples. No graph is kept.

    Parameters
    ----------
    model
        A `Firm`, or anything with its ``posterior_mean`` method.
    op, y
        Forward operator and measurements, a real or complex tensor, of images in [-1, 1]. The measurements are
        converted to the precision of the model's weights, float32 at least.
    steps
        N >= 1, on the uniform grid t_i = i / N.
    generator
        Source of the starting noise, which is drawn on the generator's device (the CPU by default) and moved to y's:
        the same seed gives the same noise everywhere. A sequence of generators, one per sample, makes each sample
        independent of its batch. None uses torch's global generator.
    sigma
        Noise level of y, finite and at least 0, for models that take it: a number, or one per sample, (B,).
    method
        "euler" is the paper's, with one velocity per step. "midpoint" and "heun" are second order, with two velocities
        per step (Heun's last step is an Euler step). None of them evaluates at t = 1, where the velocity is singular.
    x_0
        Start from this state instead of drawing one.
    callback
        Called with (i, t_i, x_i, z_i) at the start of every step: the state and the posterior mean estimated there.
    """
    require_count("sample: steps", steps)
    if method not in ("euler", "midpoint", "heun"):
        raise ValueError(f'sample: method must be "euler", "midpoint" or "heun", got {method!r}')
    require_operator(op)
    y = as_measurement(model, y)
    check_noise_level(sigma)
    like = op.A_adjoint(y)
    check_measurement(op, like, y)
    require_real(op, like)
    require_one_scale(op, like, y, sigma)
    x = noise_like(like, generator) if x_0 is None else x_0
    if x.shape != like.shape:
        raise ValueError(f"sample: x_0 has shape {tuple(x.shape)}, the images have {tuple(like.shape)}")
    x = x.to(like.dtype)

    def velocity(x: Tensor, t: float, check: bool = False) -> tuple[Tensor, Tensor]:
        z = model.posterior_mean(op, x, t, y, sigma=sigma, check=check)
        return (z - x) / (1 - t), z

    dt = 1 / steps
    for i in range(steps):
        t = i / steps
        v, z = velocity(x, t, check=i == 0)
        if callback is not None:
            callback(i, t, x, z)
        if method == "midpoint":
            v, _ = velocity(x + dt / 2 * v, t + dt / 2)
        elif method == "heun" and i < steps - 1:
            v_end, _ = velocity(x + dt * v, t + dt)
            v = (v + v_end) / 2
        x = x + dt * v
    if not bool(x.isfinite().all()):
        bad = int((~x.isfinite()).sum())
        raise ValueError(
            f"sample: {bad} of the {x.numel()} values of the restored images {shape(x)} are NaN or infinite: the "
            f"network, or the data-consistency step of {name(op)}, does not cope with these measurements"
        )
    return x


def as_measurement(model: object, y: Tensor) -> Tensor:
    """Measurements as `model` takes them: in the precision of its weights, float32 at least.

    A model without weights takes float32 and float64 as they are. ValueError if they are no floats, or elsewhere.
    """
    if not isinstance(y, Tensor) or not (y.is_floating_point() or y.is_complex()):
        what = f"a tensor of {y.dtype}" if isinstance(y, Tensor) else type(y).__name__
        raise ValueError(f"y must be a torch tensor of floats with images in [-1, 1], got {what}")
    if y.numel() == 0:
        raise ValueError(f"y holds no measurements: its shape is {tuple(y.shape)}")
    weight = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    if weight is not None and weight.device != y.device:
        raise ValueError(
            f"the measurement is on {y.device}, the model on {weight.device}: move one of them, "
            f'y.to("{weight.device}") or model.to("{y.device}"); the operator must be there too'
        )
    given = y.dtype if weight is None or not weight.is_floating_point() else weight.dtype
    double = given in (torch.float64, torch.complex128)
    if y.is_complex():
        return y.to(torch.complex128 if double else torch.complex64)
    return y.to(torch.float64 if double else torch.float32)


def require_real(op: LinearOperator, like: Tensor) -> None:
    """Raise ValueError if A'y, `like`, is complex."""
    if like.is_complex():
        raise ValueError(
            f"{name(op)}: A'y is complex, and networks take real images: give real measurements, or for complex images "
            "firm.operators.as_real(op)"
        )


def require_count(what: str, value: int) -> None:
    """Raise ValueError unless `value` is a whole number of at least 1."""
    if not hasattr(value, "__index__") or int(value) < 1:
        raise ValueError(f"{what} must be a whole number of at least 1, got {value!r}")


def check_noise_level(sigma: float | Tensor | None) -> None:
    """Raise ValueError unless every noise level is finite and at least 0."""
    if sigma is None:
        return
    try:
        values = torch.as_tensor(sigma, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        values = torch.tensor(float("nan"))
    if not bool(((values >= 0) & values.isfinite()).all()):
        raise ValueError(f"sigma, the noise level, must be finite and at least 0, got {sigma!r}")


def evaluations(steps: int, method: Method = "euler") -> int:
    """How many velocities `sample` evaluates; each costs K network calls."""
    return {"euler": steps, "midpoint": 2 * steps, "heun": 2 * steps - 1}[method]


def noise_like(x: Tensor, generator: Generators = None) -> Tensor:
    """Standard Gaussian noise in the shape of `x`, drawn on the generator's device, or the CPU, and moved to x's."""
    if isinstance(generator, Sequence):
        if len(generator) != len(x):
            raise ValueError(f"{len(generator)} generators for {len(x)} samples")
        return torch.cat([noise_like(sample[None], g) for sample, g in zip(x, generator, strict=True)])
    device = generator.device if generator is not None else "cpu"
    return torch.randn(x.shape, dtype=x.dtype, device=device, generator=generator).to(x.device)
