"""Make the pictures of docs/photographs.md from free photographs that come with scikit-image (coffee, chelsea: CC0).

python experiments/notes/photographs/make.py SKIMAGE_DATA docs/images
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

from firm.data import read_picture
from firm.operators.patterns import gaussian_kernel, motion_kernel
from firm.restoration.output import write_picture

WIDTH, HEIGHT = 320, 240


def main(source: Path, out: Path) -> None:
    """Degrade crops, restore them by the commands that the page names, and lay before and after side by side."""
    coffee = read_picture(source / "coffee.png")[:, 100 : 100 + HEIGHT, 120 : 120 + WIDTH]
    cat = read_picture(source / "chelsea.png")[:, 30 : 30 + HEIGHT, 80 : 80 + WIDTH]
    noise = torch.Generator().manual_seed(0)

    def grain(x: torch.Tensor, level: float) -> torch.Tensor:
        n = torch.randn(x.shape, generator=noise)
        coarse = F.avg_pool2d(F.pad(n[None], [1] * 4, mode="reflect"), 3, 1)[0]
        return x + level * (0.9 * n + 0.8 * coarse) * (1.2 - 0.4 * x.mean(0))

    def blurred(x: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
        pad = [kernel.shape[-1] // 2] * 4
        return F.conv2d(F.pad(x[:, None], pad, mode="reflect"), kernel.flip((-2, -1))[None, None])[:, 0]

    def slight(x: torch.Tensor) -> torch.Tensor:
        return x + 0.008 * torch.randn(x.shape, generator=noise)

    scratched, mask = cat.clone(), np.zeros((HEIGHT, WIDTH), np.uint8)
    for row, column, slope in ((40, 0, 0.4), (10, 60, 0.9), (200, 0, -0.5)):
        for x in range(column, min(WIDTH, column + 230)):
            y = int(row + slope * (x - column))
            mask[max(0, y - 2) : max(0, y + 2), x] = 255
    scratched[:, torch.from_numpy(mask > 0)] = 1
    small = F.interpolate(cat[None], size=(HEIGHT // 3, WIDTH // 3), mode="bicubic", antialias=True)[0]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        Image.fromarray(mask).save(place / "mask.png")
        dark = ((grain(coffee, 0.12).clamp(-1, 1) + 1) * 127.5).round().byte().permute(1, 2, 0).numpy()
        Image.fromarray(dark).save(place / "dark.jpg", quality=70)
        cases = {
            "dark": (None, []),
            "blurred": (slight(blurred(coffee, gaussian_kernel(21, 1.8))), ["--task", "deblurring"]),
            "moved": (slight(blurred(coffee, motion_kernel(25, 11.0, 30.0))),
                      ["--task", "motion-deblurring", "--length", "11", "--angle", "30"]),
            "scratched": (scratched, ["--task", "inpainting", "--mask", str(place / "mask.png")]),
            "small": (small, ["--task", "super-resolution", "--scale", "3"]),
        }  # fmt: skip
        for name, (picture, words) in cases.items():
            path = place / f"{name}.{'jpg' if picture is None else 'png'}"
            if picture is not None:
                write_picture(path, picture)
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "firm",
                    "restore",
                    str(path),
                    *words,
                    "--steps",
                    "1",
                    "--out",
                    str(place / "out"),
                ],
                check=True,
            )
            (done,) = (place / "out").glob(f"{name}_restored.*")
            before, after = (Image.open(p).convert("RGB") for p in (path, done))
            if before.size != after.size:
                before = before.resize(after.size, Image.Resampling.NEAREST)
            sheet = Image.new("RGB", (2 * after.width + 8, after.height), "white")
            sheet.paste(before, (0, 0))
            sheet.paste(after, (after.width + 8, 0))
            sheet.save(out / f"photo-{name}.jpg", quality=85)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
