"""Super-resolution: stride subsampling without a prefilter."""

from __future__ import annotations

from torch import Tensor

from firm.operators.base import Operator
from firm.operators.checks import name, require_image, require_shape, shape


class Subsample(Operator):
    """A x keeps the pixels whose row and column are multiples of `factor`; (B, C, H, W) to (B, C, H/s, W/s).

    Parameters
    ----------
    factor
        The stride s >= 1.
    image_size
        (H, W) of the images. Needed only where H or W is not a multiple of `factor`: the adjoint cannot tell it
        from the measurement.
    """

    def __init__(self, factor: int, image_size: tuple[int, int] | None = None) -> None:
        super().__init__()
        if int(factor) != factor or factor < 1:
            raise ValueError(f"Subsample: factor must be a whole number >= 1, got {factor}")
        self.factor = int(factor)
        self.image_size = image_size

    def A(self, x: Tensor) -> Tensor:
        """Keep every `factor`-th row and column."""
        require_image(self, x)
        size = self._image_size(self._keep(x))
        if shape(x)[-2:] != size:
            raise ValueError(
                f"{name(self)}: images of shape {shape(x)} where {size[0]}x{size[1]} is expected; sides that are "
                f"no multiple of {self.factor} need Subsample({self.factor}, image_size=({x.shape[-2]}, {x.shape[-1]}))"
            )
        return self._keep(x)

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Put the values back on their grid, zeros between."""
        require_image(self, y)
        x = y.new_zeros(*y.shape[:2], *self._image_size(y))
        require_shape(self, "y", y, shape(self._keep(x)))
        self._keep(x).copy_(y)
        return x

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """The inpainting update on the sampled grid: (y + rho z) / (1 + rho) there, z elsewhere; rho = 1/gamma."""
        require_image(self, z)
        seen = self._keep(z)
        require_shape(self, "y", y, shape(seen))
        x = z.clone()
        self._keep(x).copy_((gamma * y + seen) / (gamma + 1))
        return x

    def _keep(self, x: Tensor) -> Tensor:
        return x[..., :: self.factor, :: self.factor]

    def _image_size(self, y: Tensor) -> tuple[int, int]:
        return self.image_size or (y.shape[-2] * self.factor, y.shape[-1] * self.factor)

    def extra_repr(self) -> str:
        """Show the factor."""
        return f"{self.factor}" + (f", image_size={self.image_size}" if self.image_size else "")
