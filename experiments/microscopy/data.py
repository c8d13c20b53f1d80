"""The set that configs/microscopy.yaml trains on: photographs shrunk to gray, and simulated cells, as PNGs of 16 bits.

    python experiments/microscopy/data.py PHOTOS --out SET [--cells 2000 --shrink 4 --val 50]

Shrinking by the mean of 4x4 pixels leaves a quarter of the noise and of the rounding to 8 bits. Photographs that are
smaller than 192 pixels after it are left out. No microscopy data are used: none with a license for it was at hand.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from PIL import Image
from run import cells
from tqdm import tqdm

from firm.data import folder_files, read_picture

SIDE = 192


def main(
    photos: Annotated[Path, typer.Argument(help="A folder of photographs.")],
    out: Annotated[Path, typer.Option(help="The set: train and val are made in it.")],
    cells_: Annotated[int, typer.Option("--cells", help="Simulated images of cells.")] = 2000,
    shrink: Annotated[int, typer.Option(help="Factor of the photographs' sides.")] = 4,
    val: Annotated[int, typer.Option(help="Images of each kind that are held out.")] = 50,
) -> None:
    """Write the pictures; the first of each kind are held out."""
    for part in ("train", "val"):
        (out / part).mkdir(parents=True, exist_ok=True)

    def write(image: np.ndarray, name: str, number: int) -> None:
        whole = np.rint(65535 * image.clip(0, 1)).astype(np.uint16)
        Image.fromarray(whole).save(out / ("val" if number < val else "train") / f"{name}{number:06d}.png")

    number = 0
    for path in tqdm(folder_files(photos), unit="photo"):
        gray = (read_picture(path, channels=1)[0].numpy() + 1) / 2
        h, w = (n // shrink for n in gray.shape)
        if min(h, w) >= SIDE:
            small = gray[: h * shrink, : w * shrink].reshape(h, shrink, w, shrink).mean((1, 3))
            top, left = (h - SIDE) // 2, (w - SIDE) // 2
            write(small[top : top + SIDE, left : left + SIDE], "photo", number)
            number += 1
    for seed in tqdm(range(cells_), unit="cell"):
        write(cells(SIDE, 10_000 + seed), "cells", seed)  # not those of run.py


if __name__ == "__main__":
    typer.run(main)
