"""Unknown blur: the kernel, from the blurred picture alone."""

from firm.blind.kernel import KernelEstimate as KernelEstimate
from firm.blind.kernel import estimate_kernel as estimate_kernel
from firm.blind.kernel import looks_moved as looks_moved
