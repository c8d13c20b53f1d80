"""What networks that were not trained for it do in phase retrieval and JPEG: ``python run.py phase|jpeg DATA``."""

from __future__ import annotations

import argparse
import io
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Generator, Tensor

import firm
from firm.baselines import hio
from firm.data import load_images, read_picture
from firm.metrics import psnr


def phase(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Restore faces from oversampled Fourier magnitudes, by FIRM with restarts and by hybrid input-output."""
    model = firm.fast(firm.load("face-128"))
    faces = load_images("celeba", given.data, "test", size=128, channels=3, limit=given.limit).batch(slice(None))
    rows = []
    for i, x in enumerate(faces.split(1)):
        task = firm.Task("phase-retrieval", 128, sigma=given.sigma)
        op, y = task.measure(x, index=i)
        row: dict[str, Any] = {"face": i}
        start = time.monotonic()
        by_hio = hio(op, y, steps=given.hio_steps, restarts=given.restarts, generator=Generator().manual_seed(i))
        row["HIO"], row["HIO seconds"] = score(task, by_hio, x), round(time.monotonic() - start, 1)
        start = time.monotonic()
        r = firm.restore(model, op, y, given.steps, samples=given.restarts, seed=1000 + i, sigma=given.told)
        row["FIRM"], row["FIRM seconds"] = score(task, r.image, x), round(time.monotonic() - start, 1)
        row["FIRM, each restart"] = [score(task, s, x) for s in r.samples]
        row["FIRM misfit"] = float((op.A(r.image) - y).square().mean().sqrt())
        row["HIO misfit"] = float((op.A(by_hio) - y).square().mean().sqrt())
        rows.append(row)
        print(row, flush=True)
    return rows


def jpeg(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Restore compressed photographs, the center of each; beside it the decoded picture, denoised, then projected."""
    model = firm.fast(firm.load("photo"))
    rows = []
    for path in sorted(given.data.iterdir())[: given.limit]:
        x = read_picture(path)[None]
        top, left = ((n - given.size) // 2 for n in x.shape[-2:])
        x = x[..., max(top, 0) :, max(left, 0) :][..., : given.size, : given.size]
        x = x[..., : x.shape[-2] // 16 * 16, : x.shape[-1] // 16 * 16]
        for quality in given.quality:
            task = firm.Task("jpeg", tuple(x.shape[-2:]), jpeg_quality=quality)
            op, y = task.measure(x)
            decoded = y.clamp(-1, 1)
            row: dict[str, Any] = {"picture": path.name, "quality": quality, "decoded": score(task, decoded, x)}
            row["decoded by Pillow"] = score(task, by_pillow(x, quality), x)
            told = task.sigma if given.told is None else given.told
            r = firm.restore(model, op, y, given.steps, sigma=told)
            row["FIRM"] = score(task, r.image.clamp(-1, 1), x)
            row["outside its cells by"] = float(op.excess(r.image, y))
            plain = firm.restore(model, firm.operators.Identity(), decoded, given.steps, sigma=told).image
            row["denoised"] = score(task, plain.clamp(-1, 1), x)
            row["denoised, projected"] = score(task, op.project(plain, y).clamp(-1, 1), x)
            rows.append(row)
            print(row, flush=True)
    return rows


def by_pillow(x: Tensor, quality: int) -> Tensor:
    """Compress and decompress an image by Pillow, which interpolates colors."""
    buffer = io.BytesIO()
    levels = ((x[0].permute(1, 2, 0) + 1) * 127.5).round().byte().numpy()
    Image.fromarray(levels).save(buffer, "JPEG", quality=quality, subsampling="4:2:0")
    return torch.from_numpy(np.array(Image.open(buffer))).permute(2, 0, 1)[None].float() / 127.5 - 1


def score(task: firm.tasks.BaseTask, x: Tensor, truth: Tensor) -> float:
    """Compute PSNR in dB, turned and shifted as the measurement allows."""
    return round(float(psnr(task.aligned(x, truth), truth)), 2)


def main() -> None:
    """Run one of the two, and write its rows and their means."""
    parser = argparse.ArgumentParser()
    parser.add_argument("which", choices=("phase", "jpeg"))
    parser.add_argument("data", type=Path)
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--restarts", type=int, default=4)
    parser.add_argument("--hio-steps", type=int, default=500)
    parser.add_argument("--sigma", type=float, default=0.01)
    parser.add_argument("--told", type=float, default=None)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--quality", type=int, nargs="*", default=[10])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.which == "phase" and given.told is None:
        given.told = given.sigma
    rows = {"phase": phase, "jpeg": jpeg}[given.which](given)
    keys = [key for key, value in rows[0].items() if isinstance(value, float)]
    means = {key: round(statistics.fmean(row[key] for row in rows), 3) for key in keys}
    print("mean", means)
    if given.out:
        given.out.write_text(
            json.dumps(
                {
                    "settings": {k: str(v) for k, v in vars(given).items() if k not in ("data", "out")},
                    "rows": rows,
                    "mean": means,
                },
                indent=1,
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
