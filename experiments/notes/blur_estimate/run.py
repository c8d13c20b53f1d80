"""How well `firm.restoration.estimate_blur` finds the width of a Gaussian blur in real pictures.

    python experiments/notes/blur_estimate/run.py PHOTOS FACES … [--limit 34]

Every picture is blurred, noise is added, and it is rounded to 8 bits. Writes results.json beside this file.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from firm._util.files import write_atomically
from firm._util.machine import describe_machine
from firm.data import folder_files, read_picture
from firm.operators import gaussian_kernel
from firm.restoration import estimate_blur

HERE = Path(__file__).parent
WIDTHS = (0.0, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0)  # pixels; 0: as they are
LEVELS = (0.0, 0.01, 0.02, 0.05)  # noise, for pixels in [-1, 1]


def main(
    folders: Annotated[list[Path], typer.Argument(help="Folders of sharp pictures.")],
    limit: Annotated[int, typer.Option(help="Pictures of each folder, evenly spread over it.")] = 34,
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the numbers.")] = HERE / "results.json",
) -> None:
    """Blur, estimate, compare."""
    results: dict[str, Any] = {"machine": describe_machine(torch.device("cpu"))}
    for folder in folders:
        files = folder_files(folder)
        files = files[:: max(1, len(files) // limit)][:limit]
        found: dict[tuple[float, float], list[tuple[float, float] | None]] = {}
        for i, file in enumerate(tqdm(files, desc=folder.name)):
            x = read_picture(file)[None]
            for width in WIDTHS:
                blurred = blur(x, width) if width else x
                for level in LEVELS:
                    found.setdefault((width, level), []).append(estimated(spoilt(blurred, level, i)))
        results[folder.name] = {f"blur {w:g}, noise {s:g}": summary(v, w) for (w, s), v in found.items()}
        results[folder.name]["pictures"] = len(files)
        write_atomically(out, json.dumps(results, indent=1))


def estimated(y: Tensor) -> tuple[float, float] | None:
    """Width and stated error; None where the estimate refuses."""
    try:
        found = estimate_blur(y)
    except ValueError:
        return None
    return found.width, found.error


def summary(found: list[tuple[float, float] | None], width: float) -> dict[str, float]:
    """Median estimate, median and 90th percentile of the error, and how often the stated error held."""
    told = [pair for pair in found if pair is not None]
    row: dict[str, float] = {"refused": len(found) - len(told)}
    if len(told) > 1:
        errors = sorted(abs(w - width) for w, _ in told)
        row |= {
            "median": round(statistics.median(w for w, _ in told), 3),
            "median error": round(statistics.median(errors), 3),
            "90% below": round(errors[int(0.9 * (len(errors) - 1))], 3),
            "within twice the stated error": round(sum(abs(w - width) <= 2 * e for w, e in told) / len(told), 2),
        }
    return row


def blur(x: Tensor, width: float) -> Tensor:
    """A Gaussian blur of a picture (1, 3, H, W), continued by its mirror image."""
    reach = int(4 * width + 1)
    kernel = gaussian_kernel(2 * reach + 1, width).reshape(1, 1, 2 * reach + 1, 2 * reach + 1).float()
    return F.conv2d(F.pad(x, (reach,) * 4, mode="reflect"), kernel.expand(3, 1, -1, -1), groups=3)


def spoilt(x: Tensor, level: float, seed: int) -> Tensor:
    """With noise, and rounded to 8 bits."""
    y = x + level * torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))
    return ((y + 1) * 127.5).round().clamp(0, 255) / 127.5 - 1


if __name__ == "__main__":
    typer.run(main)
