"""A task of one's own: motion blur along a straight line, as in a photograph."""

from firm.operators import Blur, motion_kernels
from firm.tasks import BaseTask, Parameter


class MotionBlur(BaseTask):
    """The camera moved. Only pixels whose blur comes from within the image are measured, H - kernel + 1 rows of H."""

    sigma = Parameter(float, "noise level, for pixels in [-1, 1]", 0.02, low=0, drawn="log")
    length = Parameter(float, "length of the motion, in pixels", 11, low=1, high=25, drawn="uniform")
    angle = Parameter(float, "direction of the motion, in degrees", 30, low=0, high=180, drawn="uniform")
    kernel = Parameter(int, "side of the kernel, in pixels", 25, low=1)

    def __init__(self, size=128, **settings):
        super().__init__(size, **settings)
        longest = max([self.length, *self.ranges.get("length", ())])  # of a range, validation takes the default
        if longest > self.kernel:
            raise ValueError(f"{self.name}: a motion of {longest:g} pixels does not fit into a kernel of {self.kernel}")

    def build(self, values):
        """The operator of a batch; every value is a tensor (B,)."""
        kernels = motion_kernels(self.kernel, values["length"], values["angle"])
        op = Blur(kernels, boundary="valid", check=False)  # a check would wait for the GPU
        # This operator has no closed form: conjugate gradients solve with it. Testing whether they have converged waits
        # for the GPU too, so make ten iterations, no more and no less. Then a training step fits into a CUDA graph.
        op.cg_tol, op.cg_iterations = 0, 10
        return op
