"""A model on the 68 photographs of CBSD68: what `firm restore` gains on its input and on classical methods.

    python experiments/notes/photo/run.py --data PHOTOS/test [--model photo --steps 1,2,4,10 --limit 68]

Writes results.json beside this file (or to --out): means and the numbers of every picture. Pictures are cut to 480x320,
to 480x312 for x3. With --classical, BM3D (`pip install bm3d`) and biharmonic inpainting (`pip install scikit-image`)
are measured beside.
"""

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
from firm._util.checks import numbers
from firm._util.files import write_atomically
from firm._util.machine import choose_device, describe_machine
from firm.data import folder_files, read_picture
from firm.metrics import lpips, psnr
from firm.tasks import BaseTask, Task

OUT = Path(__file__).with_name("results.json")
GRAY = 2 / 255  # a gray level, for pixels in [-1, 1]
ROUNDING = 0.005  # about the noise level of 8 bits
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"denoising {n}": ("denoising", dict(sigma=n * GRAY)) for n in (15, 25, 50)},
    **{f"bicubic x{n}": ("super-resolution", dict(factor=n, filter="bicubic", sigma=ROUNDING)) for n in (2, 3, 4)},
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
    out: Annotated[Path, typer.Option(help="File for the numbers.")] = OUT,
    device_name: Annotated[str | None, typer.Option("--device", help="cpu, cuda or cuda:N.")] = None,
) -> None:
    """Degrade, restore, compare."""
    device = choose_device(device_name)
    network = None if model == "none" else tiled(fast(load(model).to(device)))
    files = folder_files(data)[:limit]
    results: dict[str, Any] = {"model": model, "machine": describe_machine(device), "tasks": {}}
    for name in [name for name in TASKS if not tasks or any(word in name for word in tasks.split(","))]:
        rows: dict[str, list[float]] = {}
        for i, file in enumerate(tqdm(files, desc=name)):
            task, x = _problem(name, file)
            found = _measured(name, task, x.to(device), i, network, numbers(steps, "--steps"), classical)
            for label, value in found:
                rows.setdefault(label, []).append(round(value, 4))
        results["tasks"][name] = {"means": {k: round(sum(v) / len(v), 3) for k, v in rows.items()}, "pictures": rows}
        print(name, results["tasks"][name]["means"], flush=True)
        write_atomically(out, json.dumps(results, indent=1))


def _problem(name: str, file: Path) -> tuple[BaseTask, Tensor]:
    """The task for a picture, and the picture (1, 3, H, W), landscape or portrait."""
    kind, settings = TASKS[name]
    x, unit = read_picture(file)[None], 24 if settings.get("factor") == 3 else 16
    H, W = (n // unit * unit for n in x.shape[-2:])
    return Task(kind, (H, W), **settings), x[..., :H, :W]


def _measured(
    name: str, task: BaseTask, x: Tensor, index: int, network: Any, steps: list[int], classical: bool
) -> Iterator[tuple[str, float]]:
    """(label, PSNR in dB or LPIPS) of the input, the model and the classical methods, where they can be compared."""
    op, y = task.measure(x, 42, index)
    hole = op.mask.reshape(x.shape[-2:]) == 0 if name == "strokes" else None
    reach = (x.shape[-2] - y.shape[-2]) // 2

    def part(v: Tensor) -> Tensor:
        """Where to compare: inside the holes; where the blur was measured; else everywhere."""
        if hole is not None:
            return v[..., hole][..., None]
        inner = name.endswith("blur") and v.shape != y.shape
        return v[..., reach:-reach, reach:-reach] if inner else v

    yield "input", float(psnr(part(_enlarged(y, int(name[-1])) if name.startswith("bicubic") else y), part(x)))
    for N in steps if network is not None else []:
        restored = restore(network, op, y, N, sigma=task.sigma).image.clamp(-1, 1)
        yield f"N={N}", float(psnr(part(restored), part(x)))
        if N in (2, 10) and name != "strokes":
            yield f"LPIPS N={N}", float(lpips(part(restored), part(x)))
    method: Callable[[Any], Any]
    if classical and name.startswith("denoising"):
        from bm3d import bm3d_rgb

        label, method = "BM3D", lambda v: bm3d_rgb((v + 1) / 2, task.sigma / 2) * 2 - 1
    elif classical and hole is not None:
        from skimage.restoration import inpaint_biharmonic

        mask = hole.cpu().numpy()
        label, method = "biharmonic", lambda v: inpaint_biharmonic(v, mask, channel_axis=-1, split_into_regions=True)
    else:
        return
    found = torch.from_numpy(method(y[0].permute(1, 2, 0).cpu().numpy())).permute(2, 0, 1)[None].float().clamp(-1, 1)
    yield label, float(psnr(part(found.to(x.device)), part(x)))


def _enlarged(y: Tensor, factor: int) -> Tensor:
    """A small measurement, enlarged by Pillow's bicubic interpolation."""
    size = (y.shape[-1] * factor, y.shape[-2] * factor)
    channels = [Image.fromarray(c.numpy()).resize(size, Image.Resampling.BICUBIC) for c in y[0].cpu()]
    return torch.stack([torch.from_numpy(np.array(c)) for c in channels])[None].clamp(-1, 1).to(y.device)


if __name__ == "__main__":
    typer.run(main)
