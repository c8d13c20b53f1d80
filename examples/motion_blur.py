"""A task of one's own: straight motion blur of photographs."""

from firm.operators import Blur, motion_kernels
from firm.tasks import BaseTask, Parameter


class MotionBlur(BaseTask):
    """The camera moved along a straight line; what lies beyond the rim of the picture is unknown.

    Images (B, C, H, W) give measurements (B, C, H - kernel + 1, W - kernel + 1).
    """

    sigma = Parameter(float, "noise level, for pixels in [-1, 1]", 0.02, low=0, drawn="log")
    length = Parameter(float, "length of the motion, in pixels", 11, low=1, high=25, drawn="uniform")
    angle = Parameter(float, "direction of the motion, in degrees", 30, low=0, high=180, drawn="uniform")
    kernel = Parameter(int, "side of the kernel, in pixels", 25, low=1)  # smaller ones for small images

    def build(self, values):
        """One operator for a batch: every value is a tensor (B,), drawn anew in every training step."""
        kernels = motion_kernels(self.kernel, values["length"], values["angle"])
        op = Blur(kernels, boundary="valid", check=False)  # checks would wait for the GPU
        # No closed form, so conjugate gradients solve with A. By default they go on until the residual is small, which
        # has to be looked at; a fixed number of iterations fits into a CUDA graph. Ten are enough for training.
        op.cg_tol, op.cg_iterations = 0, 10
        return op
