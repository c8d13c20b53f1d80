"""Motion deblurring, beyond the paper: the camera moved along a straight line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from firm.operators import Blur, motion_kernel, motion_kernels
from firm.tasks.base import BaseTask
from firm.tasks.deblurring import valid_blur
from firm.tasks.parameter import Parameter

LONGEST = 101  # pixels, of a picture's motion


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
        """One kernel for every sample."""
        longest = max([self.length, *self.ranges.get("length", ())])  # of a range, validation takes the default
        return valid_blur(motion_kernels(_side(longest), values["length"], values["angle"]))

    @classmethod
    def from_picture(
        cls, picture: Tensor, settings: Mapping[str, Any], given: Tensor | None = None
    ) -> tuple[Blur, Tensor, int]:
        """The picture is the measured part of a larger one, whose rim is restored too and cut off."""
        side = _side(settings["length"])
        return valid_blur(motion_kernel(side, settings["length"], settings["angle"])), picture, side // 2


def _side(length: float) -> int:
    """Of the kernel for a motion of this length: odd, so that it has a center."""
    return 2 * math.ceil(length / 2) + 1
