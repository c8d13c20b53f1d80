"""Image metrics, one value per image, and the two conventions of the paper."""

from firm.metrics.conventions import Convention as Convention
from firm.metrics.conventions import scores as scores
from firm.metrics.lpips import lpips as lpips
from firm.metrics.posterior import coverage as coverage
from firm.metrics.posterior import pixel_std as pixel_std
from firm.metrics.posterior import wasserstein as wasserstein
from firm.metrics.psnr import psnr as psnr
from firm.metrics.ssim import ssim as ssim
