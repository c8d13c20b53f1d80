"""Operators made of others: one after the other, side by side, for each group or run of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from firm._util.checks import require
from firm.operators.base import (
    LinearOperator,
    Operator,
    data_consistency,
    diagonal,
    has_closed_form,
    is_linear,
    name,
    projected,
    shape,
)
from firm.operators.blur import Blur
from firm.operators.mask import Identity, Mask
from firm.operators.subsample import Downsample, Subsample


class _Joined(Operator):
    """Base of operators made of several: it holds all of them, and moves those that are modules between devices."""

    def __init__(self, ops: Sequence[LinearOperator], like: object = None) -> None:
        super().__init__(like)
        require(ops, f"{type(self).__name__}: give at least one operator")
        self.ops = list(ops)
        self.registered = nn.ModuleList(op for op in ops if isinstance(op, nn.Module))  # others keep their device
        self.linear = all(map(is_linear, ops))


def _require_linear(kind: str, ops: Sequence[LinearOperator]) -> None:
    wrong = [name(op) for op in ops if not is_linear(op)]
    instead = "make one function of all parts, and firm.operators.nonlinear(function) an operator of it"
    require(not wrong, f"{kind}: {', '.join(wrong)} is not linear; {instead}")


class Compose(_Joined):
    """The product of operators, in the order of the mathematics: ``Compose(B, A)`` is x -> B(A(x)).

    A product that is again an operator of this package with a closed form is carried out as that one: circular blurs
    are one `Blur` with the convolved kernel, ``Subsample`` after a circular ``Blur`` is `Downsample`, and an
    `Identity` falls away. With any other product conjugate gradients solve.
    """

    def __init__(self, *ops: LinearOperator) -> None:
        _require_linear("Compose", ops)
        merged = list(ops[-1:])
        for op in reversed(ops[:-1]):
            product = _product(op, merged[0])
            merged = [op, *merged] if product is None else [product, *merged[1:]]
        super().__init__(merged, like=merged[0] if len(merged) == 1 else None)
        self.label = f"Compose({', '.join(name(op) for op in ops)})"

    def A(self, x: Tensor) -> Tensor:
        """Apply the last operator first."""
        for op in reversed(self.ops):
            x = op.A(x)
        return x

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Apply the adjoint of the first operator first: (B A)' = A' B'."""
        for op in self.ops:
            y = op.A_adjoint(y)
        return y

    @property
    def closed_form(self) -> bool:
        """True where the product is one operator that has one."""
        return len(self.ops) == 1 and has_closed_form(self.ops[0])

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """The closed form of the product, or conjugate gradients."""
        return _prox(self.ops[0], z, y, gamma) if self.closed_form else super().prox_l2(z, y, gamma)

    def diagonal(self, y: Tensor) -> Tensor | None:
        """That of the product where it is one operator."""
        return diagonal(self.ops[0], y) if len(self.ops) == 1 else None

    def __repr__(self) -> str:
        return self.label


class Stack(_Joined):
    """Several measurements of one image: A x = (A_1 x, A_2 x, ...), flattened to real numbers, (B, M).

    `Mask` and `Identity` together have a closed form, elementwise with the sum of m_i^2; so have circular `Blur` and
    `Identity`, in the Fourier domain with the sum of |Lambda_i|^2. With any other stack conjugate gradients solve.
    ``pack([y_1, y_2, ...])`` makes one tensor of measurements that came separately.

    Parameters
    ----------
    ops
        The operators, on real images.
    image_shape
        Shape of one image, such as (C, H, W): the adjoint cannot tell it from the flat measurement.
    """

    def __init__(self, *ops: LinearOperator, image_shape: tuple[int, ...]) -> None:
        _require_linear("Stack", ops)
        super().__init__(ops)
        self.image_shape = tuple(image_shape)
        self._like: list[Tensor] = []  # what each part measures of an image; known once a measurement is taken apart

    def A(self, x: Tensor) -> Tensor:
        """Measure with each operator; (B, C, H, W) to (B, M)."""
        if x.shape[1:] != self.image_shape:
            raise ValueError(f"{self}: x has shape {shape(x)}, expected {(len(x), *self.image_shape)}")
        return self.pack([op.A(x) for op in self.ops])

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Sum the adjoints of all parts; (B, M) to (B, C, H, W)."""
        parts = zip(self.ops, self.unpack(y), strict=True)
        return torch.stack([op.A_adjoint(part) for op, part in parts]).sum(0)

    @property
    def closed_form(self) -> bool:
        """True where A'A is diagonal in the pixels or in the Fourier domain."""
        kinds = {type(op) for op in self.ops}
        return kinds <= {Identity, Mask} or (kinds <= {Identity, Blur} and all(map(has_closed_form, self.ops)))

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """(gamma A'A + I)^-1 (gamma A'y + z), by division where A'A is diagonal, or by conjugate gradients."""
        if not self.closed_form:
            return super().prox_l2(z, y, gamma)
        b = gamma * self.A_adjoint(y) + z
        if not any(isinstance(op, Blur) for op in self.ops):
            return b / (gamma * sum(op.mask.square() if isinstance(op, Mask) else 1 for op in self.ops) + 1)
        power = sum(op.transfer(z).abs().square() if isinstance(op, Blur) else 1 for op in self.ops)
        return torch.fft.irfft2(torch.fft.rfft2(b) / (gamma * power + 1), s=(z.shape[-2], z.shape[-1]))

    def pack(self, measurements: list[Tensor]) -> Tensor:
        """Join the measurements of the operators, (B, ...), into one tensor (B, M)."""
        return torch.cat([_flatten(y) for y in measurements], dim=1)

    def unpack(self, y: Tensor) -> list[Tensor]:
        """Take one tensor (B, M) apart again: the inverse of `pack`."""
        if not self._like:
            x = torch.zeros(len(y), *self.image_shape, dtype=y.dtype, device=y.device)
            self._like = [_like(op.A(x)) for op in self.ops]
        lengths = [_length(like) for like in self._like]
        if y.shape[1:] != (sum(lengths),):
            raise ValueError(f"{self}: y has shape {shape(y)}, expected {(len(y), sum(lengths))}")
        return [_unflatten(part, like) for part, like in zip(y.split(lengths, dim=1), self._like, strict=True)]

    def __repr__(self) -> str:
        return f"Stack({', '.join(name(op) for op in self.ops)}, image_shape={self.image_shape})"


def group(parts: Sequence[tuple[LinearOperator, Tensor]]) -> tuple[_Grouped, Tensor]:
    """Join operators and their measurements (B_i, ...) into one operator and one tensor of measurements (B, M).

    The measurements may differ in shape and be complex: each is flattened, as real numbers, and padded with zeros.
    Any operator will do, with a closed form or without. One network call then serves many tasks.
    """
    grouped = _Grouped([op for op, _ in parts], [y for _, y in parts])
    return grouped, grouped.pack([y for _, y in parts])


class _Grouped(_Joined):
    """The first samples of a batch belong to the first operator, the next to the second, and so on; see `group`."""

    def __init__(self, ops: Sequence[LinearOperator], measurements: Sequence[Tensor]) -> None:
        super().__init__(ops)
        self.sizes = [len(y) for y in measurements]
        self.like = [_like(y) for y in measurements]
        self.length = max(map(_length, self.like))

    def A(self, x: Tensor) -> Tensor:
        """Measure each group with its operator; (B, C, H, W) to (B, M)."""
        return self.pack([op.A(part) for op, part in zip(self.ops, self._split(x), strict=True)])

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Apply each group's adjoint; (B, M) to (B, C, H, W)."""
        return torch.cat([op.A_adjoint(part) for op, part in zip(self.ops, self.unpack(y), strict=True)])

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """Each group's own closed form, or conjugate gradients where it has none."""
        gammas = self._split(gamma) if isinstance(gamma, Tensor) and gamma.ndim else [gamma] * len(self.ops)
        groups = zip(self.ops, self._split(z), self.unpack(y), gammas, strict=True)
        return torch.cat([_prox(*group) for group in groups])

    def project(self, x: Tensor, y: Tensor) -> Tensor:
        """Bring each group to what its measurements say without any doubt."""
        groups = zip(self.ops, self._split(x), self.unpack(y), strict=True)
        return torch.cat([projected(*group) for group in groups])

    def pack(self, measurements: Sequence[Tensor]) -> Tensor:
        """Join the measurements of the groups, (B_i, ...), into one tensor (B, M)."""
        return torch.cat([F.pad(y, (0, self.length - y.shape[1])) for y in map(_flatten, measurements)])

    def unpack(self, y: Tensor) -> list[Tensor]:
        """Take one tensor (B, M) apart again: the inverse of `pack`."""
        parts = zip(self._split(y), self.like, strict=True)
        return [_unflatten(part[:, : _length(like)], like) for part, like in parts]

    def _split(self, x: Tensor) -> list[Tensor]:
        return list(x.split(self.sizes))


class Repeated(Operator):
    """The operator of B images, applied to n B of them, run by run, so that masks of single samples fit."""

    def __init__(self, op: LinearOperator, batch: int) -> None:
        super().__init__(like=op)
        self.op: Any = op
        self.batch = batch
        self.linear = is_linear(op)

    def A(self, x: Tensor) -> Tensor:
        """Measure every run of images."""
        return torch.cat([self.op.A(part) for part in x.split(self.batch)])

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Apply the adjoint to every run of measurements."""
        return torch.cat([self.op.A_adjoint(part) for part in y.split(self.batch)])

    @property
    def closed_form(self) -> bool:
        """True where the operator of one run has one; if not, conjugate gradients solve all linear runs together."""
        return has_closed_form(self.op)

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """The closed form of every run, or conjugate gradients."""
        if self.linear and not self.closed_form:
            return super().prox_l2(z, y, gamma)
        runs = len(z) // self.batch
        gammas = gamma.split(self.batch) if isinstance(gamma, Tensor) and gamma.ndim else [gamma] * runs
        parts = zip(z.split(self.batch), y.split(self.batch), gammas, strict=True)
        return torch.cat([self.op.prox_l2(z_i, y_i, gamma_i) for z_i, y_i, gamma_i in parts])

    def precondition(self, r: Tensor, rho: Tensor) -> Tensor:
        """That of every run."""
        if not isinstance(self.op, Operator):
            return r
        runs = list(zip(r.split(self.batch), rho.expand(len(r), *rho.shape[1:]).split(self.batch), strict=True))
        parts = [self.op.precondition(part, of_part) for part, of_part in runs]
        return r if parts[0] is runs[0][0] else torch.cat(parts)

    def diagonal(self, y: Tensor) -> Tensor | None:
        """That of one run for every run."""
        runs = [diagonal(self.op, part) for part in y.split(self.batch)]
        found = [d for d in runs if d is not None]
        if not found or found[0].ndim < y.ndim or len(found[0]) == 1:
            return found[0] if found else None
        return torch.cat(found)

    def project(self, x: Tensor, y: Tensor) -> Tensor:
        """Bring every run to what the measurements say without any doubt."""
        parts = zip(x.split(self.batch), y.split(self.batch), strict=True)
        return torch.cat([projected(self.op, x_i, y_i) for x_i, y_i in parts])

    def __repr__(self) -> str:
        return name(self.op)  # messages are about the user's operator


def _flatten(y: Tensor) -> Tensor:
    """Measurements (B, ...) as rows of real numbers, (B, length)."""
    return (torch.view_as_real(y.resolve_conj()) if y.is_complex() else y).flatten(1)


def _like(y: Tensor) -> Tensor:
    """Shape and type of one sample's measurement, without its values."""
    return torch.empty(y.shape[1:], dtype=y.dtype, device="meta")


def _length(like: Tensor) -> int:
    """Count the real numbers of such a measurement."""
    return like.numel() * (2 if like.is_complex() else 1)


def _unflatten(flat: Tensor, like: Tensor) -> Tensor:
    """The inverse of `_flatten`: (B, length) to (B, ...)."""
    if not like.is_complex():
        return flat.reshape(len(flat), *like.shape)
    pairs = flat.reshape(len(flat), *like.shape, 2)
    return torch.complex(pairs[..., 0], pairs[..., 1])  # view_as_complex wants even strides


def _prox(op: LinearOperator, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
    """The operator's own closed form, given gamma itself, or conjugate gradients."""
    if not has_closed_form(op):
        return data_consistency(op, z, y, 1 / gamma)
    closed: Any = op
    x: Tensor = closed.prox_l2(z, y, gamma)
    return x


def _product(outer: LinearOperator, inner: LinearOperator) -> LinearOperator | None:
    """x -> outer(inner(x)) as one operator, or None."""
    if type(outer) is Identity:
        return inner
    if type(inner) is Identity:
        return outer
    if not (type(inner) is Blur and inner.boundary == "circular"):
        return None
    if type(outer) is Blur and outer.boundary == "circular":
        return Blur(_convolved(outer, inner), check=False)
    if type(outer) is Subsample and outer.image_size is None:
        return Downsample(outer.factor, inner.kernel, check=False)
    return None


def _convolved(a: Blur, b: Blur) -> Tensor:
    """The kernel of a after b, with its center where `Blur` has it."""
    batches = {len(op.kernel) for op in (a, b) if op.kernel.ndim == 4} - {1}
    require(len(batches) < 2, f"Compose: {a} and {b} have kernels for different numbers of samples")
    # h + h' - 1 pixels; two even sides take a zero more, or the center would lie at (h + h') // 2 - 1.
    size = [m + n - (m % 2 or n % 2) for m, n in zip(shape(a.kernel)[-2:], shape(b.kernel)[-2:], strict=True)]
    spectrum = torch.fft.rfft2(a.kernel.double(), s=size) * torch.fft.rfft2(b.kernel.double(), s=size)
    return torch.fft.irfft2(spectrum, s=size).to(torch.promote_types(a.kernel.dtype, b.kernel.dtype))
