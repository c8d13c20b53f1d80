"""Image metrics, one value per image, and the two conventions of the paper."""

from firm.metrics._fidelity import Convention as Convention
from firm.metrics._fidelity import lpips as lpips
from firm.metrics._fidelity import psnr as psnr
from firm.metrics._fidelity import scores as scores
from firm.metrics._fidelity import ssim as ssim
from firm.metrics._fidelity import visible as visible
from firm.metrics.posterior import coverage as coverage
from firm.metrics.posterior import pixel_std as pixel_std
from firm.metrics.posterior import wasserstein as wasserstein
