"""``firm plot RUN``: the curves of a training run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from firm._util.checks import require
from firm._util.terminal import printable
from firm.cli.options import user_errors


@user_errors()
def plot(
    run: Annotated[Path, typer.Argument(help="Folder of a training run.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Picture to write (default: RUN/curves.png).")] = None,
) -> None:
    """Draw loss (or error), validation PSNR, learning rate and speed of a training run."""
    import matplotlib.pyplot as plt

    from firm._util.files import check_file
    from firm.training.log import read_log

    found = ({key: v for key, v in row.items() if _can_be_drawn(v)} for row in read_log(run))
    rows = [row for row in found if "step" in row and len(row) > 1]
    require(rows, f"{run}: no metrics.jsonl with training records")
    path = check_file(out or run / "curves.png")
    figure, axes = plt.subplots(2, 2, figsize=(10, 6.5), layout="constrained", sharex=True)
    known = path.suffix[1:].lower() in figure.canvas.get_supported_filetypes()
    require(known, f"--out {path}: the name of a picture should end in .png, .pdf or .svg")
    balanced = any("error" in row for row in rows)  # the loss then stays near 1 by construction
    panels = [
        ("velocity error (running mean)", ["error"], True) if balanced else ("loss", ["loss"], True),
        ("validation PSNR (dB)", _score_keys(rows), False),
        ("learning rate", ["lr"], False),
        ("images per second", ["images/s"], False),
    ]
    for axis, (title, keys, log) in zip(axes.flat, panels, strict=True):
        for key in keys:
            points: list[tuple[Any, Any]] = [(row["step"], row[key]) for row in rows if key in row]
            axis.plot(*zip(*points, strict=True), marker="." if len(points) < 40 else None, label=key)
        positive = any(0 < row.get(key, 0) < math.inf for key in keys for row in rows)
        axis.set(title=title, xlabel="step", yscale="log" if log and positive else "linear")
        axis.grid(alpha=0.3)
        if len(keys) > 1:
            axis.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    typer.echo(printable(f"wrote {path}"))


def _can_be_drawn(value: Any) -> bool:
    """Tell whether a value of the log is a number that a plot has room for."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _score_keys(rows: list[dict[str, Any]]) -> list[str]:
    """Which keys of a log to draw: of "psnr N=n" and "psnr N=n task" the mean of every N, and the first N's tasks."""
    keys = list(dict.fromkeys(key for row in rows for key in row if key.startswith("psnr")))
    steps = [key.split()[1] for key in keys if key.startswith("psnr N=")]
    return [key for key in keys if "N=" not in key or len(key.split()) == 2 or key.split()[1] == steps[0]]
