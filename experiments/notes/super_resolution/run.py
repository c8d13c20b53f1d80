"""Pictures that a program made smaller (Pillow, bicubic, 8 bits): `firm restore`'s way against bicubic interpolation.

    python experiments/notes/super_resolution/run.py --data PHOTOS [--limit 10 --scales 2,3,4]

Writes results.json beside this file. The first pictures of the folder, in sorted order, are cropped to whole multiples.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from firm import fast, load, restore, tiled
from firm._util.device import choose_device
from firm._util.files import write_atomically
from firm._util.machine import describe_machine
from firm._util.text import numbers
from firm.data import folder_files, read_picture
from firm.metrics import psnr
from firm.restoration import picture_problem

HERE = Path(__file__).parent


def main(
    data: Annotated[Path, typer.Option(help="Folder of pictures.")],
    model: Annotated[str, typer.Option(help="A bundled model's name, or a .safetensors file.")] = "face-128",
    limit: Annotated[int, typer.Option(help="Pictures.")] = 10,
    scales: Annotated[str, typer.Option(help="Factors of the sides.")] = "2,3,4",
    out: Annotated[Path, typer.Option(help="File for the numbers.")] = HERE / "results.json",
    device_name: Annotated[str | None, typer.Option("--device", help="cpu, cuda or cuda:N.")] = None,
) -> None:
    """Shrink, restore with the exact operator and with the paper's bare stride, compare."""
    device = choose_device(device_name)
    network = tiled(fast(load(model).to(device)))
    files = folder_files(data)[:limit]
    results: dict[str, Any] = {"model": model, "N": 2, "machine": describe_machine(device)}
    for scale in numbers(scales, "--scales"):
        rows: dict[str, list[float]] = {"bicubic interpolation": [], "filter bicubic": [], "filter stride": []}
        for file in tqdm(files, desc=f"x{scale}"):
            truth, small, enlarged = shrink(file, scale)
            rows["bicubic interpolation"].append(score(enlarged, truth))
            for kind in ("bicubic", "stride"):
                problem = picture_problem(small, "super-resolution", scale=scale, filter=kind).to(device)
                x = restore(network, problem.op, problem.y, 2, sigma=problem.sigma).image
                rows[f"filter {kind}"].append(score(problem.finish(x).cpu(), truth))
        gains = [a - b for a, b in zip(rows["filter bicubic"], rows["bicubic interpolation"], strict=True)]
        means = {name: round(sum(values) / len(values), 2) for name, values in rows.items()}
        results[f"x{scale}"] = {**means, "smallest gain": round(min(gains), 2), "largest gain": round(max(gains), 2)}
        print(f"x{scale}", results[f"x{scale}"])
        write_atomically(out, json.dumps(results, indent=1))


def shrink(file: Path, scale: int) -> tuple[Tensor, Path, Tensor]:
    """The picture (1, 3, H, W), the file of its small version, and that enlarged again by interpolation."""
    picture = Image.open(file).convert("RGB")
    W, H = (n // scale * scale for n in picture.size)
    picture = picture.crop((0, 0, W, H))
    small = picture.resize((W // scale, H // scale), Image.Resampling.BICUBIC)
    folder = Path(tempfile.mkdtemp())
    tensors = []
    for name, version in (
        ("truth", picture),
        ("small", small),
        ("large", small.resize((W, H), Image.Resampling.BICUBIC)),
    ):
        version.save(folder / f"{name}.png")
        tensors.append(read_picture(folder / f"{name}.png")[None])
    return tensors[0], folder / "small.png", tensors[2]


def score(x: Tensor, truth: Tensor) -> float:
    """PSNR of the picture as it would be saved."""
    return float(psnr(x.clamp(-1, 1), truth))


if __name__ == "__main__":
    typer.run(main)
