"""The level of a picture's noise as cameras, scanners and JPEG leave it: coarse, colored, stronger in dark places."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from firm.restoration.estimates import estimate_noise

CELL = 16  # pixels: the side of the squares that have an estimate of their own
FLOOR = 0.002  # the least level, which is the rounding to 8 bits
CUT_OFF = 0.02  # of the pixels of a cell that may be black or white
STRIP = 256  # rows that go through the network together, so that memory stays bounded
REACH = 64  # pixels that a cell sees on each side, at the most
ENOUGH = 4e6  # pixels: of larger pictures strips are looked at, evenly spread, of so many pixels in all


@dataclass(frozen=True)
class Grain:
    """The noise of a picture: its level, and how sure that is."""

    level: float  # root mean square of the noise, for pixels in [-1, 1]
    error: float  # standard deviation of the logarithm of the level: 0.1 is about 10 %
    coarse: bool  # whether neighboring pixels, or the colors, share it: as in JPEGs and developed pictures of cameras

    @property
    def least(self) -> float:
        """The level less its error: surely there is as much."""
        return self.level * math.exp(-self.error)

    @property
    def sigma(self) -> float:
        """The level to tell a model that was trained for white noise.

        1.4 times its own removes shared noise best, by the trial in experiments/notes/noise_estimate.
        """
        return self.level * (1.4 if self.coarse else 1.0)


class GrainNetwork(nn.Module):
    """For each cell of 16x16 pixels, the logarithm of its noise's level and of how far that may be off.

    Learned filters of 5x5 pixels look at the picture, and at its means over 2x2 and 4x4 pixels: the logarithms of their
    power, as a mean over the cell and at its quietest place, are what grain and texture differ in. Three small layers
    over neighboring cells make a level of them. Trained on photographs with simulated noise by
    experiments/notes/noise_estimate/train.py.
    """

    def __init__(self, filters: int = 16, width: int = 64) -> None:
        super().__init__()
        self.filters = nn.ModuleList(nn.Conv2d(3, filters, 5, padding=2, bias=False) for _ in range(3))
        widths = (6 * filters, width, width, width)
        self.layers = nn.ModuleList(
            nn.Conv2d(a, b, 1 if i == 0 else 3, padding=0 if i == 0 else 1)
            for i, (a, b) in enumerate(itertools.pairwise(widths))
        )
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map pictures (B, 3, H, W) in [-1, 1] to log level and log error of each cell, (B, H / 16, W / 16) both."""
        features = []
        for scale, filters in zip((1, 2, 4), self.filters, strict=True):
            given = filters.get_parameter("weight")
            weight = given - given.mean((2, 3), keepdim=True)  # blind to brightness and color
            power = F.conv2d(F.avg_pool2d(x, scale), weight, padding=2).square()
            quiet = (F.avg_pool2d(power, 4 // scale) + 1e-6).log()  # of 4x4 pixels
            features += [F.avg_pool2d(quiet, CELL // 4), -F.max_pool2d(-quiet, CELL // 4)]
        y = torch.cat(features, 1) / 4 + 1.5
        for layer in self.layers:
            y = F.leaky_relu(layer(y), 0.1)
        level, error = self.head(y).unbind(1)
        return level - 3, error.clamp(-4, 2)


@torch.no_grad()
def estimate_grain(image: Tensor) -> Grain:
    """Estimate the level of the noise in a picture (1, C, H, W) in [-1, 1], C = 1 or 3.

    Unlike `estimate_noise`, which looks at pairs of pixels for white noise, it sees grain that spreads over several
    pixels, that differs between dark and bright places, and that a JPEG has smoothed. The cells' estimates are averaged
    with the weights that the network gives them: flat places tell more than texture.

    Parameters
    ----------
    image
        The picture, of any size.

    Returns
    -------
    What was found. ValueError where there are too few pixels.
    """
    x, net = image.detach().cpu().expand(-1, 3, -1, -1), _network()
    H, W = x.shape[-2:]
    parts = []
    for top in _strips(H, W):
        first = max(0, top - REACH)
        part = x[..., first : top + STRIP + REACH, :].float().clamp(-1, 1)
        part = F.pad(part, [0, -W % CELL, 0, -part.shape[-2] % CELL], mode="replicate")
        # Where black or white cuts the noise off, there is less than elsewhere.
        cut_off = F.avg_pool2d((part.abs() > 0.999).float().amax(1), CELL)
        rows = slice((top - first) // CELL, (top - first + STRIP) // CELL)
        parts.append(torch.cat([*net(part), cut_off])[:, rows])
    level, error, cut_off = torch.cat(parts, dim=1)
    weight = (-2 * error).exp()
    open_cells = cut_off < CUT_OFF  # others do not count beside these
    weight = weight * open_cells if bool(open_cells.any()) else weight
    total = weight.sum()
    power = (weight * (2 * level).exp()).sum() / total
    # Neighboring cells see the same pixels and err together: the error is that of a typical cell, not of their mean.
    spread = (weight * error.exp()).sum() / total
    found = max(FLOOR, float(power.sqrt()))
    return Grain(found, round(float(spread), 3), _is_shared(image, found))


def _strips(H: int, W: int) -> list[int]:
    """The first rows of the strips that are looked at."""
    every = range(0, H, STRIP)
    wanted = min(len(every), max(1, round(ENOUGH / (STRIP * W))))
    return [every[(2 * i + 1) * len(every) // (2 * wanted)] for i in range(wanted)]


def _is_shared(image: Tensor, level: float) -> bool:
    """Tell whether noise of a level is shared by neighboring pixels, or by the colors of a pixel."""
    white = estimate_noise(image)
    together = math.sqrt(3) * estimate_noise(image.mean(1, keepdim=True))  # as much, where the colors' is independent
    gray = image.shape[1] == 1 or bool((image == image[:, :1]).all())
    return white < 0.75 * level or (not gray and together > 1.25 * white)


@lru_cache(maxsize=1)
def _network() -> GrainNetwork:
    net = GrainNetwork()
    stored = safetensors.torch.load((resources.files("firm.restoration") / "grain.safetensors").read_bytes())
    net.load_state_dict({name: value.float() for name, value in stored.items()})
    return net.requires_grad_(False).eval()
