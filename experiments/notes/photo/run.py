"""A model on the 68 photographs of CBSD68: what `firm restore` gains on its input and on classical methods.

    python experiments/notes/photo/run.py --data PHOTOS/test [--model photo --steps 1,2,4,10 --limit 68]

Writes results.json beside this file (or to --out): means and the numbers of every picture. Pictures are cut to 480x320,
to 480x312 for x3. With --classical, BM3D (`pip install bm3d`) and biharmonic inpainting (`pip install scikit-image`)
are measured beside.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
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
from firm.metrics import lpips, psnr
from firm.operators import LinearOperator
from firm.tasks import BaseTask, Task

HERE = Path(__file__).parent
GRAY = 2 / 255  # a gray level, for pixels in [-1, 1]
ROUNDING = 0.005  # about the noise level of 8 bits
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "denoising 15": ("denoising", dict(sigma=15 * GRAY)),
    "denoising 25": ("denoising", dict(sigma=25 * GRAY)),
    "denoising 50": ("denoising", dict(sigma=50 * GRAY)),
    "bicubic x2": ("super-resolution", dict(factor=2, filter="bicubic", sigma=ROUNDING)),
    "bicubic x3": ("super-resolution", dict(factor=3, filter="bicubic", sigma=ROUNDING)),
    "bicubic x4": ("super-resolution", dict(factor=4, filter="bicubic", sigma=ROUNDING)),
    "strokes": ("stroke-inpainting", dict(strokes=8, width=6.0, mask="fresh", sigma=ROUNDING)),
    "Gaussian blur": ("deblurring", dict(blur=1.5, kernel_size=25, boundary="valid", sigma=0.02)),
    "motion blur": ("motion-deblurring", dict(length=11, angle=30, sigma=0.02)),
}


def main(
    data: Annotated[Path, typer.Option(help="Folder of the pictures.")],
    model: Annotated[str, typer.Option(help="A bundled model's name, or a .safetensors file.")] = "photo",
    steps: Annotated[str, typer.Option(help="Numbers of Euler steps.")] = "1,2,4,10",
    limit: Annotated[int, typer.Option(min=1, help="Pictures.")] = 68,
    classical: Annotated[bool, typer.Option(help="Measure BM3D and biharmonic inpainting too (slow).")] = False,
    tasks: Annotated[str, typer.Option(help="Words; tasks whose name holds one of them.")] = "",
    out: Annotated[Path, typer.Option(help="File for the numbers.")] = HERE / "results.json",
    device_name: Annotated[str | None, typer.Option("--device", help="cpu, cuda or cuda:N.")] = None,
) -> None:
    """Degrade, restore, compare."""
    device = choose_device(device_name)
    network = None if model == "none" else tiled(fast(load(model).to(device)))
    files = folder_files(data)[:limit]
    results: dict[str, Any] = {"model": model, "machine": describe_machine(device), "tasks": {}}
    wanted = [name for name in TASKS if not tasks or any(word in name for word in tasks.split(","))]
    for name in wanted:
        rows: dict[str, list[float]] = {}
        for i, (task, x) in enumerate(tqdm(list(_problems(name, files)), desc=name)):
            op, y = task.measure(x.to(device), 42, i)
            for label, value in _measured(
                name, task, op, y, x.to(device), network, numbers(steps, "--steps"), classical
            ):
                rows.setdefault(label, []).append(round(value, 4))
        results["tasks"][name] = {"means": {k: round(sum(v) / len(v), 3) for k, v in rows.items()}, "pictures": rows}
        print(name, results["tasks"][name]["means"], flush=True)
        write_atomically(out, json.dumps(results, indent=1))


def _problems(name: str, files: list[Path]) -> Iterator[tuple[BaseTask, Tensor]]:
    """The task for each picture, and the picture (1, 3, H, W), landscape or portrait."""
    kind, settings = TASKS[name]
    for file in files:
        x = read_picture(file)[None]
        unit = 24 if settings.get("factor") == 3 else 16
        H, W = (n // unit * unit for n in x.shape[-2:])
        yield Task(kind, (H, W), **settings), x[..., :H, :W]


def _measured(
    name: str,
    task: BaseTask,
    op: LinearOperator,
    y: Tensor,
    x: Tensor,
    network: Any,
    steps: list[int],
    classical: bool,
) -> Iterator[tuple[str, float]]:
    """(label, PSNR in dB or LPIPS) of the input, the model and the classical methods, where they can be compared."""
    part = _part(name, op, x, y)
    yield "input", _psnr(part(_input(name, y)), part(x))
    for N in steps if network is not None else []:
        restored = restore(network, op, y, N, sigma=task.sigma).image.clamp(-1, 1)
        yield f"N={N}", _psnr(part(restored), part(x))
        if N in (2, 10) and name != "strokes":
            yield f"LPIPS N={N}", float(lpips(part(restored), part(x)))
    if classical:
        for label, method in _classical(name).items():
            yield label, _psnr(part(method(y.cpu(), op, task.sigma).to(x.device)), part(x))


def _part(name: str, op: LinearOperator, x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
    """Where to compare: inside the holes; where the blur was measured; else everywhere."""
    if name == "strokes":
        missing = op.mask.reshape(x.shape[-2:]) == 0  # type: ignore[attr-defined]
        return lambda v: v[..., missing][..., None]
    if name.endswith("blur"):
        reach = (x.shape[-2] - y.shape[-2]) // 2
        return lambda v: v if v.shape == y.shape else v[..., reach:-reach, reach:-reach]
    return lambda v: v


def _input(name: str, y: Tensor) -> Tensor:
    """What one had before: the measurement, enlarged by Pillow's bicubic interpolation where it is small."""
    if not name.startswith("bicubic"):
        return y
    factor = int(name[-1])
    h, w = y.shape[-2:]
    channels = [
        Image.fromarray(c.numpy()).resize((w * factor, h * factor), Image.Resampling.BICUBIC) for c in y[0].cpu()
    ]
    return torch.stack([torch.from_numpy(np.asarray(c).copy()) for c in channels])[None].clamp(-1, 1).to(y.device)


def _classical(name: str) -> dict[str, Callable[[Tensor, LinearOperator, float], Tensor]]:
    if name.startswith("denoising"):
        return {"BM3D": bm3d_rgb}
    return {"biharmonic": biharmonic} if name == "strokes" else {}


def bm3d_rgb(y: Tensor, op: LinearOperator, sigma: float) -> Tensor:
    """Color BM3D on [0, 1]."""
    from bm3d import bm3d_rgb as run

    found = run((y[0].permute(1, 2, 0).numpy() + 1) / 2, sigma / 2)
    return (torch.from_numpy(found).permute(2, 0, 1)[None].float() * 2 - 1).clamp(-1, 1)


def biharmonic(y: Tensor, op: LinearOperator, sigma: float) -> Tensor:
    """scikit-image's inpaint_biharmonic."""
    from skimage.restoration import inpaint_biharmonic

    hole = (op.mask.reshape(y.shape[-2:]) == 0).cpu().numpy()  # type: ignore[attr-defined]
    found = inpaint_biharmonic(y[0].permute(1, 2, 0).numpy(), hole, channel_axis=-1, split_into_regions=True)
    return torch.from_numpy(found).permute(2, 0, 1)[None].float().clamp(-1, 1)


def _psnr(x: Tensor, truth: Tensor) -> float:
    return float(psnr(x, truth))


if __name__ == "__main__":
    typer.run(main)
