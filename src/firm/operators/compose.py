"""Operators made of others: one after the other, or side by side."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from firm.operators.base import LinearOperator, Operator, Prox
from firm.operators.blur import Blur
from firm.operators.cg import MAX_ITERATIONS
from firm.operators.checks import name, require_shape, shape
from firm.operators.downsample import Downsample
from firm.operators.identity import Identity
from firm.operators.mask import Mask
from firm.operators.packing import Layout, flatten
from firm.operators.subsample import Subsample


class Compose(Operator):
    """The product of operators, in the order of the mathematics: ``Compose(B, A)`` is x -> B(A(x)).

    A product that is again an operator of this package with a closed form is carried out as that one: circular blurs
    are one `Blur` with the convolved kernel, ``Subsample`` after a circular ``Blur`` is `Downsample`, and an
    `Identity` falls away. Any other product has no ``prox_l2``, so that conjugate gradients are used.
    """

    def __init__(self, *ops: LinearOperator) -> None:
        super().__init__()
        if not ops:
            raise ValueError("Compose: give at least one operator")
        self.label = f"Compose({', '.join(name(op) for op in ops)})"
        merged = list(ops[-1:])
        for op in reversed(ops[:-1]):
            product = _product(op, merged[0])
            merged = [op, *merged] if product is None else [product, *merged[1:]]
        self.ops = merged
        if len(merged) == 1:  # its limits on conjugate gradients, too
            self.cg_tol = getattr(merged[0], "cg_tol", None)
            self.cg_iterations = getattr(merged[0], "cg_iterations", MAX_ITERATIONS)
        self.registered = nn.ModuleList(op for op in merged if isinstance(op, nn.Module))  # others keep their device

    def A(self, x: Tensor) -> Tensor:
        """Apply the last operator first."""
        for op in reversed(self.ops):
            x = op.A(x)
        return x

    def A_adjoint(self, y: Tensor) -> Tensor:
        """(B A)' = A' B'."""
        for op in self.ops:
            y = op.A_adjoint(y)
        return y

    @property
    def prox_l2(self) -> Prox:
        """The closed form of the product, if it is one operator that has it."""
        if len(self.ops) > 1:
            raise AttributeError(f"{self} has no closed form")
        prox: Prox = self.ops[0].prox_l2  # type: ignore[attr-defined]
        return prox

    def __repr__(self) -> str:
        return self.label


class Stack(Operator):
    """Several measurements of one image: A x = (A_1 x, A_2 x, ...), flattened to real numbers, (B, M).

    `Mask` and `Identity` together have a closed form, elementwise with the sum of m_i^2; so have circular `Blur` and
    `Identity`, in the Fourier domain with the sum of |Lambda_i|^2. Any other stack has no ``prox_l2``, so that
    conjugate gradients are used. ``pack([y_1, y_2, ...])`` makes one tensor of measurements that came separately.

    Parameters
    ----------
    ops
        The operators, on real images.
    image_shape
        Shape of one image, such as (C, H, W): the adjoint cannot tell it from the flat measurement.
    """

    def __init__(self, *ops: LinearOperator, image_shape: tuple[int, ...]) -> None:
        super().__init__()
        if not ops:
            raise ValueError("Stack: give at least one operator")
        self.ops = list(ops)
        self.registered = nn.ModuleList(op for op in ops if isinstance(op, nn.Module))  # others keep their device
        self.image_shape = tuple(image_shape)
        self._layouts: list[Layout] = []  # known after the first measurement

    def A(self, x: Tensor) -> Tensor:
        """Measure with each operator."""
        require_shape(self, "x", x, (len(x), *self.image_shape))
        measurements = [op.A(x) for op in self.ops]
        self._layouts = [Layout.of(y) for y in measurements]
        return self.pack(measurements)

    def A_adjoint(self, y: Tensor) -> Tensor:
        """The sum of the adjoints."""
        parts = zip(self.ops, self.unpack(y), strict=True)
        return torch.stack([op.A_adjoint(part) for op, part in parts]).sum(0)

    @property
    def prox_l2(self) -> Prox:
        """(gamma A'A + I)^-1 (gamma A'y + z) where A'A is diagonal in the pixels or in the Fourier domain."""
        kinds = {type(op) for op in self.ops}
        if kinds <= {Identity, Mask}:
            return self._divide_pixels
        if kinds <= {Identity, Blur} and all(hasattr(op, "prox_l2") for op in self.ops):
            return self._divide_frequencies
        raise AttributeError(f"{self} has no closed form")

    def _divide_pixels(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        power = sum(op.mask.square() if isinstance(op, Mask) else 1 for op in self.ops)
        return (gamma * self.A_adjoint(y) + z) / (gamma * power + 1)

    def _divide_frequencies(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        power = sum(op.transfer(z).abs().square() if isinstance(op, Blur) else 1 for op in self.ops)
        spectrum = torch.fft.rfft2(gamma * self.A_adjoint(y) + z) / (gamma * power + 1)
        return torch.fft.irfft2(spectrum, s=(z.shape[-2], z.shape[-1]))

    def pack(self, measurements: list[Tensor]) -> Tensor:
        """Measurements of the operators, (B, ...), as one tensor (B, M)."""
        return torch.cat([flatten(y) for y in measurements], dim=1)

    def unpack(self, y: Tensor) -> list[Tensor]:
        """The inverse of `pack`."""
        if not self._layouts:
            self.A(torch.zeros(len(y), *self.image_shape, dtype=y.dtype, device=y.device))
        lengths = [layout.length for layout in self._layouts]
        require_shape(self, "y", y, (len(y), sum(lengths)))
        parts = zip(self._layouts, y.split(lengths, dim=1), strict=True)
        return [layout.unflatten(part) for layout, part in parts]

    def __repr__(self) -> str:
        return f"Stack({', '.join(name(op) for op in self.ops)}, image_shape={self.image_shape})"


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
    if len(batches) > 1:
        raise ValueError(f"Compose: {a} and {b} have kernels for different numbers of samples")
    # h + h' - 1 pixels; two even sides take a zero more, or the center would lie at (h + h') // 2 - 1.
    size = [m + n - (m % 2 or n % 2) for m, n in zip(shape(a.kernel)[-2:], shape(b.kernel)[-2:], strict=True)]
    spectrum = torch.fft.rfft2(a.kernel.double(), s=size) * torch.fft.rfft2(b.kernel.double(), s=size)
    return torch.fft.irfft2(spectrum, s=size).to(torch.promote_types(a.kernel.dtype, b.kernel.dtype))
