"""What a file holds: the network, or all of Algorithm 2, as a function of tensors whose sizes are free."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.nn import functional as F

from firm._model import Firm
from firm._sampling import integrate
from firm.operators import Blur, Downsample, Identity, LinearOperator, Mask, Subsample, data_consistency
from firm.scale.fourier import spectrum

KERNEL = 25  # pixels a side: smaller kernels are given with zeros around them
EXTRA_INPUTS = {"previous": ["z"], "context": ["measured", "seen"], "iteration": []}


class Work(nn.Module):
    """What a file computes, with the names and shapes of its inputs; a subclass makes inputs for the trace."""

    names: list[str]
    shapes: dict[str, tuple[Any, ...]]

    def __init__(self, multiple: int) -> None:
        super().__init__()
        self.multiple, self.least = multiple, math.ceil(16 / multiple)
        n = multiple * self.least
        self.sizes = [(2, 2 * n, 3 * n), (1, 3 * n, 2 * n)]  # the first is traced, both are compared

    def example(self, batch: int, height: int, width: int) -> tuple[Tensor, ...]:
        """Inputs for images of a size, drawn from a fixed seed."""
        raise NotImplementedError

    def dynamic(self) -> dict[str, tuple[dict[int, Any], ...]]:
        """What torch.export is told of the sizes: batch, height and width are free."""
        batch, rows, columns = Dim("batch", min=1), Dim("rows", min=self.least), Dim("columns", min=self.least)
        first = self.example(*self.sizes[0])
        B, H, W = self.sizes[0]

        def of(value: Tensor) -> dict[int, Any]:
            free: dict[int, Any] = {0: batch} if value.shape[0] == B else {}
            if value.ndim == 4:
                free |= {
                    2: self.multiple * value.shape[2] // H * rows,
                    3: self.multiple * value.shape[3] // W * columns,
                }
            return free

        return {"inputs": tuple(of(value) for value in first)}


class Network(Work):
    """One call of the estimator R_theta, equation (78)."""

    def __init__(self, estimator: nn.Module, stride: int, channels: int) -> None:
        super().__init__(stride)
        self.estimator, self.channels = estimator, channels
        config = getattr(estimator, "config", {})
        extra = config.get("extra", ())
        images = ["x", "x_t", *(name for key in extra for name in EXTRA_INPUTS[key])]
        scalars = ["t", *(["sigma"] if config.get("noise_level") else []), *(["k"] if "iteration" in extra else [])]
        self.shapes = dict.fromkeys(images, ("batch", channels, "height", "width"))
        self.shapes |= dict.fromkeys(scalars, ("batch",))

    def forward(self, *inputs: Tensor) -> Tensor:
        """Call the network."""
        return self.estimator(*inputs)

    def example(self, batch: int, height: int, width: int) -> tuple[Tensor, ...]:
        """Images in the range of real ones, and times, levels and iterations that occur."""
        g = Generator().manual_seed(0)
        values = {"t": 0.5, "sigma": 0.1, "k": 1.0}
        return tuple(
            torch.full((batch,), values[name]) if name in values
            else 0.5 * torch.randn(batch, self.channels, height, width, generator=g)
            for name in self.shapes
        )  # fmt: skip


class _Spectral:
    """An operator whose kernel is transformed by itself: a trace cannot fold it to a size that is not known."""

    def computed_once(self, what: str, size: Any, source: Tensor, compute: Callable[[], Tensor]) -> Tensor:
        """Compute it, every time: traces are joined, and what is computed twice is found then."""
        return spectrum(source, *size[:2]) if what == "transfer" else compute()


class _Blur(_Spectral, Blur):
    pass


class _Downsample(_Spectral, Downsample):
    pass


class Sampler(Work):
    """All steps of Algorithm 2: measurement, noise, noise level and, where there is one, mask or kernel in."""

    def __init__(self, model: Firm, stride: int, steps: int, task: str, scale: int, filter: str, channels: int) -> None:
        self.scale = scale if task == "super-resolution" else 1
        # Small images have even sides: a trace cannot tell what half of another becomes in the Fourier domain.
        super().__init__(math.lcm(stride, 2 * self.scale if self.scale > 1 else 1))
        self.stride = stride
        self.model, self.steps, self.task, self.filter, self.channels = model, steps, task, filter, channels
        small = "" if self.scale == 1 else f" / {self.scale}"
        image = ("batch", channels, "height", "width")
        self.shapes = {"y": ("batch", channels, f"height{small}", f"width{small}"), "noise": image, "sigma": ("batch",)}
        if task == "inpainting":
            self.shapes["mask"] = ("batch", 1, "height", "width")
        if task == "deblurring":
            self.shapes["kernel"] = (KERNEL, KERNEL)

    def operator(self, *pattern: Tensor) -> LinearOperator:
        """The operator A of these inputs."""
        if self.task == "inpainting":
            return Mask(*pattern, check=False)
        if self.task == "deblurring":
            return _Blur(*pattern, check=False)
        if self.task == "super-resolution":
            plain = self.filter == "stride"
            return Subsample(self.scale) if plain else _Downsample(self.scale, self.filter, check=False)
        return Identity()

    def pieces(self) -> dict[str, Work]:
        """What every step calls again and again, traced by itself: the operator, and the data-consistency step."""
        return {"Measure": _Piece(self, "x"), "Solve": _Piece(self, "z", "y")}

    def forward(self, *inputs: Tensor) -> Tensor:
        """Restore."""
        y, noise, sigma, *pattern = inputs
        return integrate(self.model, self.operator(*pattern), y, noise, self.steps, sigma=sigma)

    def example(self, batch: int, height: int, width: int) -> tuple[Tensor, ...]:
        """A smooth image, measured."""
        g = Generator().manual_seed(0)
        x = F.interpolate(torch.rand(batch, self.channels, 4, 4, generator=g) * 2 - 1, (height, width), mode="bicubic")
        pattern = []
        if self.task == "inpainting":
            pattern = [(torch.rand(batch, 1, height, width, generator=g) > 0.5).float()]
        if self.task == "deblurring":
            distance = torch.arange(KERNEL) - KERNEL // 2
            bell = (-(distance**2) / 2).exp()
            pattern = [torch.outer(bell, bell) / bell.sum() ** 2]
        y = self.operator(*pattern).A(x)
        y = y + 0.05 * torch.randn(y.shape, generator=g)
        return y, torch.randn(x.shape, generator=g), torch.full((batch,), 0.05), *pattern


class _Piece(Work):
    """One call of A, or of the data-consistency step, of a sampler."""

    def __init__(self, sampler: Sampler, *names: str) -> None:
        super().__init__(sampler.multiple)
        self.sampler = sampler
        given = {"x": "noise", "z": "noise", "y": "y"}
        patterns = {key: shape for key, shape in sampler.shapes.items() if key in ("mask", "kernel")}
        self.shapes = {name: sampler.shapes[given[name]] for name in names} | patterns

    def forward(self, *inputs: Tensor) -> Tensor:
        """Measure, or solve."""
        if "x" in self.shapes:
            x, *pattern = inputs
            return self.sampler.operator(*pattern).A(x)
        z, y, *pattern = inputs
        return data_consistency(self.sampler.operator(*pattern), z, y, self.sampler.model.solver.rho)

    def example(self, batch: int, height: int, width: int) -> tuple[Tensor, ...]:
        """Those of the sampler."""
        y, noise, _, *pattern = self.sampler.example(batch, height, width)
        return (noise, *pattern) if "x" in self.shapes else (noise, y, *pattern)


def traced(work: Work) -> ExportedProgram:
    """Trace a piece of work, with free sizes."""
    return torch.export.export(work, work.example(*work.sizes[0]), dynamic_shapes=work.dynamic())
