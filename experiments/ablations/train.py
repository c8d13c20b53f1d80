"""Train the eleven small networks of the ablations side by side on one GPU; the studies then only evaluate them.

    python -m experiments.ablations.train --data CELEBA --out OUT --jobs 4
    for NAME in ablation-k ablation-beta ablation-solver collapse; do firm reproduce $NAME --data CELEBA --out OUT; done

Small networks leave a large GPU idle between their kernels, so several at once take less time than one after the other.
"""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from experiments.ablations import collapse, study
from experiments.shared import Settings


def main(
    data: Annotated[Path, typer.Option(help="Folder of CelebA.")],
    out: Annotated[Path, typer.Option(help="The studies' folder.")] = Path("outputs"),
    jobs: Annotated[int, typer.Option(min=1, help="Networks at a time.")] = 4,
) -> None:
    """Train those that are not there yet; those that take longest first, so that no job ends alone."""
    pairs = [variant for pair in study.SOLVER.values() for variant in pair]
    every = [*study.DEPTH.values(), *study.DAMPING.values(), *pairs, *collapse.VARIANTS.values()]
    variants = {variant.name: variant for variant in sorted(every, key=lambda v: -v.changes.get("K", 5))}
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for path in pool.map(partial(study.trained, Settings(out, data)), variants.values()):
            print(path, flush=True)


if __name__ == "__main__":
    typer.run(main)
