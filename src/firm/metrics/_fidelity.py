"""PSNR, SSIM and LPIPS of images, the paper's two conventions for them, and what is seen of complex images.

The weights of LPIPS (Zhang et al. 2018, version 0.1 with AlexNet features) come with the package, in float16:
torchvision's AlexNet (ImageNet, BSD-3-Clause) and the linear heads of the `lpips` package (BSD-2-Clause); see
LICENSE-lpips.txt beside this file.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Literal, get_args

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn import functional as F

Convention = Literal["tables", "text"]

C1, C2 = 0.01**2, 0.03**2  # of the definition of SSIM, for a data range of 1
WHOLE = 2**19  # pixels of a picture that is taken in one piece


def visible(x: Tensor, complex_images: bool = False) -> Tensor:
    """Return images (B, C, H, W) in [-1, 1] as they are; of complex ones the magnitude |x| in [0, 1], as 2 |x| - 1.

    Complex images come as 2c channels, all real parts, then all imaginary parts; c channels are left.
    """
    if not complex_images:
        return x
    real, imaginary = x.chunk(2, dim=1)
    return 2 * (real.square() + imaginary.square()).sqrt() - 1


def psnr(x: Tensor, truth: Tensor) -> Tensor:
    """Return the peak signal-to-noise ratio in dB of each image, (B,), for images (B, C, H, W) in [-1, 1].

    It is 10 log10(4 / mean squared error) and not clamped: the same number as with images mapped to [0, 1] and a data
    range of 1.
    """
    _require_comparable("psnr", x, truth)
    mse = (x - truth).square().flatten(1).mean(1)
    return 10 * (4 / mse).log10()


def ssim(x: Tensor, truth: Tensor) -> Tensor:
    """Return the structural similarity of each image, (B,), for images (B, C, H, W) in [-1, 1].

    11x11 Gaussian window of standard deviation 1.5, averaged over the whole image and its channels, with a data range
    of 1 on images mapped to [0, 1]: the protocol's. Sides below 11 pixels are an error. The numbers are those of
    torchmetrics, operation by operation; its import would load torchvision where that is installed, and fail with it.
    """
    _require_comparable("ssim", x, truth)
    H, W = x.shape[-2:]
    if min(H, W) < 11:
        raise ValueError(f"ssim: images must have at least 11x11 pixels, got {H}x{W}")
    a, b = (F.pad((v + 1) / 2, (5, 5, 5, 5), mode="reflect") for v in (x, truth.to(x.dtype)))
    offsets = torch.arange(-5.0, 6.0, dtype=x.dtype, device=x.device)
    window = torch.exp(-((offsets / 1.5) ** 2) / 2)
    window = window / window.sum()
    kernel = torch.outer(window, window).expand(x.shape[1], 1, 11, 11)
    if H * W <= WHOLE:
        return _similarity(a, b, kernel).flatten(1).mean(1)
    rows = max(1, WHOLE // W)  # a large picture strip by strip: the convolutions take fifteen times its memory
    total = x.new_zeros(len(x))
    for top in range(0, H, rows):
        strip = slice(top, top + rows + 10)
        total += _similarity(a[..., strip, :], b[..., strip, :], kernel).flatten(1).sum(1)
    return total / x[0].numel()


def lpips(x: Tensor, truth: Tensor) -> Tensor:
    """Return LPIPS of each pair of images, (B,), for images (B, 3, H, W) in [-1, 1]; gray ones are repeated to RGB."""
    _require_comparable("lpips", x, truth)
    if x.ndim != 4 or x.shape[1] not in (1, 3) or min(x.shape[-2:]) < 31:
        raise ValueError(f"lpips: images (B, 3, H, W) of at least 31x31 pixels are needed, got {tuple(x.shape)}")
    distance: Tensor = _network(x.device)(x, truth)
    return distance


def scores(
    x: Tensor, truth: Tensor, convention: Convention = "tables", *, x_once: Tensor | None = None
) -> dict[str, Tensor]:
    """Return PSNR, SSIM and LPIPS of each image, (B,) each, for images (B, C, H, W) in [-1, 1].

    ``tables``: nothing is clamped, and LPIPS sees images mapped to [-3, 1], as the reference code does (it maps to
    [-1, 1] twice); the paper's tables are computed so. ``text``: SSIM and LPIPS on the image clamped to [-1, 1], as
    the paper's text says. PSNR is the same in both.

    `x_once`, if given, replaces `x` for SSIM: the reference code maps degraded super-resolution images differently
    for SSIM and for the other two (see docs/evaluation.md). SSIM needs 11x11 pixels, LPIPS 31x31 and one or three
    channels: what is not defined is left out. Complex images are compared by their magnitudes, `firm.metrics.visible`.
    """
    if convention not in get_args(Convention):
        raise ValueError(f'convention must be "tables" or "text", got {convention!r}')
    tables = convention == "tables"
    seen = x if tables else x.clamp(-1, 1)
    found = {"psnr": psnr(x, truth)}
    if min(x.shape[-2:]) >= 11:
        found["ssim"] = ssim(seen if x_once is None else x_once, truth)
    if min(x.shape[-2:]) >= 31 and x.shape[1] in (1, 3):
        found["lpips"] = lpips(2 * x - 1, 2 * truth - 1) if tables else lpips(seen, truth)
    return found


def _similarity(a: Tensor, b: Tensor, kernel: Tensor) -> Tensor:
    """The similarity at every pixel, (B, C, h, w), of images in [0, 1] with a rim of 5 pixels."""
    B, channels = a.shape[:2]
    means = F.conv2d(torch.cat([a, b, a * a, b * b, a * b]), kernel, groups=channels)
    mean_a, mean_b, square_a, square_b, product = means.split(B)
    variances = (square_a - mean_a**2).clamp(min=0) + (square_b - mean_b**2).clamp(min=0)
    covariance = product - mean_a * mean_b
    value: Tensor = (2 * mean_a * mean_b + C1) * (2 * covariance + C2)
    return value / ((mean_a**2 + mean_b**2 + C1) * (variances + C2))


def _require_comparable(metric: str, x: Tensor, truth: Tensor) -> None:
    """Raise ValueError unless two batches have one shape, TypeError if they are complex."""
    if x.shape != truth.shape:
        raise ValueError(f"{metric}: images of shape {tuple(x.shape)} and a truth of shape {tuple(truth.shape)}")
    if x.is_complex() or truth.is_complex():
        raise TypeError(f"{metric}: images are real here; of complex ones, compare the magnitudes, x.abs()")


@lru_cache(maxsize=2)
def _network(device: torch.device) -> _Lpips:
    """Return the network of LPIPS on a device; it is kept there."""
    return _Lpips().to(device)


class _Lpips(nn.Module):
    """Distance between AlexNet features, normalized over channels, weighted, averaged over pixels and summed."""

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        relu = nn.ReLU()
        self.slices = nn.ModuleList(
            [
                nn.Sequential(nn.Conv2d(3, 64, 11, stride=4, padding=2), relu),
                nn.Sequential(nn.MaxPool2d(3, 2), nn.Conv2d(64, 192, 5, padding=2), relu),
                nn.Sequential(nn.MaxPool2d(3, 2), nn.Conv2d(192, 384, 3, padding=1), relu),
                nn.Sequential(nn.Conv2d(384, 256, 3, padding=1), relu),
                nn.Sequential(nn.Conv2d(256, 256, 3, padding=1), relu),
            ]
        )
        self.heads = nn.ModuleList([nn.Conv2d(width, 1, 1, bias=False) for width in (64, 192, 384, 256, 256)])
        self.register_buffer("mean", torch.tensor([-0.030, -0.088, -0.188])[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor([0.458, 0.448, 0.450])[:, None, None], persistent=False)
        self.load_state_dict(_weights())
        self.requires_grad_(False).eval()

    def forward(self, x: Tensor, truth: Tensor) -> Tensor:
        """Return the distance of each pair of images (B, 1 or 3, H, W), (B,)."""
        a, b = ((v.expand(-1, 3, -1, -1) - self.mean) / self.std for v in (x, truth))
        distance = x.new_zeros(len(x))
        for layer, head in zip(self.slices, self.heads, strict=True):
            a, b = layer(a), layer(b)
            difference = (F.normalize(a, eps=1e-10) - F.normalize(b, eps=1e-10)).square()
            distance = distance + head(difference).mean((1, 2, 3))
        return distance


def _weights() -> dict[str, Tensor]:
    """Return the shipped weights under the names of `_Lpips`."""
    stored = safetensors.torch.load((resources.files("firm.metrics") / "lpips_alex.safetensors").read_bytes())
    names = {}
    for i, (torchvision_index, position) in enumerate([(0, 0), (3, 1), (6, 1), (8, 0), (10, 0)]):
        names[f"heads.{i}.weight"] = f"lin{i}.model.1.weight"
        for kind in ("weight", "bias"):
            names[f"slices.{i}.{position}.{kind}"] = f"features.{torchvision_index}.{kind}"
    return {name: stored[key].float() for name, key in names.items()}
