"""What smaller and larger tiles cost in PSNR and time: mosaics of photographs, and one call of the network.

Run ``python experiments/notes/photographs/tiles.py shared/data/photos/val``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import firm
from firm.acceleration.tiling import Tiled
from firm.data import read_picture
from firm.tasks import task_class

TILES = ((256, 32), (256, 16), (288, 16), (512, 32), (2048, 32))
TASKS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("random-inpainting", {}), ("stroke-inpainting", {}), ("deblurring", {}),
    ("super-resolution", {"factor": 2, "filter": "bicubic"}), ("demosaicing", {}),
)  # fmt: skip


def mosaic(files: list[Path], columns: int) -> Tensor:
    """Photographs beside and below each other, (1, 3, H, W)."""
    pictures = [read_picture(file) for file in files]
    rows = [torch.cat(pictures[i : i + columns], dim=2) for i in range(0, len(pictures), columns)]
    return torch.cat(rows, dim=1)[None]


def psnr(x: Tensor, truth: Tensor) -> float:
    """In dB, of images in [-1, 1]; a margin around the image is cut off."""
    margin = (x.shape[-1] - truth.shape[-1]) // 2
    x = x[..., margin : x.shape[-2] - margin, margin : x.shape[-1] - margin]
    return float(-10 * torch.log10(((x.clamp(-1, 1) - truth) / 2).square().mean()))


def main(folder: str) -> None:
    """Print a row for every task, and the seconds of the network for 12 megapixels."""
    files, model = sorted(Path(folder).iterdir()), firm.fast(firm.load("photo"))
    for name, settings in (("denoising", {"sigma": 30 / 255}), ("denoising", {"sigma": 100 / 255}), *TASKS):
        found: dict[tuple[int, int], list[float]] = {}
        for first in (0, 40) if name == "denoising" else (0, 50):
            x = mosaic(files[first : first + 20], 5) if name == "denoising" else mosaic(files[first : first + 9], 3)
            task = task_class(name)((int(x.shape[-2]), int(x.shape[-1])), **settings)
            op, y = task.measure(x, 1)
            for tile in TILES:
                r = firm.restore(firm.tiled(model, *tile), op, y, 1, 1, 3, sigma=task.noise_for(x))
                found.setdefault(tile, []).append(psnr(r.image, x))
        print(name, settings, {tile: round(sum(v) / len(v), 3) for tile, v in found.items()}, flush=True)
    for tile in TILES[:-1]:
        tiled = Tiled(model.estimator, *tile)
        (height, rows), (width, columns) = tiled.grid(3000, 4000)
        images, t, least = [torch.randn(1, 3, height, width) for _ in range(5)], torch.zeros(1), 9.0
        for _ in range(8):
            start = time.perf_counter()
            model.estimator(*images, t, t + 0.1, t)
            least = min(least, time.perf_counter() - start)
        print(tile, f"{least * len(rows) * len(columns) * 5:.1f} s for 12 megapixels", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
