"""Train the eleven small networks of the ablations side by side on one GPU; the studies then only evaluate them.

    python -m experiments.ablations.train --data CELEBA --out OUT --jobs 4
    for NAME in ablation-k ablation-beta ablation-solver collapse; do firm reproduce $NAME --data CELEBA --out OUT; done

Small networks leave a large GPU idle between their kernels, so several at once take less time than one after the other.
What is there already is not trained again. The log of every network is beside its folder, OUT/networks/NAME.log.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer

from experiments.ablations import collapse, study
from experiments.shared import Settings


def main(
    data: Annotated[Path, typer.Option(help="Folder of CelebA.")],
    out: Annotated[Path, typer.Option(help="The studies' folder.")] = Path("outputs"),
    jobs: Annotated[int, typer.Option(min=1, help="Networks at a time.")] = 4,
    only: Annotated[str, typer.Option(help="One network, in this process.")] = "",
) -> None:
    """Train them all, or one; those that take longest first, so that no job ends alone."""
    pairs = [variant for pair in study.SOLVER.values() for variant in pair]
    every = [*study.DEPTH.values(), *study.DAMPING.values(), *pairs, *collapse.VARIANTS.values()]
    variants = {variant.name: variant for variant in sorted(every, key=lambda v: -v.changes.get("K", 5))}
    if only:
        study.trained(Settings(out, data), variants[only])
        return

    def train(name: str) -> int:
        with open(out / "networks" / f"{name}.log", "ab") as log:
            command = [sys.executable, "-m", "experiments.ablations.train", "--data", data, "--out", out]
            code = subprocess.run([*command, "--only", name], stdout=log, stderr=log).returncode
        print(f"{name}: {'done' if code == 0 else f'failed, see {log.name}'}", flush=True)
        return code

    (out / "networks").mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(jobs) as pool:
        failed = sum(map(bool, pool.map(train, variants)))
    raise typer.Exit(failed)


if __name__ == "__main__":
    typer.run(main)
