"""The one boundary: `prepare` checks what a user brings, and turns it into what the model takes.

What lies behind it trusts that.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from firm._channels import independent, of_channels
from firm._posterior_mean import Sigma, vector
from firm._util.checks import is_number
from firm.noise.base import Noise
from firm.operators.base import (
    LARGEST,
    LinearOperator,
    data_consistency,
    has_closed_form,
    is_linear,
    name,
    per_sample,
    require_tensor,
    shape,
)
from firm.operators.compose import Repeated
from firm.operators.scale import Scaled, norms, unit_scale
from firm.operators.testing import dot_test

Generators = Generator | Sequence[Generator] | None  # a sequence holds one generator per sample
HALVINGS, LEAST_RHO, MOST_RHO = 12, 1e-6, 1e3  # of the search for rho in `Prepared.fitted`


class Runs(NamedTuple):
    """The problem of several samples at once, as `integrate` takes it: one sample after the other in the batch."""

    op: LinearOperator
    y: Tensor
    noise: Tensor | Noise | None


class Prepared:
    """Measurements as a model takes them, and the checks whose numbers are still unread; `prepare` makes one.

    Reading a number waits for the device. On a GPU the checks of values are therefore held back until `settle`, which
    a caller calls after its work is queued: it computes their numbers beside that work, on a stream of their own, and
    reads all of them at once. On the CPU there is nothing to wait for, and every check is made where it is asked for,
    before the work.

    Attributes
    ----------
    model
        What estimates: the model that was given, or one for images of this number of channels, see `of_channels`.
    copies
        How many copies of every image that model takes; 1 where the images are those that it was trained for.
    op, y
        The operator, and its measurements in the precision of the model. Where the norm of A is far from 1 both are
        scaled, and their noise with them (`firm.operators.scale`): the images stay the same.
    Aty
        A'y, which has the shape, the type and the device of the images.
    sigma
        The noise level of every sample, (B,), or None.
    noise
        The noise as a `Firm` takes it: its model where one was given, else the same as `sigma`.
    seen
        Which measurements A makes, where a mask leaves others out: true for these, in the shape of y.
    norm
        The norm of A on every image, (B,), scaled as A is; None where A is not linear.
    """

    def __init__(self, model: Any, op: LinearOperator, y: Tensor, Aty: Tensor, seen: Tensor, sigma: Sigma) -> None:
        self.model, self.copies = of_channels(model, Aty)
        self.op, self.y, self.Aty, self.seen = op, y, Aty, seen
        self.noise: Tensor | Noise | None
        if isinstance(sigma, Noise):
            self.noise = sigma.on(op, y, Aty)
            self.sigma: Tensor | None = self.noise.level(y).to(Aty.dtype)
        else:
            self.sigma = self.noise = None if sigma is None else vector(sigma, Aty)
        self.norm = norms(op, Aty) if is_linear(op) else None
        self._checks: list[tuple[torch.cuda.Event | None, Callable[[], Tensor], Callable[..., None]]] = []

    def scale(self) -> None:
        """Bring A to a norm of 1 where it is far from that, and y and its noise with it."""
        c = None if self.norm is None else unit_scale(self.norm)
        if c is None or self.norm is None:
            return
        self.norm, c = c * self.norm, c.to(self.Aty.device)  # a norm that is known is kept on the CPU
        self.op = Scaled(self.op, c)
        self.y, self.Aty = per_sample(c, self.y) * self.y, per_sample(c.square(), self.Aty) * self.Aty
        self.sigma = None if self.sigma is None else c * self.sigma
        if isinstance(self.noise, Noise):
            self.noise = self.noise.scaled(c).on(self.op, self.y, self.Aty)
        else:
            self.noise = self.sigma

    def start(self, generator: Generators = None) -> Tensor:
        """Draw the noise that one sample of every image starts from, (copies B, C, H, W)."""
        wide = self.Aty if self.copies == 1 else self.Aty.repeat(1, self.copies, 1, 1)
        x_0 = noise_like(wide, generator)
        return x_0 if self.copies == 1 else torch.cat(x_0.chunk(self.copies, dim=1))

    def runs(self, samples: int) -> Runs:
        """The problem of so many samples of every image at once, with the copies that the model takes."""
        y, noise, B = self.y, self.noise, len(self.Aty)
        if self.copies > 1:
            y, noise = independent(self.op, y, self.sigma, noise, self.copies)
        op = self.op if B == 1 else Repeated(self.op, B)  # that of a single image serves any number of runs
        noise = (
            noise.repeated(samples) if isinstance(noise, Noise) else None if noise is None else noise.repeat(samples)
        )
        return Runs(op, y if samples == 1 else y.repeat(samples, *[1] * (y.ndim - 1)), noise)

    def together(self, x: Tensor) -> Tensor:
        """Average the copies of every image: (copies B, C, H, W) to (B, C, H, W)."""
        return x if self.copies == 1 else x.unflatten(0, (self.copies, -1)).mean(0)

    def residual(self, x: Tensor) -> Tensor | None:
        """Root mean square of A x - y in units of the noise, for each image, (B,); None where sigma is not known.

        Only what A sees counts. It is about 1 for images that explain the measurements, and far more where x and y
        contradict each other; NaN where the noise level is 0.
        """
        if self.sigma is None:
            return None
        std: Any = self.noise.std(self.y) if isinstance(self.noise, Noise) else per_sample(self.sigma, self.y)
        seen = self.seen & (std > 0)
        square = torch.where(seen, (self.op.A(x) - self.y).abs() / std, 0).square().flatten(1).sum(1)
        return (square / seen.flatten(1).sum(1)).sqrt()

    def fitted(self, x: Tensor) -> Tensor:
        """Bring images (B, C, H, W) to their measurements, as far as the noise leaves no doubt.

        Returns argmin |A x' - y|^2 / 2 + rho/2 |x' - x|^2 with the largest rho whose residual is at most 1 (Morozov's
        discrepancy principle), found by bisection for every image; where the residual of `x` is below 1 it stays.
        """
        far = self._is_far(x)
        low, high = (torch.full(far.shape, math.log(rho), device=x.device) for rho in (LEAST_RHO, MOST_RHO))
        noise = self.noise if isinstance(self.noise, Noise) else None
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            further = self._is_far(data_consistency(self.op, x, self.y, middle.exp(), noise))
            low, high = torch.where(further, low, middle), torch.where(further, middle, high)
        solved = data_consistency(self.op, x, self.y, low.exp(), noise)
        return torch.where(far.reshape(-1, *[1] * (x.ndim - 1)), solved, x)

    def _is_far(self, x: Tensor) -> Tensor:
        residual = self.residual(x)
        if residual is None:
            raise ValueError("final_solve brings images as close to y as its noise says: give sigma, its level")
        return residual > 1

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


def prepare(model: object, op: LinearOperator, y: Tensor, sigma: Sigma = None, *, scale: bool = True) -> Prepared:
    """Check what a user brings, once, and bring it to the units and channels of the model.

    `sample`, `restore`, the baselines and the reconstructor begin with it.

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
    scale
        Bring A to a norm of 1 where it is far from that, as the models want it; the baselines take A as it is.
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
    if isinstance(sigma, Noise) and not is_linear(op):
        raise ValueError(f"{name(op)} is not linear: the noise of its measurements is given as a level, sigma=0.05")
    given = Prepared(model, op, y, Aty, (AAty != 0) | (not is_linear(op)), sigma)
    if isinstance(given.noise, Noise):
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
    if scale:
        given.scale()
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
