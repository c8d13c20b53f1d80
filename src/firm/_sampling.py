"""Algorithm 2: from Gaussian noise to a posterior sample in a few steps of the learned flow.

`prepare` is the one boundary: it checks what a user brings, and what lies behind it trusts that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Generator, Tensor, nn

from firm._posterior_mean import PosteriorMean, Sigma, vector
from firm._util.checks import is_number, is_whole
from firm.noise.base import Noise
from firm.operators.base import (
    LARGEST,
    LinearOperator,
    has_closed_form,
    is_linear,
    name,
    projected,
    require_tensor,
    shape,
)
from firm.operators.testing import dot_test

Integrator = Literal["euler", "midpoint", "heun"]
Quality = Literal["fast", "faithful", "detailed"]
Generators = Generator | Sequence[Generator] | None  # a sequence holds one generator per sample


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
        per step (Heun's last step is an Euler step). None of them evaluates at t = 1, where the velocity is singular.
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
    x_0 = noise_like(given.Aty, generator) if x_0 is None else x_0
    if x_0.shape != given.Aty.shape:
        raise ValueError(f"x_0 has shape {shape(x_0)}, the images have {shape(given.Aty)}")
    x = integrate(
        model, op, given.y, x_0.to(given.Aty.dtype), steps, sigma=given.noise, integrator=integrator, callback=callback
    )
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
    """
    if not (is_whole(steps, 1) and integrator in get_args(Integrator)):
        raise ValueError(
            'steps must be a whole number of at least 1 and integrator "euler", "midpoint" or "heun", '
            f"got {steps!r} and {integrator!r}"
        )

    def flow(op: LinearOperator, y: Tensor, x: Tensor, sigma: Tensor | Noise | None) -> Tensor:
        def velocity(x: Tensor, t: float) -> tuple[Tensor, Tensor]:
            z = model.posterior_mean(op, x, t, y, sigma=sigma)
            return (z - x) / (1 - t), z

        dt = 1 / steps
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
            x = x + dt * v
        return x

    replay = getattr(model, "replay", None)
    if replay is None or callback is not None:
        return projected(op, flow(op, y, x, sigma), y)
    recorded: Tensor = replay(flow, (steps, integrator), op, y, x, sigma)
    return projected(op, recorded, y)


class Prepared:
    """Measurements as a model takes them, and the checks whose numbers are still unread; `prepare` makes one.

    Reading a number waits for the device. On a GPU the checks of values are therefore held back until `settle`, which
    a caller calls after its work is queued: it computes their numbers beside that work, on a stream of their own, and
    reads all of them at once. On the CPU there is nothing to wait for, and every check is made where it is asked for,
    before the work.

    Attributes
    ----------
    op, y
        The operator, and its measurements in the precision of the model.
    Aty
        A'y, which has the shape, the type and the device of the images.
    sigma
        The noise level of every sample, (B,), or None.
    noise
        The noise as a `Firm` takes it: its model where one was given, else the same as `sigma`.
    """

    def __init__(self, op: LinearOperator, y: Tensor, Aty: Tensor, sigma: Sigma) -> None:
        self.op, self.y, self.Aty = op, y, Aty
        self.noise: Tensor | Noise | None
        if isinstance(sigma, Noise):
            self.noise = sigma.on(op, y, Aty)
            self.sigma: Tensor | None = self.noise.level(y).to(Aty.dtype)
        else:
            self.sigma = self.noise = None if sigma is None else vector(sigma, Aty)
        self._checks: list[tuple[torch.cuda.Event | None, Callable[[], Tensor], Callable[..., None]]] = []

    @property
    def deferred(self) -> bool:
        """Whether checks wait for `settle`."""
        return self.y.is_cuda

    def check(self, numbers: Callable[[], Tensor], judge: Callable[..., None]) -> None:
        """Have `judge` look at `numbers`, 1-D: now on the CPU, with all others in `settle` on a GPU.

        What the numbers are computed from must be queued by then: they wait for that, not for what is queued later.
        """
        queued = torch.cuda.current_stream(self.y.device).record_event() if self.y.is_cuda else None
        self._checks.append((queued, numbers, judge))
        if not self.deferred:
            self.settle()

    def check_result(self, x: Tensor) -> None:
        """Have the restored images `x` looked at: a network or a solver may fail where its input is fine."""

        def judge(bad: float) -> None:
            if bad:
                raise ValueError(
                    f"sample: {bad:.0f} of the {x.numel()} values of the restored images {shape(x)} are NaN or "
                    f"infinite: the network, or the data-consistency step of {name(self.op)}, does not cope with these "
                    "measurements"
                )

        self.check(lambda: (~x.isfinite()).sum()[None], judge)

    @torch.no_grad()
    def settle(self) -> None:
        """Make the checks that are held back; reads from the device once, and raises or warns."""
        checks, self._checks = self._checks, []
        if not checks:
            return
        found: list[tuple[Tensor, Callable[..., None]]] = []
        with torch.cuda.stream(_stream_of_checks(self.y.device) if self.y.is_cuda else None):
            for queued, compute, judge in checks:
                if queued is not None:
                    queued.wait()
                found.append((compute().double(), judge))
            values = torch.cat([numbers for numbers, _ in found]).tolist()
        for numbers, judge in found:
            judge(*values[: len(numbers)])
            values = values[len(numbers) :]


@functools.cache
def _stream_of_checks(device: torch.device) -> torch.cuda.Stream:
    """One for all threads: each reads after what it has queued there itself, and may wait for the checks of others."""
    return torch.cuda.Stream(device)


def prepare(model: object, op: LinearOperator, y: Tensor, sigma: Sigma = None) -> Prepared:
    """Check what a user brings, once: `sample`, `restore`, the baselines and the reconstructor begin with it.

    ValueError says what is wrong with an operator without A and A_adjoint, measurements that are no floats, not finite,
    empty, on another device than the model, or of images far beyond [-1, 1], with a noise level that is none, or with a
    noise model that does not fit them. Where conjugate gradients will solve with A and A_adjoint, `dot_test` is made of
    them; where Gauss-Newton steps will, `jacobian_test`.

    Parameters
    ----------
    model
        What restores, for the device and precision of its weights, if it has any.
    op, y, sigma
        As in `sample`.
    """
    if not (callable(getattr(op, "A", None)) and callable(getattr(op, "A_adjoint", None))):
        raise ValueError(
            f"op must be an operator, with A(x) and A_adjoint(y), but is of type {type(op).__name__}: "
            "firm.operators.from_functions(A, A_adjoint) makes one of functions"
        )
    y = _as_measurement(model, y)
    Aty, AAty = _measured_again(op, y)
    on_device = isinstance(sigma, Tensor) and sigma.is_cuda
    if not (sigma is None or on_device or isinstance(sigma, Noise)):
        _check_level(sigma)
    given = Prepared(op, y, Aty, sigma)
    if isinstance(given.noise, Noise):
        if not is_linear(op):
            raise ValueError(f"{name(op)} is not linear: the noise of its measurements is given as a level, sigma=0.05")
        _check_possible(given, given.noise)
    if on_device:
        given.check(lambda: torch.as_tensor(sigma).flatten(), lambda *values: _check_level(torch.tensor(values)))

    def judge_values(bad: float) -> None:
        if bad:
            raise ValueError(f"{name(op)}: {bad:.0f} values of y, shape {shape(y)}, are NaN or infinite")

    def judge_scale(finite: float, largest: float, size: float, beside_noise: float) -> None:
        wanted = "y must be a torch tensor of floats with images in [-1, 1] (for values x of 0 to 255: x / 127.5 - 1)"
        if not finite:
            about = f"for y of shape {shape(y)} up to {largest:.3g}"
            raise ValueError(f"{name(op)}: A(A'y) is NaN or infinite {about}: {wanted}")
        if not beside_noise <= LARGEST:
            images = f"y of shape {shape(y)} belongs to images of a size of {size:.3g}"
            raise ValueError(f"{name(op)}: {images}: {wanted}")

    given.check(lambda: (~y.isfinite()).sum()[None], judge_values)
    if is_linear(op):
        given.check(lambda: _scale_numbers(given, AAty), judge_scale)
    if not has_closed_form(op):
        dot_test(op, shape(Aty), dtype=Aty.dtype, device=Aty.device)
    return given


def _measured_again(op: LinearOperator, y: Tensor) -> tuple[Tensor, Tensor]:
    """A'y and A(A'y), whose shapes say whether the operator takes these measurements; ValueError where it does not."""
    try:
        Aty = op.A_adjoint(y)
        AAty = op.A(Aty) if isinstance(Aty, Tensor) else Aty
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise ValueError(f"{name(op)} does not take y of shape {shape(y)}: {error}") from error
    for what, value in (("A_adjoint", Aty), ("A", AAty)):
        require_tensor(f"{name(op)}: what {what} returns", value)
    if len(y) != len(Aty):
        raise ValueError(f"{name(op)}: {len(y)} measurements {shape(y)} for {len(Aty)} images {shape(Aty)}")
    if AAty.shape != y.shape:
        images = f"images of {shape(Aty)} are measured as {shape(AAty)}"
        raise ValueError(f"{name(op)}: y has shape {shape(y)}, but {images}")
    if Aty.is_complex():
        raise ValueError(
            f"{name(op)}: A'y is complex, and networks take real images: give real measurements, or for complex images "
            "firm.operators.as_real(op)"
        )
    return Aty, AAty


def _scale_numbers(given: Prepared, AAty: Tensor) -> Tensor:
    """Four numbers: is A(A'y) finite, the largest |y|, the size of images behind y, and that size beside the noise.

    c A'y, with the c that makes A(c A'y) closest to y, is never larger (in the mean square) than an image that
    explains y, whatever A is: its size tells pictures with values of 0 to 255, and overflow further on. Much noise
    makes y larger than its images.
    """
    up, down = (v.abs().double().square().reshape(len(v), -1) for v in (given.Aty, AAty))
    gain = (down.sum(1) / up.sum(1)).sqrt()  # of A, on A'y
    c = up.sum(1) / down.sum(1)
    size = (c * up.mean(1).sqrt()).nan_to_num(0, 0, 0)  # 0 where A'y is
    noise = torch.zeros_like(size) if given.sigma is None else (given.sigma.double() / gain).nan_to_num(0, 0, 0)
    finite, largest = AAty.isfinite().all(), given.y.abs().max()
    return torch.stack([v.double() for v in (finite, largest, size.max(), (size / (1 + noise)).max())])


def _as_measurement(model: object, y: Tensor) -> Tensor:
    """Return the measurements in the precision of the model's weights, float32 at least."""
    if not isinstance(y, Tensor) or not (y.is_floating_point() or y.is_complex()):
        what = f"a tensor of {y.dtype}" if isinstance(y, Tensor) else type(y).__name__
        raise ValueError(f"y must be a torch tensor of floats with images in [-1, 1], got {what}")
    require_tensor("y", y)
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


def _check_possible(given: Prepared, noise: Noise) -> None:
    """Have the measurements looked at: photons, for example, are not counted below 0."""

    def judge(count: float) -> None:
        if count:
            raise ValueError(
                f"{noise}: {count:.0f} of the {given.y.numel()} values of y {shape(given.y)} "
                f"{noise.impossible_because}: y must be in the units of images in [-1, 1], where black is -1 (of "
                "counts k with P photons at white: y = 2 k / P - 1, gain = 2 / P)"
            )

    given.check(lambda: noise.impossible(given.y)[None], judge)


def _check_level(sigma: object) -> None:
    """Raise ValueError unless `sigma`, a number or several, is finite and at least 0."""
    valid = isinstance(sigma, Tensor) or is_number(sigma)
    if valid:
        values = torch.as_tensor(sigma, dtype=torch.float64, device="cpu")  # whatever the default device
        valid = bool(((values >= 0) & values.isfinite()).all())
    if not valid:
        raise ValueError(f"sigma, the noise level, must be finite and at least 0, got {sigma!r}")


def at_quality(model: Any, quality: Quality | None, steps: int | None, iterations: int | None) -> tuple[Any, int]:
    """The model and the number of steps of a quality, see `Firm.at`; what is no `Firm` has two steps and no choice."""
    if hasattr(model, "at"):
        chosen: tuple[Any, int] = model.at(quality, steps, iterations)
        return chosen
    if iterations is not None or quality is not None:
        raise ValueError(f"iterations= and quality= are for a firm.Firm, not for {type(model).__name__}")
    return model, 2 if steps is None else steps


def noise_like(x: Tensor, generator: Generators = None) -> Tensor:
    """Draw Gaussian noise in the shape of `x`, on the generator's device, or the CPU, and move it to x's."""
    if isinstance(generator, Sequence):
        if len(generator) != len(x):
            raise ValueError(f"{len(generator)} generators for {len(x)} samples")
        return torch.cat([noise_like(sample[None], g) for sample, g in zip(x, generator, strict=True)])
    device = generator.device if generator is not None else torch.device("cpu")
    pinned = x.is_cuda and device.type == "cpu"  # copied while the CPU goes on
    noise = torch.randn(x.shape, dtype=x.dtype, device=device, generator=generator, pin_memory=pinned)
    return noise.to(x.device, non_blocking=True)
