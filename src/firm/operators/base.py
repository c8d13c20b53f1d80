"""The operator protocol, and the data-consistency step that every velocity evaluation solves.

An operator is anything with ``A(x)`` and ``A_adjoint(y)``. If it also has ``prox_l2(z, y, gamma)`` the step uses that
closed form; if not, conjugate gradients ("General linear operators", Appendix B.4). The names and ``gamma = 1/rho``
are deepinv's, so its linear physics fit. One whose attribute ``linear`` is false has an ``A`` that is not linear and
its own ``prox_l2``, see `firm.operators.nonlinear`.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from firm.noise.base import Noise

MAX_ITERATIONS = 500
LARGEST = 8  # root mean square of images; those of FIRM are in [-1, 1]


@runtime_checkable
class LinearOperator(Protocol):
    """What FIRM asks of a forward operator; ``prox_l2`` is optional (see `data_consistency`)."""

    def A(self, x: Tensor) -> Tensor:
        """Measure images `x`, shape (B, ...)."""
        ...

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Apply the adjoint to measurements `y`; returns the shape of the images."""
        ...


class Operator(nn.Module, ABC):
    """Base of the operators in this package: immutable, buffers only, nothing random. Calling one applies A.

    Its ``prox_l2`` solves by conjugate gradients; a subclass that knows a closed form overrides it. The iterations stop
    at a relative residual of ``cg_tol`` (None: 1e-6 in float32, 1e-12 in float64) or after ``cg_iterations``.
    ``cg_tol = 0`` makes all iterations and tests nothing, so that nothing is read back from the device.

    Parameters
    ----------
    like
        An operator inside this one, whose ``cg_tol`` and ``cg_iterations`` hold for this one too.
    """

    linear: bool = True  # of a nonlinear operator `A_adjoint` makes an image to start from, see `NonlinearOperator`
    cg_tol: float | None = None
    cg_iterations: int = MAX_ITERATIONS
    _computed: Mapping[str, tuple[Tensor, Hashable, Tensor]] = MappingProxyType({})  # see `computed_once`

    def __init__(self, like: object = None) -> None:
        super().__init__()
        for setting in ("cg_tol", "cg_iterations"):
            if hasattr(like, setting):
                setattr(self, setting, getattr(like, setting))

    @abstractmethod
    def A(self, x: Tensor) -> Tensor:
        """Measure images `x`, shape (B, ...)."""

    @abstractmethod
    def A_adjoint(self, y: Tensor) -> Tensor:
        """Apply the adjoint to measurements `y`; returns the shape of the images."""

    @property
    def closed_form(self) -> bool:
        """Tell whether ``prox_l2`` is a formula of this operator; where it is not, conjugate gradients solve."""
        return getattr(self.prox_l2, "__func__", None) is not Operator.prox_l2

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """Solve (A'A + I/gamma) x = A'y + z/gamma; `gamma` is a float, or broadcasts over `z` (B, ...)."""
        return data_consistency(self, z, y, 1 / gamma)

    def normal(self, x: Tensor) -> Tensor:
        """Compute A'A x, which conjugate gradients call; override it where that costs less than A, then A'."""
        return self.A_adjoint(self.A(x))

    def diagonal(self, y: Tensor) -> Tensor | None:
        """Return d with A A' = diag(d), as it broadcasts over measurements `y`; None where A A' is not diagonal.

        The proximal step of any noise that is independent in the measurements is then exact, see `firm.noise`.
        """
        return None

    def precondition(self, r: Tensor, rho: Tensor) -> Tensor:
        """Approximate (A'A + rho I)^-1 r, for `rho` (B, 1, ..., 1): fewer conjugate gradients are made then.

        Must be linear in `r`, self-adjoint and positive; `r` itself, as here, stands for none.
        """
        return r

    def known_norm(self, like: Tensor) -> Tensor | None:
        """Return the largest singular value of A on images like `like` (B, ...), for all or (B,); None: not known."""
        return None

    def project(self, x: Tensor, y: Tensor) -> Tensor:
        """Bring images to what `y` says of them without any doubt; under noise that is nothing, and they stay."""
        return x

    def computed_once(self, what: str, size: Hashable, source: Tensor, compute: Callable[[], Tensor]) -> Tensor:
        """Return ``compute()``, which depends on the buffer `source` and on `size` alone, and is made when first asked.

        Every evaluation of the velocity solves with the same operator several times. The last size is kept, as long as
        the buffer is the same one with the same values. A CUDA graph computes it for itself, so that it follows the
        buffer when the graph is replayed and uses no memory that may be given back before.

        Parameters
        ----------
        what
            Its name, such as "transfer".
        size
            All that it depends on beside the buffer, such as the size and type of the images.
        source, compute
            A buffer of this operator, and what makes a tensor of it.
        """
        if source.requires_grad or source.is_inference():  # a tensor of inference mode does not count its changes
            return compute()
        about = (size, source._version, _captured(source))
        known = self._computed.get(what)
        if known is None or known[0] is not source or known[1] != about:
            with torch.inference_mode(False), torch.no_grad():  # a tensor of inference mode has no place in training
                known = (source, about, compute())
            self._computed = {**self._computed, what: known}
        return known[2]

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles begin with nothing computed: their buffers are others."""
        return {key: value for key, value in vars(self).items() if key != "_computed"}

    def forward(self, x: Tensor) -> Tensor:
        """Measure images `x`, as ``A(x)`` does."""
        return self.A(x)


def data_consistency(
    op: LinearOperator, z: Tensor, y: Tensor, rho: float | Tensor, noise: Noise | None = None
) -> Tensor:
    """Solve (A'A + rho I) x = A'y + rho z: line 3 of Algorithm 3, the normal equations (71) of Appendix B.1.

    With a noise model the solution is argmin_x -level^2 log p(y | A x) + rho/2 |x - z|^2, where level is its
    root mean square standard deviation: for Gaussian noise of one level, that of the equation above.

    The only place in FIRM that solves with an operator: with its closed form, or by conjugate gradients; where A is not
    linear, argmin 1/2 |A(x) - y|^2 + rho/2 |x - z|^2 is what its ``prox_l2`` finds. Computes in
    float32 or better, also inside autocast, and is differentiable, twice, in z, y and rho. The input is trusted, and
    nothing is read back from the device: `firm.prepare` looks at shapes and values, `dot_test` at a user's adjoint.

    Parameters
    ----------
    op
        The forward operator.
    z
        Current iterate, (B, ...).
    y
        Measurements, of the shape of ``op.A(z)``.
    rho
        Coupling rho = mu sigma^2 > 0: a float, or one value per sample, (B,).
    noise
        A model of `firm.noise`; None stands for Gaussian noise of one level, whatever it is.

    Returns
    -------
    The solution, in the shape of `z`.
    """
    with torch.autocast(z.device.type, enabled=False):
        z, y = (v.float() if v.dtype in (torch.float16, torch.bfloat16) else v for v in (z, y))
        rho = per_sample(rho, z)
        if noise is not None:
            x: Tensor = noise.on(op, y, z).data_consistency(op, z, y, rho)
        elif has_closed_form(op) or not is_linear(op):
            closed: Any = op
            x = closed.prox_l2(z, y, 1 / rho)
        else:
            x = _solve_normal_equations(op, z, y, rho)
    if x.shape != z.shape:
        raise ValueError(f"{name(op)}: the data-consistency step makes {shape(x)} of {shape(z)} and y of {shape(y)}")
    return x


def has_closed_form(op: LinearOperator) -> bool:
    """Tell whether an operator, ours or a user's, brings a closed form of the data-consistency step."""
    return bool(getattr(op, "closed_form", hasattr(op, "prox_l2")))


def projected(op: LinearOperator, x: Tensor, y: Tensor) -> Tensor:
    """Bring images `x` to what `y` says without any doubt, see `Operator.project`, which a user's may not have."""
    project = getattr(op, "project", None)
    return x if project is None else project(x, y)


def is_linear(op: object) -> bool:
    """Tell whether A is linear: of everything that does not say otherwise."""
    return bool(getattr(op, "linear", True))


def synchronizes(op: LinearOperator) -> bool:
    """Tell whether solving reads from the device: conjugate gradients do, unless ``cg_tol`` is 0."""
    return not has_closed_form(op) and getattr(op, "cg_tol", None) != 0


def diagonal(op: LinearOperator, y: Tensor) -> Tensor | None:
    """Return the diagonal of A A' where an operator knows that it is diagonal, see `Operator.diagonal`."""
    found: Tensor | None = op.diagonal(y) if isinstance(op, Operator) else None
    return found


def normal(op: LinearOperator, x: Tensor) -> Tensor:
    """Compute A'A x, in the way that an operator of this package knows to be quickest, see `Operator.normal`."""
    return op.normal(x) if isinstance(op, Operator) else op.A_adjoint(op.A(x))


def per_sample(value: float | Tensor, x: Tensor) -> float | Tensor:
    """Make `value` broadcast over `x` (B, ...): a float stays one, a value per sample (B,) becomes (B, 1, ..., 1)."""
    if not isinstance(value, Tensor):
        return float(value)
    value = value.to(x.device, x.real.dtype)
    if value.ndim == 0:
        return value
    if not value.shape[0] == len(x) == value.numel():
        raise ValueError(f"expected a float or one value per sample, ({len(x)},), got a tensor of {shape(value)}")
    return value.reshape(-1, *[1] * (x.ndim - 1))


def _solve_normal_equations(op: LinearOperator, z: Tensor, y: Tensor, rho: float | Tensor) -> Tensor:
    """Solve (A'A + rho I) x = A'y + rho z by conjugate gradients from z, with gradients in z, y and rho.

    `z` is (B, ...), real or complex, `rho` a float or (B, 1, ..., 1). Every sample stops by itself, so its result does
    not depend on the rest of the batch.

    The gradients are those of the exact solution, found by another solve of the same limits. Where these stop early,
    as the ten iterations of the tasks with a valid blur, the solution is approximate and so are its gradients: they are
    not the derivative of the iterations that were made.
    """
    Aty = op.A_adjoint(y)
    if Aty.shape != z.shape:
        raise ValueError(f"{name(op)}: A_adjoint(y) has shape {shape(Aty)}, expected {shape(z)}")
    if not isinstance(rho, Tensor):  # filled in, not copied: a CUDA graph cannot copy from the CPU
        rho = torch.full((1,), rho, dtype=z.real.dtype, device=z.device)
    rho = rho.expand(len(z), *[1] * (z.ndim - 1))
    x: Tensor = _SelfAdjointSolve.apply(Aty + rho * z, rho, z.detach(), op)  # type: ignore[no-untyped-call]
    return x


class _SelfAdjointSolve(torch.autograd.Function):
    """x = M^-1 b with M = A'A + rho I.

    M is self-adjoint, so the gradient of b is another solve, M^-1 g, and that of rho is -<M^-1 g, x>. Both are
    differentiable again. The operator counts as a constant, and so does the start, on which the exact solution does not
    depend. The user's A is never called in bfloat16, not by a backward pass inside autocast either.
    """

    @staticmethod
    def forward(ctx: Any, b: Tensor, rho: Tensor, start: Tensor | None, op: LinearOperator) -> Tensor:
        with torch.autocast(b.device.type, enabled=False):
            x = _conjugate_gradients(op, rho, b, start)
        ctx.save_for_backward(x, rho)
        ctx.op = op
        return x

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        x, rho = ctx.saved_tensors
        grad_b: Tensor = _SelfAdjointSolve.apply(grad_outputs[0], rho, None, ctx.op)  # type: ignore[no-untyped-call]
        grad_rho = -_dot(grad_b, x) if ctx.needs_input_grad[1] else None
        return grad_b, grad_rho, None, None


def _conjugate_gradients(op: LinearOperator, rho: Tensor, b: Tensor, start: Tensor | None) -> Tensor:
    """Solve (A'A + rho I) x = b for every sample of `b` (B, ...), within the limits of the operator.

    A sample whose residual has fallen to ``cg_tol * |b|`` is frozen while the others go on. With ``cg_tol=0`` there is
    no such test: all ``cg_iterations`` are made and nothing is read back from the device, as a CUDA graph needs it. One
    iteration calls A and A' once; a `start` other than zero costs one call more.
    """

    def M(v: Tensor) -> Tensor:
        return normal(op, v) + rho * v

    def P(r: Tensor, rr: Tensor) -> tuple[Tensor, Tensor]:
        """The preconditioned residual, and its inner product with the residual."""
        s: Tensor = op.precondition(r, rho) if isinstance(op, Operator) else r
        return (s, rr) if s is r else (s, _dot(r, s))

    tol, iterations = getattr(op, "cg_tol", None), getattr(op, "cg_iterations", MAX_ITERATIONS)
    tol = tol if tol is not None else (1e-12 if b.real.dtype == torch.float64 else 1e-6)
    if not (tol >= 0 and iterations >= 1):
        limits = "cg_tol must be at least 0 and cg_iterations at least 1"
        raise ValueError(f"{name(op)}: {limits}, got {tol} and {iterations}")
    bb = _dot(b, b)
    x = torch.where(bb > 0, torch.zeros_like(b) if start is None else start, b)  # b = 0 has x = 0, and NaN stays NaN
    r = b if start is None else b - M(x)
    rr = _dot(r, r)
    p, rs = P(r, rr)
    goal = tol**2 * bb
    for _ in range(iterations):
        active = ~(rr <= goal) & bb.isfinite()
        if tol > 0 and not bool(active.any()):
            return x
        Mp = M(p)
        pMp = _dot(p, Mp)
        if tol > 0 and not bool((pMp > 0)[active].all()):
            raise ValueError(
                f"{name(op)}: A'A is not positive for images of shape {shape(b)}; A_adjoint is not the adjoint of A, "
                "or A returns NaN (see firm.operators.dot_test)"
            )
        active = active & ~(pMp <= 0)  # it underflows long past convergence; a NaN stays one
        alpha = torch.where(active, rs / pMp, 0)
        x, r = x + alpha * p, r - alpha * Mp
        rr, rs_before = _dot(r, r), rs
        s, rs = P(r, rr)
        p = s + torch.where(active, rs / rs_before, 0) * p
    missed = rr > goal
    if tol > 0 and bool(missed.any()):
        worst = float((rr / bb)[missed].max().sqrt())
        warnings.warn(
            f"{name(op)}: relative residual {worst:.1e} after {iterations} iterations of conjugate gradients (wanted "
            f"{tol:.0e}); raise the operator's cg_iterations or its cg_tol, or take a larger rho, which makes the "
            "system better conditioned",
            RuntimeWarning,
            stacklevel=2,
        )
    return x


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Real inner product Re<a, b> of each sample, (B, 1, ..., 1)."""
    product = (a.conj() * b).real if a.is_complex() else a * b
    return product.flatten(1).sum(1).reshape(-1, *[1] * (a.ndim - 1))


def name(op: object) -> str:
    """Return what messages call an operator: its repr where that is one line, else its class."""
    return repr(op) if isinstance(op, nn.Module) and "\n" not in repr(op) else type(op).__name__


def shape(x: Tensor) -> tuple[int, ...]:
    """Return the shape of `x` as a plain tuple, which prints well."""
    return tuple(x.shape)


def largest(pattern: Tensor) -> Tensor:
    """The largest value of a pattern, or of those of the samples, (B, 1, H, W), each: (B,)."""
    return pattern.flatten(1).amax(1) if pattern.ndim == 4 else pattern.max()


def dimensions(x: Tensor) -> str:
    """Return the shape of `x` as the operators' reprs show it, such as 3x5."""
    return "x".join(map(str, x.shape))


def require_tensor(what: str, value: object) -> None:
    """Raise ValueError unless `value` is a dense tensor; of other arrays it says how they become one."""
    if not isinstance(value, Tensor):
        numpy = type(value).__module__ == "numpy"
        kind = "a NumPy array: torch.from_numpy makes one of it" if numpy else type(value).__name__
        raise ValueError(f"{what} must be a torch tensor, got {kind}")
    if value.layout != torch.strided or value.is_nested:
        raise ValueError(f"{what} must be a dense tensor, got a sparse or nested one: to_dense() makes one of it")


def checked_pattern(op: object, what: str, pattern: Tensor, check: bool) -> Tensor:
    """Copy a mask or kernel in float32 or better, after a look at its values.

    With `check`, ValueError says if it is complex, not finite, or zero throughout (in any sample).
    """
    if check:
        the = f"{type(op).__name__}: the {what}"
        require_tensor(the, pattern)
        if pattern.is_complex():
            raise ValueError(f"{the} must be a real tensor, got {pattern.dtype}")
        if pattern.numel() == 0 or not pattern.isfinite().all():
            raise ValueError(f"{the} of shape {shape(pattern)} must be non-empty and finite")
        samples = pattern.flatten(1) if pattern.ndim == 4 else pattern.reshape(1, -1)
        if not samples.any(dim=1).all():
            raise ValueError(f"{the} of shape {shape(pattern)} is empty: A would measure nothing")
    return pattern.to(torch.promote_types(pattern.dtype, torch.float32), copy=True)


def _captured(source: Tensor) -> bool:
    """Whether work on the device of a tensor becomes part of a CUDA graph now."""
    return source.is_cuda and torch.cuda.is_current_stream_capturing()
