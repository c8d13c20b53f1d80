"""Pictures a second of `firm restore FOLDER`: one process, torchrun with two, Ray with two actors; are the files equal?

python experiments/notes/scale/throughput.py 2000 FOLDER face-128 1 5        # N and K; then the numbers of the ways, if
python experiments/notes/scale/throughput.py 2000 FOLDER face-128 1 5 2 3    # not all: a folder keeps what there is

Seconds are those of the whole command. "Running" is the rate between the first and the last result.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image

WAYS = {
    "one process, 1 thread": ([], [], "1"),
    "one process, 2 threads": ([], [], "2"),
    "torchrun, 2 processes": (["-m", "torch.distributed.run", "--nproc-per-node", "2"], [], "1"),
    "Ray, 2 actors": ([], ["--ray", "2"], "1"),
}


def save(folder: Path, count: int) -> None:
    """Save noisy pictures of 128x128 pixels."""
    folder.mkdir(parents=True)
    numbers = np.random.default_rng(0)
    for i in range(count):
        coarse = Image.fromarray(numbers.integers(0, 256, (6, 6, 3), dtype=np.uint8)).resize((128, 128))
        noisy = np.asarray(coarse) + numbers.normal(0, 12.75, (128, 128, 3))
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / f"{i:05d}.png")


def contents(folder: Path) -> str:
    """Return a hash of all pictures of a folder."""
    total = hashlib.sha256()
    for path in sorted(folder.glob("*.png")):
        total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()


def running(folder: Path) -> float:
    """Return pictures a second between the first result and the last, without what comes before and after."""
    times = sorted(path.stat().st_mtime for path in folder.glob("*_restored.png"))
    return (len(times) - 1) / (times[-1] - times[0])


if __name__ == "__main__":
    count, folder, model, N, K = int(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:6]
    if not (folder / "in").exists():
        save(folder / "in", count)
    chosen = set(map(int, sys.argv[6:])) or set(range(len(WAYS)))
    for number, (name, (launch, more, threads)) in enumerate(WAYS.items()):
        if number not in chosen:
            continue
        out = folder / str(number)
        words = ["-m", "firm", "restore", str(folder / "in"), "--task", "denoising", "--sigma", "0.1", "--no-compare"]
        words += ["--model", model, "--device", "cpu", "--steps", N, "--iterations", K, "--force", "--out", str(out)]
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, *launch, *words, *more],
            env={**os.environ, "OMP_NUM_THREADS": threads}, capture_output=True, text=True,
        )  # fmt: skip
        seconds = time.perf_counter() - start
        assert done.returncode == 0, done.stderr
        found = {"s": round(seconds, 1), "pictures/s": round(count / seconds, 2), "running": round(running(out), 2)}
        first = min(chosen | {n for n in range(len(WAYS)) if (folder / str(n)).exists()})
        same = contents(out) == contents(folder / str(first))
        print(f"{name}: {json.dumps(found)}, the same files as way {first}: {same}", flush=True)
