"""JPEG-compressed pictures: what the estimated noise level does to them, and what a larger one does.

    python experiments/notes/jpeg/run.py PHOTOS FACES … [--limit 6 --qualities 20,40,60,80]

The central 128x128 pixels of each picture are compressed as they are, after a blur of 1 pixel, or shrunk by 2, and
restored. Writes results.json beside this file.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from PIL import Image, ImageFilter
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
TASKS: dict[str, dict[str, Any]] = {"denoising": {}, "deblurring": {"blur": 1.0}, "super-resolution": {"scale": 2}}
LEVELS = (None, 0.05, 0.1, 0.2)  # None: estimated


def main(
    folders: Annotated[list[Path], typer.Argument(help="Folders of pictures.")],
    limit: Annotated[int, typer.Option(help="Pictures of each folder, evenly spread over it.")] = 6,
    qualities: Annotated[str, typer.Option(help="Of the JPEG files.")] = "20,40,60,80",
    model: Annotated[str, typer.Option(help="A bundled model's name, or a .safetensors file.")] = "photo",
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the numbers.")] = HERE / "results.json",
    device_name: Annotated[str | None, typer.Option("--device", help="cpu, cuda or cuda:N.")] = None,
) -> None:
    """Compress, restore with several noise levels, compare."""
    device = choose_device(device_name)
    network = tiled(fast(load(model).to(device)))
    results: dict[str, Any] = {"model": model, "N": 2, "machine": describe_machine(device)}
    place = Path(tempfile.mkdtemp()) / "picture.jpg"
    for folder in folders:
        files = folder_files(folder)
        files = files[:: max(1, len(files) // limit)][:limit]
        for quality in numbers(qualities, "--qualities"):
            for task, settings in TASKS.items():
                rows: dict[str, list[float]] = {}
                for file in tqdm(files, desc=f"{folder.name} {quality} {task}"):
                    truth = center(file)
                    degraded(truth, task).save(place, quality=quality)
                    with Image.open(place) as picture:
                        enlarged = picture.resize(truth.size, Image.Resampling.BICUBIC)
                    rows.setdefault("as it is", []).append(score(tensor(enlarged), tensor(truth)))
                    for level in LEVELS:
                        problem = picture_problem(place, task, sigma=level, **settings).to(device)
                        x = restore(network, problem.op, problem.y, 2, sigma=problem.sigma).image
                        name = "sigma estimated" if level is None else f"sigma {level:g}"
                        rows.setdefault(name, []).append(score(problem.finish(x).cpu(), tensor(truth)))
                means = {name: round(sum(values) / len(values), 2) for name, values in rows.items()}
                results[f"{folder.name}, quality {quality}, {task}"] = means
                write_atomically(out, json.dumps(results, indent=1))


def center(file: Path) -> Image.Image:
    """The central 128x128 pixels of a picture, in color."""
    pixels = ((read_picture(file) + 1) * 127.5).round().to(torch.uint8).permute(1, 2, 0)
    picture = Image.fromarray(pixels.numpy())
    left, top = (picture.width - 128) // 2, (picture.height - 128) // 2
    return picture.crop((left, top, left + 128, top + 128))


def degraded(truth: Image.Image, task: str) -> Image.Image:
    """What is compressed: the picture, blurred, or shrunk."""
    if task == "deblurring":
        return truth.filter(ImageFilter.GaussianBlur(1.0))
    return truth.resize((64, 64), Image.Resampling.BICUBIC) if task == "super-resolution" else truth


def tensor(picture: Image.Image) -> Tensor:
    """A picture as (1, 3, H, W) in [-1, 1]."""
    values = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8).float() / 127.5 - 1
    return values.reshape(1, picture.height, picture.width, 3).permute(0, 3, 1, 2)


def score(x: Tensor, truth: Tensor) -> float:
    """PSNR of the picture as it would be saved."""
    return float(psnr(x.clamp(-1, 1), truth))


if __name__ == "__main__":
    typer.run(main)
