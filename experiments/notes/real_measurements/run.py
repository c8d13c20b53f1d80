"""Pictures with a kernel of their own, and pixels that are known exactly: what `firm restore` makes of them.

    python experiments/notes/real_measurements/run.py PHOTOS [--limit 3]

The central 160x160 pixels of each photograph. Writes results.json beside this file.
"""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import torch
import typer
from PIL import Image
from torch import Generator, Tensor
from torch.nn import functional as F
from tqdm import tqdm

from firm import fast, load, restore, tiled
from firm._util.device import choose_device
from firm._util.files import write_atomically
from firm._util.machine import describe_machine
from firm.data import folder_files, read_picture
from firm.metrics import psnr
from firm.operators import Blur, box_mask, gaussian_kernel, random_mask, stroke_mask
from firm.restoration import picture_problem
from firm.restoration.output import write_picture

HERE = Path(__file__).parent
SIDE = 160


def main(
    folder: Annotated[Path, typer.Argument(help="Photographs of at least 200x200 pixels.")],
    limit: Annotated[int, typer.Option(help="How many, evenly spread over the folder.")] = 3,
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the numbers.")] = HERE / "results.json",
) -> None:
    """Degrade photographs, restore them, compare."""
    device = choose_device(None)
    model = tiled(fast(load("photo").to(device)))
    results: dict[str, Any] = {"model": "photo", "N": 2, "machine": describe_machine(device)}
    files = folder_files(folder)
    files = files[:: max(1, len(files) // limit)][:limit]

    def restored(op: Any, y: Tensor, sigma: float) -> Tensor:
        return restore(model, op.to(device), y.to(device), 2, sigma=sigma).image.cpu()

    with TemporaryDirectory() as place:
        for file in tqdm(files):
            picture = read_picture(file)[None]
            results[file.stem] = {
                "kernels": kernels(picture, restored, Path(place)),
                "known pixels": known(picture, restored, Path(place)),
            }
            write_atomically(out, json.dumps(results, indent=1))


def kernels(picture: Tensor, restored: Any, place: Path) -> dict[str, Any]:
    """A photograph blurred with its true surroundings: PSNR with `--kernel` or `--blur`, and with mirrored ones."""
    file = place / "kernel.npy"
    blurs: dict[str, tuple[Tensor, dict[str, Any]]] = {
        **{f"hook of {n}x{n}": (hook(n), {"kernel": file}) for n in (9, 15)},
        "disc of 7x7": (disc(3), {"kernel": file}),
        **{f"Gaussian of {b}": (gaussian_kernel(2 * ceil(4 * b) + 1, b), {"blur": b}) for b in (0.8, 1.5, 3.0)},
    }
    rows = {}
    for name, (kernel, given) in blurs.items():
        np.save(file, kernel.numpy())
        for sigma in (0.01, 0.03):
            y = central(Blur(kernel).A(picture))
            y = y + sigma * torch.randn(y.shape, generator=Generator().manual_seed(99))
            np.save(place / "y.npy", y[0].numpy())
            p = picture_problem(place / "y.npy", "deblurring", sigma=sigma, **given)
            margin = 16 + p.margin
            mirrored = restored(Blur(kernel), F.pad(y, (margin,) * 4, mode="reflect"), sigma)
            rows[f"{name}, noise {sigma}"] = {
                "blurred": score(y, picture),
                "surroundings mirrored": score(mirrored[..., margin:-margin, margin:-margin], picture),
                "restored": score(p.finish(restored(p.op, p.y, sigma)), picture),
            }
    return rows


def known(picture: Tensor, restored: Any, place: Path) -> dict[str, Any]:
    """A photograph with holes: PSNR of the whole, with the other pixels as they were, and without their noise."""
    generator, shape, rows = Generator().manual_seed(98), (SIDE, SIDE), {}
    masks = {
        "strokes": stroke_mask(shape, 8, 5.0, generator), "a box": box_mask(shape, 40),
        "70 % missing": random_mask(shape, 0.3, generator),
    }  # fmt: skip
    for name, seen in masks.items():
        Image.fromarray(((1 - seen) * 255).byte().numpy()).save(place / "mask.png")
        for noise in (0.0, 0.01, 0.03):
            y = central(picture)
            write_picture(place / "y.png", (y + noise * torch.randn(y.shape, generator=generator))[0])
            for sigma in (noise, None):
                p = picture_problem(
                    place / "y.png", "inpainting", sigma=sigma, mask=place / "mask.png", keep_known=True
                )
                x = restored(p.op, p.y, p.sigma)
                how = "estimated" if sigma is None else "given"
                rows[f"{name}, noise {noise}, sigma {how}"] = {
                    "sigma": round(p.sigma, 4), "not kept": score(x, picture), "kept": score(p.finish(x), picture),
                }  # fmt: skip
    return rows


def hook(side: int) -> Tensor:
    """An asymmetric kernel: down, fading, then to the right, growing."""
    kernel = torch.zeros(side, side)
    kernel[:, 1] = torch.linspace(1, 0.2, side)
    kernel[-2, 1:] = torch.linspace(0.2, 0.8, side - 1)
    return kernel / kernel.sum()


def disc(radius: int) -> Tensor:
    """A lens out of focus."""
    offsets = torch.arange(-radius, radius + 1)
    kernel = (offsets[:, None] ** 2 + offsets**2 <= radius**2).float()
    return kernel / kernel.sum()


def central(picture: Tensor) -> Tensor:
    """The central part of pictures (1, 3, H, W)."""
    top, left = ((n - SIDE) // 2 for n in picture.shape[-2:])
    return picture[..., top : top + SIDE, left : left + SIDE]


def score(x: Tensor, picture: Tensor) -> float:
    """PSNR of the picture as it would be saved."""
    return round(float(psnr(x.clamp(-1, 1), central(picture))), 2)


if __name__ == "__main__":
    typer.run(main)
