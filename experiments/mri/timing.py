"""Time one image from its file to the restored one: ``python experiments/mri/timing.py SCAN.h5``."""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

import torch

import firm
from firm.instruments.mri import MriScan
from firm.operators import data_consistency


def main() -> None:
    """Print the seconds of every part, the second time it is done."""
    model = firm.load("photo")
    print(f"{torch.get_num_threads()} threads")
    for _ in range(2):
        marks = [time.perf_counter()]
        scan = MriScan.open(Path(sys.argv[1]), acceleration=4)
        marks.append(time.perf_counter())
        s = scan.slice(0)
        marks.append(time.perf_counter())
        firm.restore(model, s.op, s.y, 1, 1, 0, sigma=s.noise)
        marks.append(time.perf_counter())
        z = torch.zeros_like(s.op.A_adjoint(s.y))
        began = time.perf_counter()
        data_consistency(s.op, z, s.y, 0.01)
        solve = time.perf_counter() - began
        opened, sliced, restored = (b - a for a, b in itertools.pairwise(marks))
        print(f"open and look {opened:.2f} s, slice {sliced:.2f} s, restore {restored:.2f} s; one solve {solve:.3f} s")


if __name__ == "__main__":
    main()
