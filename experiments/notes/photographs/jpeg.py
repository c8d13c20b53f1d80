"""JPEG: the level that a look finds against the best one set by hand, and enlarging against Lanczos.

Run ``python experiments/notes/photographs/jpeg.py shared/data/photos/val 33`` (the folder, and every so many pictures).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import firm
from firm.data import read_picture
from firm.restoration import Problem
from firm.restoration.look import NothingToDoError

LEVELS = (0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2)


def psnr(x: torch.Tensor, truth: torch.Tensor) -> float:
    """In dB, of images in [-1, 1]."""
    return float(-10 * torch.log10(((x.clamp(-1, 1) - truth) / 2).square().mean()))


def restored(model: firm.Firm, path: Path, task: str | None, **settings: Any) -> tuple[torch.Tensor, float]:
    """Restore as `firm restore` does; the picture as it is where it needs nothing."""
    try:
        p = Problem.from_file(path, task, **settings)
    except NothingToDoError:
        return read_picture(path), 0.0
    r = firm.restore(model, p.op, p.y, seed=0, sigma=p.told)
    return p.finish(r.image)[0], float(p.settings["sigma"])


def mean(values: Iterable[float]) -> float:
    """With three digits."""
    return round(float(np.mean(list(values))), 3)


def main(folder: str, every: int) -> None:
    """Print the means as JSON."""
    model = firm.tiled(firm.fast(firm.load("photo")))
    files = sorted(Path(folder).iterdir())[::every]
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for file in files:
            truth = read_picture(file)
            picture = Image.fromarray(((truth + 1) * 127.5).round().byte().permute(1, 2, 0).numpy())
            row: dict[str, Any] = {"picture": file.name}
            path = Path(place) / "a.jpg"
            picture.save(path, quality=30)
            row["jpeg"] = psnr(read_picture(path), truth)
            x, row["found"] = restored(model, path, None)
            row["itself"] = psnr(x, truth)
            row["hand"] = [psnr(restored(model, path, "denoising", sigma=s)[0], truth) for s in LEVELS]
            h, w = (n // 2 for n in truth.shape[-2:])
            small = picture.resize((w, h), Image.Resampling.BICUBIC)
            for quality in (50, 75, 90):
                small.save(path, quality=quality)
                decoded = Image.open(path).convert("RGB")
                large = decoded.resize((2 * w, 2 * h), Image.Resampling.LANCZOS)
                lanczos = torch.from_numpy(np.array(large)).permute(2, 0, 1) / 127.5 - 1
                x, level = restored(model, path, "super-resolution", scale=2)
                cut = truth[:, : 2 * h, : 2 * w]
                row[f"enlarged {quality}"] = [psnr(x, cut), psnr(lanczos, cut), level]
            rows.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
    hand = np.array([row["hand"] for row in rows])
    print(json.dumps({
        "pictures": len(rows), "JPEG of quality 30": mean(r["jpeg"] for r in rows),
        "by itself": mean(r["itself"] for r in rows), "level found": mean(r["found"] for r in rows),
        "by hand": dict(zip(LEVELS, hand.mean(0).round(3).tolist(), strict=True)),
        "best level of each picture": mean(hand.max(1)),
        **{f"enlarged, quality {q}": {
            "FIRM": mean(r[f"enlarged {q}"][0] for r in rows), "Lanczos": mean(r[f"enlarged {q}"][1] for r in rows),
            "least difference": round(min(r[f"enlarged {q}"][0] - r[f"enlarged {q}"][1] for r in rows), 3),
        } for q in (50, 75, 90)},
    }, indent=1))  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], int(sys.argv[2]))
