"""The training set of configs/ct.yaml: slices of DICOM series as arrays in [-1, 1]: ``python data.py OUT SERIES...``.

Every SERIES is a folder of one person. The last one given is for validation; nobody is in both parts. OUT/train and
OUT/val hold one .npy file for each slice, (1, H, W), -1 for air, 0 for water and 1 for 1000 HU and more. Nothing of
it is to be committed: these are people.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from experiments.ct.dicom import attenuation, series

BODY = 0.05  # share of pixels that must absorb something, for a slice to be kept


def write(folder: Path, out: Path, every: int) -> int:
    """Write the slices of one person, and return how many."""
    out.mkdir(parents=True, exist_ok=True)
    written = 0
    for i, path in enumerate(series(folder)[::every]):
        x, _ = attenuation(path)
        if float((x > -0.9).float().mean()) > BODY:
            np.save(out / f"{folder.name}-{i:04d}.npy", x[0].numpy().astype(np.float16))
            written += 1
    return written


def main() -> None:
    """Read what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("series", type=Path, nargs="+")
    parser.add_argument("--every", type=int, default=1, help="take every so many of the slices")
    given = parser.parse_args()
    *train, val = given.series
    for folder in given.series:
        part = "val" if folder == val and train else "train"
        print(f"{folder}: {write(folder, given.out / part, given.every)} slices for {part}")


if __name__ == "__main__":
    main()
