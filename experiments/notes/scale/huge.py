"""An 8-bit array restored in two block sizes by two threads, with a small network: peak memory, time, agreement.

python experiments/notes/scale/huge.py 16000 FOLDER                   # a network of random weights, blocks of 1024, 768
python experiments/notes/scale/huge.py 2500 FOLDER photo 1024 640     # a bundled model, and blocks; a run goes on
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

import firm
from firm.networks import ResUNet

PART = """
import sys, time, resource
from firm.scale import restore_array
source, out, model, block = sys.argv[1:]
start = time.perf_counter()
restore_array(source, out, model, sigma=0.1, steps=1, block=int(block), workers=2, device="cpu", dtype="float32")
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


def source(path: Path, side: int) -> None:
    """Write a noisy picture of this side, a strip at a time."""
    array = np.lib.format.open_memmap(path, "w+", np.uint8, (side, side))
    numbers = np.random.default_rng(0)
    for top in range(0, side, 256):
        rows, columns = np.mgrid[top : min(side, top + 256), 0:side]
        values = 127 + 80 * np.sin(rows / 37) * np.cos(columns / 53) + numbers.normal(0, 12.75, rows.shape)
        array[top : top + 256] = values.clip(0, 255)


def small_model(path: Path) -> None:
    """Save a model of one iteration whose weights are random: the memory of blocks does not depend on them."""
    torch.manual_seed(0)
    extra = ("previous", "context", "iteration")
    net = ResUNet(1, widths=(4, 8), blocks=1, attention=False, noise_level=True, extra=extra)
    firm.Firm(net, firm.Solver(K=1, output="correction")).save(path)


if __name__ == "__main__":
    side, folder, *rest = int(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]
    chosen, blocks = rest[0] if rest else str(folder / "small.safetensors"), list(map(int, rest[1:])) or [1024, 768]
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "y.npy").exists():
        source(folder / "y.npy", side)
        small_model(folder / "small.safetensors")
    import zarr

    for block in blocks:
        words = [str(folder / "y.npy"), str(folder / f"{block}.zarr"), chosen]
        done = subprocess.run(
            [sys.executable, "-c", PART, *words, str(block)], capture_output=True, text=True, check=True
        )
        seconds, peak = map(float, done.stdout.split())
        print(f"{side} x {side}, blocks of {block}: {seconds:.0f} s, at most {peak:.2f} GiB", flush=True)
    first, second = (zarr.open(folder / f"{block}.zarr", mode="r") for block in blocks)
    rows = range(0, side, 1024)
    worst = max(float(np.abs((first[r : r + 1024] - second[r : r + 1024]) / 127.5).max()) for r in rows)
    print(f"the two differ by at most {worst:.1e} in [-1, 1]")
