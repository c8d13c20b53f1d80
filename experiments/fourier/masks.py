"""How much of the result is the mask: cats zero-filled with forty masks of 56 lines, and FIRM with some of them.

    python -m experiments.fourier.masks --data AFHQ [--limit 100]

The paper does not say which lines it keeps; its zero-filled cats have 25.62 dB. FIRM restores with the protocol's mask
and with the three whose zero-filled cats come nearest to that. Writes masks.json beside this file.
"""

import json
from pathlib import Path
from statistics import fmean
from typing import Annotated

import torch
import typer
from torch import Generator, Tensor
from tqdm import tqdm

from experiments.published import FOURIER
from firm import fast, load, sample
from firm._util.checks import generator_for
from firm._util.files import write_atomically
from firm._util.machine import describe_machine
from firm.data import load_images
from firm.metrics import psnr
from firm.operators import Fourier, cartesian_mask

OUT, SIDE, LINES, SIGMA = Path(__file__).with_name("masks.json"), 256, 56, 0.002
PROTOCOL, SEEDS = 42, range(40)


def measured(op: Fourier, x: Tensor, index: int) -> Tensor:
    """y = A x + noise of one image (1, 3, H, W), with the noise of its number."""
    noise = torch.randn(x.shape, dtype=torch.complex64, generator=generator_for(PROTOCOL, index, "noise"))
    return op.A(x) + SIGMA * noise


def main(
    data: Annotated[Path, typer.Option(help="Folder of AFHQ.")],
    model: Annotated[str, typer.Option(help="A bundled model or a file.")] = "cat-256",
    limit: Annotated[int, typer.Option(min=1, help="Test cats.")] = 100,
    out: Annotated[Path, typer.Option(help="File for the numbers.")] = OUT,
) -> None:
    """Zero-filled with every mask, restored with four."""
    images = load_images("afhq", data, "test", size=SIDE, limit=limit)
    cats = [images.batch(range(i, i + 1)) for i in range(len(images))]
    ops = {s: Fourier(cartesian_mask((SIDE, SIDE), LINES, Generator().manual_seed(s))) for s in (PROTOCOL, *SEEDS)}
    zero_filled = {
        seed: fmean(float(psnr(op.A_adjoint(measured(op, x, i)), x)) for i, x in enumerate(cats))
        for seed, op in tqdm(ops.items(), unit="mask")
    }
    paper, quick, restored = FOURIER["Degraded"][0], fast(load(model)), dict[int, float]()
    alike = sorted(SEEDS, key=lambda seed: abs(zero_filled[seed] - paper))[:3]
    for seed in (PROTOCOL, *alike):
        each = []
        for i, x in enumerate(tqdm(cats, desc=f"mask {seed}", unit="cat")):
            y, start = measured(ops[seed], x, i), generator_for(PROTOCOL, i, "method")
            each.append(float(psnr(sample(quick, ops[seed], y, 2, sigma=SIGMA, generator=start), x)))
        restored[seed] = fmean(each)
        print(f"mask of seed {seed}: zero-filled {zero_filled[seed]:.2f} dB, FIRM at N = 2 {restored[seed]:.2f} dB")
    numbers = {"cats": len(cats), "model": model, "machine": describe_machine(), "paper": paper, "alike": alike}
    for name, found in (("zero-filled", zero_filled), ("FIRM N=2", restored)):
        numbers[name] = {seed: round(value, 3) for seed, value in found.items()}
    write_atomically(out, json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
