"""Does the wheel work on its own? Build it, install it in an empty environment, restore the bundled portrait.

    python tests/wheel.py [--python python3.12] [--torch 2.6.0] [--lowest] [--keep FOLDER]

--lowest installs the oldest version of every dependency that pyproject.toml allows.

`make wheel-test` runs it without options. It installs the dependencies anew, which is why `make test` does not run it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRY = """
import firm, torch
x = firm.data.portrait()
task = firm.Task("random-inpainting")
op, y = task.measure(x, seed=0)
r = firm.restore(firm.load("face-128"), op, y, steps=2, sigma=task.sigma)
print(torch.__version__, firm.__version__, float(firm.metrics.psnr(r.image, x)), float(firm.metrics.lpips(r.image, x)))
"""

TRAIN = """
dataset: arrays
data: images.npy
channels: 1
size: 16
task: random-inpainting
network: {ch: 8, mult: [1, 2], blocks: 1, attention: [], groups: 4}
K: 2
objective: balanced
optimizer: muon
batch_size: 4
epochs: 1
steps_per_epoch: 3
warm_start_epochs: 0
val_images: 2
out: run
"""


def run(*command: object, cwd: Path | None = None) -> str:
    """Run a command outside the checkout; its output, or the end of the script with what it said."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def constraints(folder: Path, torch: str | None, python: str, lowest: bool) -> list[str]:
    """Options that keep pip to the tested versions, on the tested Python; with another torch, to that one alone."""
    path = folder / "constraints.txt"
    text = (ROOT / "constraints.txt").read_text()
    if torch is not None:
        text = (
            re.sub(r"^(torch|torchvision|sympy|networkx|fsspec)==.*\n", "", text, flags=re.MULTILINE)
            + f"torch=={torch}\n"
        )
    if not python.startswith("3.11"):  # the pinned versions are those of Python 3.11; torch must stay the CPU build
        text = "".join(f"{line}\n" for line in text.splitlines() if line.startswith("torch=="))
    if lowest:
        listed = re.search(
            r"^dependencies = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL | re.MULTILINE
        )
        assert listed is not None
        text = "".join(f"{name}=={version}\n" for name, version in re.findall(r'"([\w-]+)>=([\d.]+)"', listed[1]))
    path.write_text(text)
    return ["-c", str(path)]


def main() -> None:
    """Build, install, restore."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--torch")
    parser.add_argument("--lowest", action="store_true")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="firm-wheel-"))
    folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (wheel,) = folder.glob("firm-*.whl")
    print(f"built {wheel.name}, {wheel.stat().st_size / 2**20:.1f} MB, {time.perf_counter() - start:.0f} s")
    run(options.python, "-m", "venv", folder / "env")
    python = folder / "env" / "bin" / "python"
    version = run(python, "-c", "import platform; print(platform.python_version())").strip()
    start = time.perf_counter()
    run(python, "-m", "pip", "install", "--quiet", wheel, *constraints(folder, options.torch, version, options.lowest))
    print(f"installed on Python {version}, {time.perf_counter() - start:.0f} s")
    print("in Python: torch, firm, PSNR, LPIPS:", run(python, "-W", "error", "-c", TRY, cwd=folder).strip())
    picture = run(
        python, "-c", "from importlib.resources import files; print(files('firm.assets') / 'astronaut.png')"
    ).strip()
    out = folder / "restored"
    run(python, "-m", "firm", "restore", picture, "--simulate", "deblurring", "--out", out, cwd=folder)
    (row,) = json.loads((out / "restore.json").read_text())
    assert row["psnr"] > 33, row
    assert (out / "astronaut_restored.png").is_file()
    print(f"on the command line: {row['psnr']:.2f} dB; {run(folder / 'env' / 'bin' / 'firm', '--version').strip()}")
    refused = subprocess.run([python, "-m", "firm", "reproduce", "toy"], cwd=folder, capture_output=True, text=True)
    assert (refused.returncode, "come with a checkout" in refused.stderr) == (2, True), refused.stderr
    (folder / "train.yaml").write_text(TRAIN)
    run(
        python,
        "-c",
        "import numpy; numpy.save('images.npy', numpy.random.rand(20, 1, 16, 16).astype('float32'))",
        cwd=folder,
    )
    print("training:", run(python, "-m", "firm", "train", "train.yaml", cwd=folder).strip().splitlines()[-1])
    if options.keep is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
