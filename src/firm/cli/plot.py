"""``firm plot RUN``: the curves of a training run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def plot(
    run: Annotated[Path, typer.Argument(help="Folder of a training run.")],
    out: Annotated[Path | None, typer.Option(help="Picture to write (default: RUN/curves.png).")] = None,
) -> None:
    """Draw loss (or error), validation PSNR, learning rate and speed of a training run."""
    import matplotlib.pyplot as plt

    from firm.training.logs import read_log

    rows = read_log(run)
    if not rows:
        raise typer.BadParameter(f"{run}: no metrics.jsonl with training records")
    balanced = any("error" in row for row in rows)  # the loss is then 1 by construction
    figure, axes = plt.subplots(2, 2, figsize=(10, 6.5), layout="constrained", sharex=True)
    for axis, (title, keys, log) in zip(
        axes.flat,
        [
            ("velocity error (running mean)", ["error"], True) if balanced else ("loss", ["loss"], True),
            ("validation PSNR (dB)", score_keys(rows), False),
            ("learning rate", ["rate"], False),
            ("images a second", ["images/s"], False),
        ],
        strict=True,
    ):
        for key in keys:
            points: list[tuple[Any, Any]] = [(row["step"], row[key]) for row in rows if key in row]
            axis.plot(*zip(*points, strict=True), marker="." if len(points) < 40 else None, label=key)
        axis.set(title=title, xlabel="step", yscale="log" if log else "linear")
        axis.grid(alpha=0.3)
        if len(keys) > 1:
            axis.legend(fontsize=8)
    path = out or run / "curves.png"
    figure.savefig(path, dpi=110)
    plt.close(figure)
    typer.echo(f"wrote {path}")


def score_keys(rows: list[dict[str, Any]]) -> list[str]:
    """The keys "psnr N=n" and "psnr N=n task" to draw: means for every N, single tasks for the first N only."""
    keys = list(dict.fromkeys(key for row in rows for key in row if key.startswith("psnr")))
    first = keys[0].split()[1] if keys else ""
    return [key for key in keys if len(key.split()) == 2 or key.split()[1] == first]
