"""Files for onnxruntime against torch: the PSNR of both, the least time on two threads, the size of the file.

python experiments/notes/scale/onnx_files.py write FOLDER face-128 photo     # ten files, minutes
python experiments/notes/scale/onnx_files.py time FOLDER face-128 photo      # one picture of 128x128, float32
python experiments/notes/scale/onnx_files.py score FOLDER photo              # the same, timed once: for a busy machine
"""

import os
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as `firm` does where it is imported before torch

import onnxruntime
import torch
from torch import Tensor

import firm
from firm.metrics import psnr
from firm.operators import Blur, Downsample, Identity, Mask, Subsample, gaussian_kernel
from firm.scale.export import export_model

SIGMA, REPEATS = 0.1, 15
TASKS = {
    "denoising": {}, "inpainting": {}, "deblurring": {}, "super-resolution": {},
    "stride": {"task": "super-resolution", "filter": "stride"},
}  # fmt: skip


def problem(name: str, x: Tensor) -> tuple[firm.operators.LinearOperator, dict[str, Tensor]]:
    """Return an operator and the inputs of the file that stand for it."""
    mask = (torch.rand(1, 1, *x.shape[-2:], generator=torch.Generator().manual_seed(3)) > 0.5).float()
    kernel = gaussian_kernel(25, 1.0)
    return {
        "denoising": (Identity(), {}), "inpainting": (Mask(mask), {"mask": mask.expand(len(x), -1, -1, -1)}),
        "deblurring": (Blur(kernel), {"kernel": kernel}), "super-resolution": (Downsample(2), {}),
        "stride": (Subsample(2), {}),
    }[name]  # fmt: skip


def compare(model: firm.Firm, name: str, file: Path, pictures: list[Tensor], repeats: int) -> str:
    """Restore pictures by torch and by onnxruntime, and time both in turn: one row of the table."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    scores: list[list[float]] = [[], []]
    for i, x in enumerate(pictures):
        op, pattern = problem(name, x)
        g = torch.Generator().manual_seed(i)
        y = op.A(x) + SIGMA * torch.randn(op.A(x).shape, generator=g)
        noise = torch.randn(x.shape, generator=g)
        given = {"y": y, "noise": noise, "sigma": torch.full((len(x),), SIGMA), **pattern}
        arrays = {key: value.numpy() for key, value in given.items()}

        def by_torch(op=op, y=y, noise=noise) -> Tensor:
            return firm.sample(model, op, y, 1, sigma=SIGMA, x_0=noise)

        def by_file(arrays=arrays) -> Tensor:
            return torch.from_numpy(session.run(None, arrays)[0])

        ways = (by_torch, by_file)
        for score, way in zip(scores, ways, strict=True):
            score.append(float(psnr(way(), x).mean()))
    seconds: list[list[float]] = [[], []]
    for _ in range(repeats):
        for taken, way in zip(seconds, ways, strict=True):
            start = time.perf_counter()
            way()
            taken.append(time.perf_counter() - start)
    (a, b), (t, o) = (map(statistics.mean, scores)), (map(min, seconds))
    away = max(abs(p - q) for p, q in zip(*scores, strict=True))
    return f"{file.stat().st_size / 1e6:.1f} MB | {a:.3f} | {b:.3f} | {away:.4f} | {1e3 * t:.0f} ms | {1e3 * o:.0f} ms"


if __name__ == "__main__":
    what, folder, models = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    folder.mkdir(parents=True, exist_ok=True)
    cat = firm.data.cat()
    shown = [firm.data.portrait(), cat[..., 64:192, 64:192], cat[..., :128, 100:228]]
    for model_name in models:
        model = firm.load(model_name)
        for name, settings in TASKS.items():
            file = folder / f"{model_name}-{name}.onnx"
            if what == "write":
                start = time.perf_counter()
                done = export_model(model, file, **{"task": name, "steps": 1, **settings})
                print(f"{file.name}: {time.perf_counter() - start:.0f} s, {done.difference:.1e}", flush=True)
            else:
                with torch.inference_mode():
                    row = compare(model, name, file, shown, 1 if what == "score" else REPEATS)
                print(f"| {model_name} | {name} | {row} |", flush=True)
