"""Make the training set of `mri-brain`: slices of brains, 256x256, complex with zeros as imaginary parts.

``python experiments/mri/data.py OUT --git open_ms_data.git`` (or ``--folder`` of a checkout) writes OUT/train.npz and
OUT/val.npz. The volumes are those of muschellij2/open_ms_data (CC-BY, Lesjak et al. 2017), longitudinal/raw: T1W, T2W
and FLAIR of 20 patients. Nothing of them is in this repository. Needs nibabel. Validation images are of a patient left
out, and have a fixed smooth phase each; training draws a fresh one for every sample.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from firm.operators.coils import smooth_phase

LEFT_OUT = ("patient04",)
SIDE, LEVELS = 256, 512  # steps of the magnitude: 0.002, far below the noise; it makes the file small
LEAST = 0.05  # share of pixels above a tenth of white: slices with less hold no brain


def volumes(git: Path | None, folder: Path | None) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name and the values of every volume."""
    import nibabel

    if git is not None:
        listed = subprocess.run(["git", f"--git-dir={git}", "ls-tree", "-r", "-l", "HEAD"], capture_output=True,
                                text=True, check=True).stdout.splitlines()  # fmt: skip
        names = [line.split("\t")[1] for line in listed if "BAD" not in line.split("\t")[0]]
    else:
        assert folder is not None
        names = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*.nii.gz"))]
    for name in sorted(n for n in names if "longitudinal/raw/" in n and "/study" in n and n.endswith(".nii.gz")):
        with tempfile.NamedTemporaryFile(suffix=".nii.gz") as file:
            path = file.name
            if git is not None:
                done = subprocess.run(["git", f"--git-dir={git}", "show", f"HEAD:{name}"], capture_output=True,
                                      check=False)  # fmt: skip
                if done.returncode:
                    continue  # files above 4 MiB are missing in some mirrors
                file.write(done.stdout)
                file.flush()
            else:
                path = str(Path(str(folder)) / name)
            yield name, np.asarray(nibabel.load(path).dataobj, dtype=np.float32)


def slices(volume: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the slices of a volume as squares of 256 pixels, at most about 1 bright, those without a brain left out."""
    volume = np.moveaxis(volume, int(np.argmin(volume.shape)), 0)
    volume = volume / np.quantile(volume, 0.999)
    for one in volume:
        square = np.zeros((max(*one.shape, SIDE),) * 2, np.float32)
        top, left = ((len(square) - n) // 2 for n in one.shape)
        square[top : top + one.shape[0], left : left + one.shape[1]] = np.maximum(one, 0)
        if (square > 0.1).mean() >= LEAST:
            small = np.rot90(fewer(square)).clip(0, 1)
            yield np.round(small * LEVELS) / LEVELS


def fewer(square: np.ndarray) -> np.ndarray:
    """Keep the middle of k-space, as a scanner of this resolution would have measured it: magnitudes of 256x256."""
    n = len(square)
    k = np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(square)))[(n - SIDE) // 2 :, (n - SIDE) // 2 :][:SIDE, :SIDE]
    found: np.ndarray = np.abs(np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(k)))) * (SIDE / n) ** 2
    return found


def main() -> None:
    """Write both sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--git", type=Path)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--limit", type=int, default=10**6, help="volumes, to try")
    o = parser.parse_args()
    kept: dict[str, list[np.ndarray]] = {"train": [], "val": []}
    for number, (name, volume) in enumerate(volumes(o.git, o.folder)):
        if number >= o.limit:
            break
        which = "val" if any(patient in name for patient in LEFT_OUT) or o.limit == number + 1 else "train"
        found = list(slices(volume))
        kept[which] += found
        print(f"{name}: {len(found)} slices, {which}", flush=True)
    o.out.mkdir(parents=True, exist_ok=True)
    for which, found in kept.items():
        values = np.stack(found).astype(np.complex64)
        if which == "val":
            values = values[:: max(1, len(values) // 30)]
            u = torch.rand(len(values), 4, 4, generator=torch.Generator().manual_seed(0))
            values = values * smooth_phase(u, torch.full((len(values),), 0.7), (SIDE, SIDE))[:, 0].numpy()
        buffer = io.BytesIO()
        np.savez_compressed(buffer, values)
        (o.out / f"{which}.npz").write_bytes(buffer.getvalue())
        print(f"{which}: {values.shape}, {len(buffer.getvalue()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
