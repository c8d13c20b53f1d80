"""DeepInverse (`deepinv`) both ways: its physics as operators, and our linear operators as its own.

deepinv is an extra (``pip install deepinv``) and is imported only when one of these functions is called.
See docs/deepinv.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from firm._util.checks import require
from firm.operators.base import (
    LinearOperator,
    Operator,
    data_consistency,
    has_closed_form,
    is_linear,
    name,
    per_sample,
    shape,
)
from firm.operators.gauss_newton import NonlinearOperator
from firm.operators.testing import dot_test, jacobian_test, prox_test

CLOSED_FORM_RESIDUAL = 2e-5  # of the data-consistency step in float32; deepinv's own CG stops at 1e-4
ADJOINT_ERROR = 1e-4  # transforms in float32 stay below 1e-5; deepinv's adjoint of a tomograph misses by more


def from_deepinv(
    physics: Any, *, unit_range: bool | None = None, image_shape: tuple[int, ...] | None = None,
    complex: bool = False,
) -> DeepinvOperator | DeepinvNonlinear:  # fmt: skip
    """Make a deepinv physics an operator, with the maps between its images in [0, 1] and FIRM's in [-1, 1].

    Works on a copy, so that what later happens to the physics (``update``, ``A(x, mask=m)``) does not reach the
    operator. Before it is returned it is checked: linear, a true adjoint, and a closed form that solves; where the
    physics has none, or one that fails, conjugate gradients solve instead. A physics that is not linear has to be
    differentiable, and Gauss-Newton steps solve, see `firm.operators.NonlinearOperator`.

    Parameters
    ----------
    physics
        A ``deepinv.physics.Physics``, on any device.
    unit_range
        Whether its images are in [0, 1]. None: yes, but not for MRI and `complex`, which are centered on 0.
    image_shape
        Shape (C, H, W) of an image, for a physics that does not name it and takes not every size, or is not linear.
    complex
        Whether it takes complex images (B, C, H, W). FIRM's are then (B, 2C, H, W): real parts first, then imaginary.

    Example
    -------
    >>> op = from_deepinv(physics)  # doctest: +SKIP
    >>> r = firm.restore(model, op, op.measurement(y), sigma=op.sigma)  # doctest: +SKIP
    >>> x = op.image(r.image)  # in [0, 1]  # doctest: +SKIP
    """
    if _takes_one_image(physics) and not _is_linear_physics(physics):
        return _nonlinear_operator(physics, unit_range, image_shape, complex)
    return checked_operator(physics, unit_range, image_shape, complex)


class _OfDeepinv(Operator):
    """What operators made of a physics share; they compute in float32 whatever they are given."""

    def __init__(self, physics: Any, unit_range: bool, complex: bool) -> None:
        super().__init__()
        self.physics = physics
        self.unit_range, self.complex = unit_range, complex

    def image(self, x: Tensor) -> Tensor:
        """Map FIRM's images to deepinv's; [0, 1] where ``unit_range``. Not clamped."""
        return (x + 1) / 2 if self.unit_range else x

    @property
    def sigma(self) -> float | Tensor | None:
        """Noise level of `measurement`, a float or (B,); None where the physics has no Gaussian noise model."""
        import deepinv

        noise = self.physics.noise_model
        if not isinstance(noise, deepinv.physics.GaussianNoise):
            return None
        sigma: Tensor = noise.sigma.flatten() * (2 if self.unit_range else 1)
        return float(sigma) if sigma.numel() == 1 else sigma

    def _to_physics(self, x: Tensor) -> Tensor:
        x = x.float()
        return torch.complex(*x.chunk(2, dim=1)) if self.complex else x

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Move, but never change the type: ``.to(float64)`` makes the complex buffers of deepinv real."""
        self.physics.to(fn(torch.zeros((), device=_device(self.physics))).device)
        return self

    def __repr__(self) -> str:
        return f"from_deepinv({type(self.physics).__name__})"


class DeepinvOperator(_OfDeepinv):
    """A linear physics of deepinv as an operator, which moves between devices only.

    ``closed_form`` says whether ``prox_l2`` is the physics' own formula or our conjugate gradients.
    """

    closed_form: bool = False
    cg_tol: float | None = 1e-6

    def __init__(self, physics: Any, unit_range: bool, complex: bool, closed_form: bool = False) -> None:
        super().__init__(physics, unit_range, complex)
        self.closed_form = closed_form

    def A(self, x: Tensor) -> Tensor:
        """Measure images, (B, C, H, W), without noise."""
        return self.physics.A(self._to_physics(x))

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Adjoint of A; the shape of the images comes from the physics."""
        return self._from_physics(self.physics.A_adjoint(_single(y)))

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """Solve (A'A + I/gamma) x = A'y + z/gamma, with gamma a float or one per sample.

        deepinv takes one gamma per sample as (B, 1, 1, 1) only: a shape of (B,) is wrong without a message where
        B is the width of the image.
        """
        if not self.closed_form:
            return super().prox_l2(z, y, gamma)
        gamma = per_sample(gamma, z.float())
        return self._from_physics(self.physics.prox_l2(self._to_physics(z), _single(y), gamma)).to(z.dtype)

    def measurement(self, y: Tensor) -> Tensor:
        """Map deepinv's measurements to FIRM's: images go from x to 2 x - 1, so y becomes 2 y - A(1)."""
        return 2 * y - self.A(torch.ones_like(self.A_adjoint(y))) if self.unit_range else y

    def _from_physics(self, x: Tensor) -> Tensor:
        kind = "complex" if x.is_complex() else "real"
        fits = x.is_complex() == self.complex
        require(fits, f"{self} takes {kind} images: pass from_deepinv(..., complex={x.is_complex()})")
        return torch.cat([x.real, x.imag], dim=1) if self.complex else x


class DeepinvNonlinear(_OfDeepinv, NonlinearOperator):
    """A physics of deepinv that is not linear; its ``A`` is differentiated by autograd, its adjoint not used."""

    def __init__(self, physics: Any, unit_range: bool, complex: bool, image_shape: tuple[int, ...]) -> None:
        super().__init__(physics, unit_range, complex)
        self.image_shape = image_shape

    def A(self, x: Tensor) -> Tensor:
        """Measure images, (B, C, H, W), without noise; times 2 where they go from [-1, 1] to [0, 1]."""
        measured: Tensor = self.physics.A(self.image(self._to_physics(x)))
        return 2 * measured if self.unit_range else measured

    def guess(self, y: Tensor) -> Tensor:
        """Return J(0)'(y - A(0)): the first step of a gradient descent."""
        zero = torch.zeros(len(y), *self.image_shape, device=y.device)
        return self.linearized(zero).A_adjoint(_single(y) - self.A(zero))

    def measurement(self, y: Tensor) -> Tensor:
        """Map deepinv's measurements to FIRM's: twice, where images go from x to 2 x - 1, which keeps the slope."""
        return 2 * y if self.unit_range else y


def as_deepinv(op: LinearOperator, sigma: float | Tensor = 0.0, img_size: tuple[int, ...] | None = None) -> Any:
    """Make an operator a ``deepinv.physics.LinearPhysics`` with Gaussian noise, for deepinv's algorithms.

    Parameters
    ----------
    op
        Any operator of FIRM. It is linear, so it serves images in [0, 1] as well as in [-1, 1].
    sigma
        Noise level of ``physics(x)``, in the units of x: a float or (B,).
    img_size
        (C, H, W) of the images, for the parts of deepinv that ask for it.
    """
    require(is_linear(op), f"{name(op)} is not linear, and a deepinv.physics.LinearPhysics is")
    size = img_size if img_size is not None else getattr(op, "image_shape", None)
    return _physics_class()(op, sigma, size)


def deepinv_package() -> Any:
    """The package, or an error that says how to get it."""
    try:
        import deepinv
    except ImportError as error:
        raise ImportError("this needs deepinv: pip install deepinv") from error
    except RuntimeError as error:
        if "torchvision" not in str(error):
            raise
        raise ImportError(
            "deepinv imports torchvision, and the one installed was built for CUDA while torch was not: install both "
            "from one index, or see docs/deepinv.md"
        ) from error
    return deepinv


def checked_operator(
    physics: Any, unit_range: bool | None, image_shape: tuple[int, ...] | None = None, complex: bool = False,
    y: Tensor | None = None,
) -> DeepinvOperator:  # fmt: skip
    """The operator of a copy of `physics` or, with a measurement `y` of it, of the live one; see `from_deepinv`."""
    kind = type(physics).__name__
    linear = _takes_one_image(physics) and _is_linear_physics(physics)
    require(linear, f"{kind} is not a linear physics (deepinv.physics.LinearPhysics): from_deepinv makes an operator")
    centered = _is_centered(physics, unit_range, complex)
    if y is None:
        physics = physics.clone()
    else:
        image_shape = shape(physics.A_adjoint(y))[1:]
    op = DeepinvOperator(physics, not centered if unit_range is None else unit_range, complex)
    x_shape = (_batch(physics), *(image_shape or _find_image_shape(op)))
    dot_test(op, x_shape, device=_device(physics), tol=ADJOINT_ERROR)
    op.closed_form = _solves(op, x_shape)
    return op


def _takes_one_image(physics: Any) -> bool:
    """Refuse what is no physics, or measures several tensors."""
    kind, classes = type(physics).__name__, deepinv_package().physics
    require(isinstance(physics, classes.Physics), f"{kind} is not a physics (deepinv.physics.Physics)")
    single = not isinstance(physics, classes.StackedPhysics)
    require(single, f"{kind} measures a list of tensors, FIRM's operators measure one: take one of its parts")
    return single


def _is_linear_physics(physics: Any) -> bool:
    return isinstance(physics, deepinv_package().physics.LinearPhysics) and bool(getattr(physics, "linear", True))


def _is_centered(physics: Any, unit_range: bool | None, complex: bool) -> bool:
    centered = complex or isinstance(physics, deepinv_package().physics.mri.MRIMixin)
    possible = not (centered and unit_range)
    require(possible, f"{type(physics).__name__}: real and imaginary parts are not in [0, 1]; pass unit_range=False")
    return centered


def _nonlinear_operator(
    physics: Any, unit_range: bool | None, image_shape: tuple[int, ...] | None, complex: bool
) -> DeepinvNonlinear:
    """The operator of a copy of a physics that is not linear, after `jacobian_test`; see `from_deepinv`."""
    kind, named = type(physics).__name__, getattr(physics, "img_size", None)
    if image_shape is None and isinstance(named, Sequence) and len(named) == 3:
        image_shape = ((2 if complex else 1) * named[0], *named[1:])
    require(image_shape is not None, f"{kind} is not linear: pass image_shape=(C, H, W), the shape of its images")
    assert image_shape is not None
    centered = _is_centered(physics, unit_range, complex)
    op = DeepinvNonlinear(physics.clone(), not centered if unit_range is None else unit_range, complex, image_shape)
    try:
        jacobian_test(op, (_batch(physics), *image_shape), device=_device(physics))
    except (TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"{op}: its A does not take one tensor of images {image_shape}: {error}") from error
    return op


def _find_image_shape(op: DeepinvOperator) -> tuple[int, ...]:
    """Shape of an image that the physics takes, from what it says of its size; 32x32 where it says nothing."""
    physics, scale = op.physics, 2 if op.complex else 1
    shapes: list[tuple[int, ...]] = []
    for attribute in ("img_size", "imsize", "img_width", "mask"):  # the img_size of MultiCoilMRI(mask=m) is not m's
        named = getattr(physics, attribute, None)
        if isinstance(named, Tensor):
            named = named.shape if named.ndim > 3 else None
        if named is not None:
            size = (named, named) if isinstance(named, int) else tuple(named)
            shapes += [(scale * size[0], *size[1:])] if len(size) == 3 else []
            shapes += [(scale * c, *size[-2:]) for c in (3, 1, 2)]
    shapes = shapes or [(scale * c, 32, 32) for c in (3, 1, 2)]
    reasons = []
    for candidate in shapes:
        x = torch.zeros(_batch(physics), *candidate, device=_device(physics))
        try:
            back = op.A_adjoint(op.A(x))
        except (RuntimeError, ValueError, TypeError, AssertionError, IndexError) as error:
            reasons.append(f"{candidate}: {error}")
            continue
        if back.shape == x.shape:
            return candidate
        reasons.append(f"{candidate}: A_adjoint returns images of shape {shape(back)[1:]}")
    raise ValueError(f"{op}: pass image_shape=(C, H, W), the shape of its images; tried " + "; ".join(reasons))


def _solves(op: DeepinvOperator, x_shape: tuple[int, ...]) -> bool:
    """Tell whether the physics has a formula of its own for ``prox_l2`` that holds, for one gamma per sample too.

    Not all do: that of ``Downsampling(filter=None)`` fails because there is no filter.
    """
    if type(op.physics).prox_l2 is deepinv_package().physics.LinearPhysics.prox_l2:
        return False
    device = _device(op.physics)
    trial = DeepinvOperator(op.physics, op.unit_range, op.complex, closed_form=True)
    try:
        prox_test(trial, x_shape, torch.linspace(0.01, 0.2, x_shape[0]), device=device, tol=CLOSED_FORM_RESIDUAL)
    except (RuntimeError, ValueError, TypeError, AttributeError):
        return False
    return True


@functools.cache
def _physics_class() -> Any:
    """The class `as_deepinv` makes; here, because its base is deepinv's."""
    deepinv = deepinv_package()

    class FirmPhysics(deepinv.physics.LinearPhysics):  # type: ignore[misc, name-defined]
        """An operator of FIRM; A_vjp, A_adjoint_A and the norms are those of the base."""

        def __init__(self, op: LinearOperator, sigma: float | Tensor, img_size: tuple[int, ...] | None) -> None:
            super().__init__(img_size=img_size, noise_model=deepinv.physics.GaussianNoise(sigma))
            self.op = op
            self._checked = False

        def A(self, x: Tensor, **kwargs: Any) -> Tensor:
            return self.op.A(x)

        def A_adjoint(self, y: Tensor, **kwargs: Any) -> Tensor:
            return self.op.A_adjoint(y)

        def prox_l2(self, z: Tensor | float | None, y: Tensor, gamma: float | Tensor, **kwargs: Any) -> Tensor:
            """Our data-consistency step with rho = 1/gamma; deepinv's settings of its solver have no effect."""
            if not isinstance(z, Tensor):
                z = torch.full_like(self.op.A_adjoint(y), float(z or 0))
            if isinstance(gamma, Tensor) and gamma.numel() == 1:
                gamma = gamma.reshape(())
            if not (self._checked or has_closed_form(self.op)):
                dot_test(self.op, shape(z), dtype=z.dtype, device=z.device)
            self._checked = True
            return data_consistency(self.op, z, y, 1 / gamma)

        def A_dagger(self, y: Tensor, **kwargs: Any) -> Tensor:
            """Pseudo-inverse: the closed form with gamma = 1e8, as deepinv does it, or deepinv's own iterations."""
            if has_closed_form(self.op):
                return self.prox_l2(None, y, 1e8)
            return super().A_dagger(y, **kwargs)

    return FirmPhysics


def _device(physics: nn.Module) -> torch.device:
    return next((b.device for b in physics.buffers()), torch.device("cpu"))


def _batch(physics: nn.Module) -> int:
    """A batch that the physics takes: 2, or as many as it holds masks, kernels or coil maps."""
    return next((len(b) for b in physics.buffers() if b.ndim >= 4 and len(b) > 1), 2)


def _single(y: Tensor) -> Tensor:
    return y.to(torch.complex64) if y.is_complex() else y.float()
