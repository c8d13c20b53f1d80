"""The named tasks of the paper: an operator and a noise level for an image side, and measurements with a seed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import torch
from torch import Generator, Tensor

from firm.operators import (
    Blur,
    Fourier,
    Identity,
    Mask,
    Operator,
    Subsample,
    box_mask,
    cartesian_mask,
    gaussian_kernel,
    random_mask,
    stroke_mask,
)

TaskName = Literal[
    "denoising", "deblurring", "super-resolution", "random-inpainting", "box-inpainting", "fourier", "stroke-inpainting"
]
TASKS: tuple[TaskName, ...] = (  # the five of the paper's tables
    "denoising", "deblurring", "super-resolution", "random-inpainting", "box-inpainting",
)  # fmt: skip
PARAMETERS: dict[str, tuple[str, ...]] = {  # which settings a task has, beside sigma
    "denoising": (),
    "deblurring": ("blur", "kernel_size"),
    "super-resolution": ("factor",),
    "random-inpainting": ("missing", "mask"),
    "box-inpainting": ("box",),
    "fourier": ("lines", "mask"),
    "stroke-inpainting": ("strokes", "width", "mask"),  # ours: scratches and writing
}
PROTOCOL_SEED = 42  # of the mask that all images share


@dataclass(frozen=True)
class Task:
    """A restoration task. What is left None takes the paper's value for the image side (Section 4 and Appendix E).

    Parameters
    ----------
    name
        "denoising", "deblurring", "super-resolution", "random-inpainting", "box-inpainting" or "fourier"; and, beyond
        the paper, "stroke-inpainting".
    size
        Image side, or (height, width). The paper's settings are those of 128 (CelebA) and 256 (AFHQ); other sides
        (the shorter one) take those of 128 below 256 and those of 256 from there on, the box and the lines in
        proportion.
    sigma
        Noise standard deviation, in units of images in [-1, 1]. For "fourier", of complex noise.
    blur, kernel_size
        Standard deviation in pixels and side of the Gaussian kernel ("deblurring").
    factor
        Stride ("super-resolution").
    missing
        Share of pixels dropped ("random-inpainting").
    box
        Side of the centred hole ("box-inpainting").
    lines
        k-space lines kept, of `size` ("fourier").
    strokes, width
        Number of straight strokes that are missing, and their width in pixels ("stroke-inpainting").
    mask
        "shared": every image has the mask that the protocol draws with seed 42. "fresh": every image its own.
    """

    name: TaskName
    size: int | tuple[int, int] = 128
    sigma: float | None = None
    blur: float | None = None
    kernel_size: int | None = None
    factor: int | None = None
    missing: float | None = None
    box: int | None = None
    lines: int | None = None
    strokes: int | None = None
    width: float | None = None
    mask: Literal["shared", "fresh"] | None = None

    def __post_init__(self) -> None:
        if self.name not in PARAMETERS:
            raise ValueError(f"no task {self.name!r}; there are {', '.join(PARAMETERS)}")
        if min(self.shape) < 1:
            raise ValueError(f"Task: size must be at least 1, got {self.size}")
        allowed = {"name", "size", "sigma", *PARAMETERS[self.name]}
        given = {f.name for f in fields(self) if getattr(self, f.name) is not None}
        if given - allowed:
            raise ValueError(f"the task {self.name} has no setting {', '.join(sorted(given - allowed))}")
        for key, value in self._paper().items():
            if key in allowed and getattr(self, key) is None:
                object.__setattr__(self, key, value)
        assert self.sigma is not None
        if not 0 <= self.sigma < float("inf"):
            raise ValueError(f"Task: sigma must be 0 or more, got {self.sigma}")
        if self.missing is not None and not 0 <= self.missing < 1:
            raise ValueError(f"Task: missing is the share of pixels dropped, in [0, 1), got {self.missing}")
        if self.mask not in (None, "shared", "fresh"):
            raise ValueError(f'Task: mask must be "shared" or "fresh", got {self.mask!r}')

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the images."""
        return (self.size, self.size) if isinstance(self.size, int) else self.size

    def _paper(self) -> dict[str, object]:
        side, width = min(self.shape), self.shape[1]
        large = side >= 256
        lines = max(1, round(width * 56 / 256))
        own = {"denoising": 0.2, "random-inpainting": 0.01, "stroke-inpainting": 0.01, "fourier": 0.002}
        return dict(
            sigma=own.get(self.name, 0.05), strokes=8, width=side * 6 / 128, blur=3.0 if large else 1.0,
            kernel_size=61, factor=4 if large else 2, missing=0.7,
            box=max(1, round(side * 40 / 128)), mask="shared",
            lines=lines if width % 2 == 0 else lines // 2 * 2 + 1,  # an odd width has an odd number of symmetric lines
        )  # fmt: skip

    def operator(self, seed: int = 42, indices: tuple[int, ...] = (0,)) -> Operator:
        """The forward operator for images with these `indices`; only fresh masks depend on seed and indices."""
        if self.name == "denoising":
            return Identity()
        if self.name == "deblurring":
            assert self.kernel_size is not None
            assert self.blur is not None
            return Blur(gaussian_kernel(self.kernel_size, self.blur))
        if self.name == "super-resolution":
            assert self.factor is not None
            whole = all(n % self.factor == 0 for n in self.shape)
            return Subsample(self.factor, None if whole else self.shape)
        if self.name == "box-inpainting":
            assert self.box is not None
            return Mask(box_mask(self.shape, self.box))
        if self.mask == "shared":
            masks = self._mask(Generator().manual_seed(PROTOCOL_SEED), protocol=True)
        else:
            masks = torch.stack([self._mask(generator_for(seed, i, "mask")) for i in indices])[:, None]
        return Fourier(masks) if self.name == "fourier" else Mask(masks)

    def _mask(self, generator: Generator, protocol: bool = False) -> Tensor:
        if self.name == "fourier":
            assert self.lines is not None
            return cartesian_mask(self.shape, self.lines, generator)
        if self.name == "stroke-inpainting":
            assert self.strokes is not None
            assert self.width is not None
            return stroke_mask(self.shape, self.strokes, self.width, generator)
        assert self.missing is not None
        if protocol:  # NumPy's legacy generator, as the reference code draws it: 4827 of 128x128 pixels kept
            drawn = np.random.RandomState(PROTOCOL_SEED).binomial(1, 1 - self.missing, self.shape)
            return torch.from_numpy(drawn).float()
        return random_mask(self.shape, 1 - self.missing, generator)

    def measure(self, x: Tensor, seed: int = 42, index: int = 0) -> tuple[Operator, Tensor]:
        """Measure images `x` (B, C, H, W): the operator, and y = A x + sigma noise, on the device of `x`.

        Image i of the batch has the number ``index + i`` in its data set. Its noise (and its mask, if fresh) depend on
        seed and number alone: they are drawn on the CPU, one image at a time, so batches and devices do not matter.
        """
        if x.ndim != 4 or x.shape[-2:] != self.shape:
            raise ValueError(
                f"Task: images of shape {tuple(x.shape)}, expected (B, C, {self.shape[0]}, {self.shape[1]})"
            )
        assert self.sigma is not None
        indices = tuple(range(index, index + len(x)))
        measured = []
        for i, image in zip(indices, x.cpu(), strict=True):
            clean = self.operator(seed, (i,)).to(x.dtype).A(image[None])
            # complex noise has variance sigma^2 in all, half of it in each part
            noise = torch.randn(clean.shape, dtype=clean.dtype, generator=generator_for(seed, i, "noise"))
            measured.append(clean + self.sigma * noise)
        return self.operator(seed, indices).to(x.device, x.dtype), torch.cat(measured).to(x.device)


def generator_for(seed: int, index: int, purpose: str) -> Generator:
    """A CPU generator for one image and one purpose; torch seeds it with 32 bits, so the key is hashed to them."""
    digest = hashlib.sha256(f"{seed}/{index}/{purpose}".encode()).digest()
    return Generator().manual_seed(int.from_bytes(digest[:4], "little"))
