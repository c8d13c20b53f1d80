"""Operators that no bundled model was trained for, beside two that they know: how well does each model cope?

    python experiments/notes/unseen_operators/run.py --data CELEBA [--models face-128,photo,cat-256 --limit 10]

Test faces of 128x128 pixels, N = 2, noise of the level given for each. Writes results.json beside this file.
"""

import json
import warnings
from pathlib import Path
from typing import Annotated

import torch
import typer
from tqdm import tqdm

from firm import fast, load, restore
from firm._util.files import write_atomically
from firm._util.machine import describe_machine
from firm.data import load_images
from firm.metrics import psnr
from firm.operators import Blur, Compose, Downsample, LinearOperator, Mask, from_functions, gaussian_kernel
from firm.tasks.demosaicing import _colors as colors

HERE, SIDE = Path(__file__).parent, 128


def operators() -> dict[str, tuple[LinearOperator, float]]:
    """By name, with a noise level; what is random has one seed."""
    generator = torch.Generator().manual_seed(7)
    own = (torch.rand(3, SIDE, SIDE, generator=generator) < 0.4).float()  # a mask for each channel
    offsets = torch.arange(-3.0, 4)
    disc = (offsets[:, None] ** 2 + offsets**2 <= 9.5).float()
    streak = torch.zeros(11, 11)
    streak[5] = 1
    blotch = torch.rand(9, 9, generator=generator) ** 3
    mixing = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]])
    radius = torch.linspace(-1, 1, SIDE).square()
    shade = 1 - 0.45 * (radius[:, None] + radius)
    rows = (torch.arange(SIDE) % 2 == 0).float()[:, None].expand(SIDE, SIDE)
    return {
        "random pixels, 60 % missing (known)": (Mask(own[0]), 0.02),
        "Gaussian blur of 1 pixel (known)": (Blur(gaussian_kernel(61, 1.0)), 0.05),
        "every second row": (Mask(rows), 0.02),
        "disc blur, radius 3": (Blur(disc / disc.sum()), 0.02),
        "motion of 11 pixels, periodic": (Blur(streak / streak.sum()), 0.02),
        "random kernel of 9x9": (Blur(blotch / blotch.sum()), 0.02),
        "averages of 2x2 pixels": (Downsample(2, "box"), 0.02),
        "Gaussian blur, then 60 % missing": (Compose(Mask(own[0]), Blur(gaussian_kernel(25, 1.0))), 0.02),
        "darker corners, noise": (from_functions(lambda x: shade * x, lambda y: shade * y), 0.1),
        "colors mixed": (
            from_functions(
                lambda x: torch.einsum("ij,bjhw->bihw", mixing, x), lambda y: torch.einsum("ij,bihw->bjhw", mixing, y)
            ),
            0.05,
        ),
        "60 % of each channel missing": (Mask(own), 0.02),
        "Bayer mosaic": (Mask(colors("rggb", (SIDE, SIDE))), 0.02),
    }


def main(
    data: Annotated[Path, typer.Option(help="Folder of CelebA.")],
    models: Annotated[str, typer.Option(help="Bundled models or files.")] = "face-128,photo,cat-256",
    limit: Annotated[int, typer.Option(min=1, help="Test faces.")] = 10,
    out: Annotated[Path, typer.Option(help="File for the numbers.")] = HERE / "results.json",
) -> None:
    """Measure, restore, compare."""
    warnings.filterwarnings("ignore", message="the norm of A")  # some are a little below 1
    faces = load_images("celeba", data, "test", size=SIDE, limit=limit)
    x = faces.batch(range(len(faces)))
    quick = {name: fast(load(name)) for name in models.split(",")}
    means: dict[str, dict[str, float]] = {}
    for name, (op, sigma) in tqdm(operators().items(), unit="operator"):
        clean = op.A(x)
        y = clean + sigma * torch.randn(clean.shape, generator=torch.Generator().manual_seed(99))
        means[name] = {"sigma": sigma} | {
            which: round(float(psnr(restore(model, op, y, sigma=sigma).image, x).mean()), 2)
            for which, model in quick.items()
        }
        tqdm.write(f"{name}: {means[name]}")
    record = {"images": len(faces), "N": 2, "machine": describe_machine(), "psnr": means}
    write_atomically(out, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
