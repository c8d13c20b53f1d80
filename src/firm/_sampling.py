"""Algorithm 2: from Gaussian noise to a posterior sample in a few steps of the learned flow."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from firm._posterior_mean import PosteriorMean, Sigma
from firm._prepare import Generators, prepare
from firm._util.checks import is_whole
from firm.noise.base import Noise
from firm.operators.base import LinearOperator, projected, shape

Integrator = Literal["euler", "midpoint", "heun", "churn"]
Quality = Literal["fast", "faithful", "detailed"]
CHURN = 0.5  # kappa: how much of the noise is fresh in a step; measured in experiments/notes/samplers


@torch.no_grad()
def sample(
    model: PosteriorMean, op: LinearOperator, y: Tensor, steps: int | None = None, *, iterations: int | None = None,
    quality: Quality | None = None, generator: Generators = None, sigma: Sigma = None,
    integrator: Integrator = "euler", x_0: Tensor | None = None,
    callback: Callable[[int, float, Tensor, Tensor], None] | None = None,
) -> Tensor:  # fmt: skip
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
        N >= 1, on the uniform grid t_i = i / N; None is that of the quality.
    iterations
        K of Algorithm 3 in every step; None is that of the quality, or the model's own. See `Firm.with_iterations`.
    quality
        "fast", "faithful" or "detailed": a pair of N and K that the model's card names, see `Firm.at`.
    generator
        Source of the starting noise, which is drawn on the generator's device (the CPU by default) and moved to y's:
        the same seed gives the same noise everywhere. A sequence of generators, one per sample, makes each sample
        independent of its batch. None uses torch's global generator.
    sigma
        Noise level of y, finite and at least 0, for models that take it: a number, or one per sample, (B,). Or a model
        of the noise (`firm.noise`), for any model: the data-consistency step then solves with its likelihood.
    integrator
        "euler" is the paper's, with one velocity per step. "midpoint" and "heun" are second order, with two velocities
        per step (Heun's last step is an Euler step). "churn" is Euler's step with a part of the noise drawn afresh.
        None of them evaluates at t = 1, where the velocity is singular.
    x_0
        Start from this state instead of drawing one.
    callback
        Called with (i, t_i, x_i, z_i) at the start of every step: the state and the posterior mean estimated there.

    Returns
    -------
    Images in the shape of A'y, such as (B, C, H, W).
    """
    model, steps = at_quality(model, quality, steps, iterations)
    given = prepare(model, op, y, sigma)
    x_0 = given.start(generator) if x_0 is None else x_0
    one = given.runs(1)
    later = [given.start(generator) for _ in range(draws(integrator, steps) - 1)]
    if x_0.shape != (len(one.y), *given.Aty.shape[1:]):
        raise ValueError(f"x_0 has shape {shape(x_0)}, the images have {shape(given.Aty)}")
    x = integrate(
        given.model, one.op, one.y, torch.cat([x_0.to(given.Aty.dtype), *later]), steps, sigma=one.noise,
        integrator=integrator, callback=callback,
    )  # fmt: skip
    x = given.together(x)
    given.check_result(x)
    given.settle()
    return x


@torch.no_grad()
def integrate(
    model: PosteriorMean, op: LinearOperator, y: Tensor, x: Tensor, steps: int, *, sigma: Tensor | Noise | None = None,
    integrator: Integrator = "euler", callback: Callable[[int, float, Tensor, Tensor], None] | None = None,
) -> Tensor:  # fmt: skip
    """Algorithm 2 from the state `x` at t = 0, with input as `prepare` returns it; nothing is read from the device.

    A model with a method ``replay`` (`firm.fast` on a GPU) records all steps as one piece of work. At t = 1 images are
    brought to what `y` says without any doubt, see `Operator.project`: nothing, under noise.

    The state x_t = t z + (1 - t) e consists of the estimate z and noise e. Euler's step to s keeps both. "churn" keeps
    the estimate, and of the noise sqrt(1 - eta^2) e + eta times fresh noise, with eta^2 = kappa^2 (1 - (r_s / r_t)^2)
    and r_t = (1 - t) / t, kappa = `CHURN`: the family of Song et al. (2021, DDIM) on the linear path. `x` then holds
    the noise of all steps, one after the other: (N B, ...).
    """
    if not (is_whole(steps, 1) and integrator in get_args(Integrator)):
        raise ValueError(
            f"steps must be a whole number of at least 1 and integrator one of {', '.join(get_args(Integrator))}, "
            f"got {steps!r} and {integrator!r}"
        )

    def flow(op: LinearOperator, y: Tensor, x: Tensor, sigma: Tensor | Noise | None) -> Tensor:
        def velocity(x: Tensor, t: float) -> tuple[Tensor, Tensor]:
            z = model.posterior_mean(op, x, t, y, sigma=sigma)
            return (z - x) / (1 - t), z

        dt = 1 / steps
        x, *fresh = x.chunk(steps) if integrator == "churn" else (x,)
        for i in range(steps):
            t = i / steps
            v, z = velocity(x, t)
            if callback is not None:
                callback(i, t, x, z)
            if integrator == "midpoint":
                v, _ = velocity(x + dt / 2 * v, t + dt / 2)
            elif integrator == "heun" and i < steps - 1:
                v_end, _ = velocity(x + dt * v, t + dt)
                v = (v + v_end) / 2
            if i < len(fresh):
                s, e = t + dt, x - t * v
                eta = CHURN * math.sqrt(1 - ((1 - s) * t / (s * (1 - t))) ** 2)
                x = s * z + (1 - s) * (math.sqrt(1 - eta**2) * e + eta * fresh[i])
            else:
                x = x + dt * v
        return x

    replay = getattr(model, "replay", None)
    if replay is None or callback is not None:
        return projected(op, flow(op, y, x, sigma), y)
    recorded: Tensor = replay(flow, (steps, integrator), op, y, x, sigma)
    return projected(op, recorded, y)


def draws(integrator: Integrator, steps: int) -> int:
    """How many images of noise a sample takes: that of the start, and with "churn" one for every later step."""
    return steps if integrator == "churn" else 1


def at_quality(model: Any, quality: Quality | None, steps: int | None, iterations: int | None) -> tuple[Any, int]:
    """The model and the number of steps of a quality, see `Firm.at`; what is no `Firm` has two steps and no choice."""
    if hasattr(model, "at"):
        chosen: tuple[Any, int] = model.at(quality, steps, iterations)
        return chosen
    if iterations is not None or quality is not None:
        raise ValueError(f"iterations= and quality= are for a firm.Firm, not for {type(model).__name__}")
    return model, 2 if steps is None else steps
