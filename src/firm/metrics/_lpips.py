"""LPIPS, the learned perceptual distance (Zhang et al. 2018), version 0.1 with AlexNet features.

The weights come with the package, in float16: torchvision's AlexNet (ImageNet, BSD-3-Clause) and the linear heads of
the `lpips` package (BSD-2-Clause); see LICENSE-lpips.txt beside this file.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn import functional as F


@lru_cache(maxsize=2)
def network(device: torch.device) -> _Lpips:
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
