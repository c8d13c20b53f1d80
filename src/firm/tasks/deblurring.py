"""Gaussian deblurring, with periodic boundaries as in the paper or unknown surroundings as in a photograph."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from firm.operators import Blur, LinearOperator, gaussian_kernel
from firm.tasks._blurs import centered, valid_blur
from firm.tasks.base import BaseTask, Degraded
from firm.tasks.parameter import Parameter
from firm.tasks.rows import Rows


class Deblurring(BaseTask):
    """A Gaussian blur of 61x61 pixels (Section 4)."""

    name, table, picture = "deblurring", 2, "deblurring"
    blur = Parameter(
        float, "standard deviation of the blur, in pixels", lambda shape: 3.0 if min(shape) >= 256 else 1.0,
        low=0, above=True, drawn="uniform",
    )  # fmt: skip
    kernel_size = Parameter(int, "side of the kernel, in pixels", 61, low=1, option="")
    boundary = Parameter(
        str, "circular, the paper's; valid: only pixels whose blur comes from within the image are measured",
        "circular", choices=("circular", "valid"), option="",
    )  # fmt: skip

    def operator(self, seed: int = 42, indices: tuple[int, ...] = (0,)) -> Blur:
        """The blur."""
        kernel = gaussian_kernel(self.kernel_size, self.blur)
        return Blur(kernel) if self.boundary == "circular" else valid_blur(kernel)

    def draw_operator(self, rows: Rows, device: torch.device) -> LinearOperator:
        """A kernel for every sample where the width is a range."""
        if "blur" not in self.ranges:
            return self.constant(device)
        offsets = torch.arange(self.kernel_size, device=device) - self.kernel_size // 2
        row = torch.exp(-offsets.square() / (2 * self.sample("blur", rows, device)[:, None].square()))
        row = row / row.sum(1, keepdim=True)
        kernels = (row[:, :, None] * row[:, None, :])[:, None]
        return Blur(kernels, check=False) if self.boundary == "circular" else valid_blur(kernels)

    @classmethod
    def from_picture(cls, picture: Tensor, settings: dict[str, Any], mask: Tensor | None = None) -> Degraded:
        """The measured part of a larger picture, by a Gaussian or by a kernel of the user's, (h, w).

        What lies around a photograph is unknown: continued by its mirror image, with the paper's periodic boundary, it
        was restored less well (experiments/notes/real_measurements).
        """
        blur, kernel = settings.get("blur"), settings.get("kernel")
        if kernel is not None:
            return _measured(picture, _no_larger_than(picture, kernel), {})
        if blur is None or not 0 < blur <= 10:
            raise ValueError(f"deblurring needs the blur's standard deviation in pixels, above 0 and up to 10: {blur}")
        return _measured(picture, gaussian_kernel(2 * math.ceil(4 * blur) + 1, blur), {"blur": blur})


def _measured(picture: Tensor, kernel: Tensor, settings: dict[str, Any]) -> Degraded:
    return Degraded(valid_blur(kernel), picture, settings, margin=len(kernel) // 2)


def _no_larger_than(picture: Tensor, kernel: Tensor) -> Tensor:
    (H, W), (h, w) = picture.shape[-2:], kernel.shape
    if h > H or w > W:
        raise ValueError(
            f"deblurring: the kernel has {w}x{h} pixels, the picture {W}x{H}: it must not be larger; cut off what is "
            "black around it, as much on all sides"
        )
    return centered(kernel)
