"""``firm plot RUN``: the curves of a training run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer


def plot(
    run: Annotated[Path, typer.Argument(help="Folder of a training run.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Picture to write (default: RUN/curves.png).")] = None,
) -> None:
    """Draw loss (or error), validation PSNR, learning rate and speed of a training run."""
    import matplotlib.pyplot as plt

    from firm._util.files import check_file
    from firm.cli.checks import in_words

    with in_words():
        rows = training_rows(run)
        path = check_file(out or run / "curves.png")
        kinds = plt.figure().canvas.get_supported_filetypes()
        plt.close()
        if path.suffix[1:].lower() not in kinds:
            raise ValueError(f"--out {path}: the name of a picture should end in .png, .pdf or .svg")
        draw(rows, path)
    typer.echo(f"wrote {path}")


def training_rows(run: Path) -> list[dict[str, Any]]:
    """The rows of a run's log that hold numbers; an error if there are none."""
    from firm.training.log import read_log

    rows = [{k: v for k, v in row.items() if is_number(v)} for row in read_log(run)]
    rows = [row for row in rows if "step" in row and len(row) > 1]
    if not rows:
        raise ValueError(f"{run}: no metrics.jsonl with training records")
    return rows


def is_number(value: Any) -> bool:
    """Whether it can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Four panels in one picture."""
    import matplotlib.pyplot as plt

    balanced = any("error" in row for row in rows)  # the loss then stays near 1 by construction
    figure, axes = plt.subplots(2, 2, figsize=(10, 6.5), layout="constrained", sharex=True)
    for axis, (title, keys, log) in zip(
        axes.flat,
        [
            ("velocity error (running mean)", ["error"], True) if balanced else ("loss", ["loss"], True),
            ("validation PSNR (dB)", score_keys(rows), False),
            ("learning rate", ["lr"], False),
            ("images per second", ["images/s"], False),
        ],
        strict=True,
    ):
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


def score_keys(rows: list[dict[str, Any]]) -> list[str]:
    """The scores to draw: of "psnr N=n" and "psnr N=n task" every mean, and the single tasks of the first N."""
    keys = list(dict.fromkeys(key for row in rows for key in row if key.startswith("psnr")))
    steps = [key.split()[1] for key in keys if key.startswith("psnr N=")]
    return [key for key in keys if "N=" not in key or len(key.split()) == 2 or key.split()[1] == steps[0]]
