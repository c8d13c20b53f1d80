"""Deblurring: of a Gaussian, with periodic boundaries as in the paper or unknown surroundings; and of a motion."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from firm._util.checks import require
from firm.operators import Blur, LinearOperator, gaussian_kernel, motion_kernel, motion_kernels
from firm.tasks.base import BaseTask, Rows
from firm.tasks.parameter import Parameter

ITERATIONS = 10  # more change restored images by less than 0.1 dB (experiments/motion_blur)
LONGEST = 101  # pixels, of a picture's motion


def valid_blur(kernel: Tensor) -> Blur:
    """Make the blur of a photograph, whose surroundings are unknown; its kernel is (h, w), or (B, 1, h, w).

    Conjugate gradients solve with it. Testing whether they have converged waits for a GPU, so they make a fixed number
    of iterations. Then a training step fits into a CUDA graph. The kernel's values are not checked for the same reason.
    """
    op = Blur(kernel, boundary="valid", check=False)
    op.cg_tol, op.cg_iterations = 0, ITERATIONS
    return op


class Deblurring(BaseTask):
    """A Gaussian blur of 61x61 pixels (Section 4)."""

    name, table, picture, picture_file = "deblurring", 2, "deblurring", "kernel"
    blur = Parameter(
        float, "standard deviation of the blur, in pixels", lambda shape: 3.0 if min(shape) >= 256 else 1.0,
        low=0, above=True, drawn="uniform", picture={"high": 10},
    )  # fmt: skip
    kernel_size = Parameter(int, "side of the kernel, in pixels", 61, low=1, option="")
    boundary = Parameter(
        str, "circular, the paper's; valid: only pixels whose blur comes from within the image are measured",
        "circular", choices=("circular", "valid"), option="",
    )  # fmt: skip

    def operator(self, seed: int = 42, indices: tuple[int, ...] = (0,)) -> Blur:
        """Return the blur."""
        kernel = gaussian_kernel(self.kernel_size, self.blur)
        return Blur(kernel) if self.boundary == "circular" else valid_blur(kernel)

    def draw_operator(self, rows: Rows, device: torch.device) -> LinearOperator:
        """Draw a kernel for every sample where the width is a range."""
        if "blur" not in self.ranges:
            return self.constant(device)
        offsets = torch.arange(self.kernel_size, device=device) - self.kernel_size // 2
        row = torch.exp(-offsets.square() / (2 * self.sample("blur", rows, device)[:, None].square()))
        row = row / row.sum(1, keepdim=True)
        kernels = (row[:, :, None] * row[:, None, :])[:, None]
        return Blur(kernels, check=False) if self.boundary == "circular" else valid_blur(kernels)

    @classmethod
    def from_picture(
        cls, picture: Tensor, settings: Mapping[str, Any], given: Tensor | None = None
    ) -> tuple[Blur, Tensor, int]:
        """Take the picture for the measured part of a larger one, blurred by a Gaussian or the kernel that was `given`.

        What lies around a photograph is unknown: continued by its mirror image, with the paper's periodic boundary, it
        was restored less well (experiments/notes/real_measurements).
        """
        if given is None:
            kernel = gaussian_kernel(2 * math.ceil(4 * settings["blur"]) + 1, settings["blur"])
        else:
            (H, W), (h, w) = picture.shape[-2:], given.shape
            require(
                h <= H and w <= W,
                f"deblurring: the kernel has {w}x{h} pixels, the picture {W}x{H}: it must not be larger; cut off what "
                "is black around it, as much on all sides",
            )
            kernel = _centered(given)
        return valid_blur(kernel), picture, len(kernel) // 2


def _centered(kernel: Tensor) -> Tensor:
    """Return a kernel (h, w) without its outer zeros, in an odd square; its center (h // 2, w // 2) stays in place."""
    (h, w), (rows, columns) = kernel.shape, kernel.nonzero().unbind(1)
    reach = int(torch.cat([rows - h // 2, columns - w // 2]).abs().max())
    around = F.pad(kernel, (reach,) * 4)
    return around[h // 2 : h // 2 + 2 * reach + 1, w // 2 : w // 2 + 2 * reach + 1]


class MotionDeblurring(BaseTask):
    """Motion blur of a photograph: what lies outside the measured pixels is not known, and is not made up either.

    Only pixels whose blur comes from within the image are measured. The kernel holds the longest motion of the task.
    """

    name, picture = "motion-deblurring", "motion-deblurring"
    length = Parameter(
        float, "length of the motion, in pixels", lambda shape: max(1.0, min(11.0, min(shape) // 8)),
        low=1, high=LONGEST, drawn="uniform", picture={},
    )  # fmt: skip
    angle = Parameter(
        float, "direction of the motion, in degrees from horizontal", 30.0, low=0, high=180, drawn="uniform", picture={}
    )

    def build(self, values: Mapping[str, Tensor]) -> Blur:
        """Make one kernel for every sample."""
        longest = max([self.length, *self.ranges.get("length", ())])  # of a range, validation takes the default
        return valid_blur(motion_kernels(_side(longest), values["length"], values["angle"]))

    @classmethod
    def from_picture(
        cls, picture: Tensor, settings: Mapping[str, Any], given: Tensor | None = None
    ) -> tuple[Blur, Tensor, int]:
        """Take the picture for the measured part of a larger one, whose rim is restored too and cut off."""
        side = _side(settings["length"])
        return valid_blur(motion_kernel(side, settings["length"], settings["angle"])), picture, side // 2


def _side(length: float) -> int:
    """Return the side of the kernel for a motion of this length: odd, so that it has a center."""
    return 2 * math.ceil(length / 2) + 1
