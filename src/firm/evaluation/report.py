"""Summaries of an evaluation: a table per task, one JSON file, comparison pictures."""

from __future__ import annotations

import io
import math
import statistics
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.table import Table

from firm._util.checks import counted
from firm._util.files import write_atomically
from firm.evaluation.methods import NamedMethod, degraded
from firm.evaluation.records import Row
from firm.evaluation.run import Evaluation, chunks, measure_chunk, restore_chunk, score_images
from firm.metrics import visible
from firm.tasks import BaseTask

DIGITS = {"psnr": 2, "ssim": 3, "lpips": 3}  # of the metrics, as they are shown
TITLE = 26  # letters above a picture


def summarize(rows: Sequence[Row]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return mean and standard deviation of every metric, NFE, median time and peak memory: summary[task][method]."""
    summary: dict[str, dict[str, dict[str, Any]]] = {}
    for task, method in dict.fromkeys((row["task"], row["method"]) for row in rows):
        group = [row for row in rows if (row["task"], row["method"]) == (task, method)]
        values: dict[str, Any] = {"images": len(group)}
        for metric in DIGITS:
            if numbers := [row[metric] for row in group if metric in row]:  # else it is not defined for these images
                several = len(numbers) > 1 and all(map(math.isfinite, numbers))  # an exact restoration: infinite PSNR
                values[metric] = statistics.fmean(numbers)
                values[f"{metric}_std"] = statistics.stdev(numbers) if several else 0.0
        values |= {key: group[0][key] for key in ("fingerprint", "nfe")}
        values["seconds"] = statistics.median(row["seconds"] for row in group)
        values["peak_mb"] = max(row["peak_mb"] for row in group)
        summary.setdefault(task, {})[method] = values
    return summary


def tables(summary: dict[str, dict[str, dict[str, Any]]], convention: str) -> list[Table]:
    """Return one table per task: mean ± standard deviation over the images, network calls, time, memory."""
    out = []
    for task, methods in summary.items():
        count = max(values["images"] for values in methods.values())
        title = f"{task} ({counted(count)}, convention {convention})"
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        table.add_column("method", overflow="fold")  # long names take lines, not room from the numbers
        for column in ("PSNR", "SSIM", "LPIPS", "NFE", "s/image", "MB"):  # fits a terminal of 80 columns
            table.add_column(column, justify="right", no_wrap=True)
        for method, v in methods.items():
            scores = (f"{v[m]:.{d}f}±{v[m + '_std']:.{d}f}" if m in v else "-" for m, d in DIGITS.items())
            nfe = "-" if v["nfe"] is None else str(v["nfe"])
            table.add_row(method, *scores, nfe, f"{v['seconds']:.4f}", f"{v['peak_mb']:.0f}")
        out.append(table)
    return out


def comparison(
    evaluation: Evaluation, task: BaseTask, rows: Sequence[NamedMethod], count: int, path: Path, *, batch_size: int = 8
) -> None:
    """Draw the first images to a file: truth, each method, and the error of the last; metrics below.

    Parameters
    ----------
    evaluation, task
        Where the images are from, and what measures them.
    rows
        The methods, of which those that do not do the task are left out.
    count, path
        How many images, and the PNG file.
    batch_size
        As in `evaluate`: images restored at once on a GPU; on the CPU it is one.
    """
    import matplotlib.pyplot as plt

    shown = range(min(count, len(evaluation.images.names)))
    methods = [settled for row in rows if (settled := row.on(task)) is not None]
    inches = (2.1 * (len(methods) + 2), 2.35 * len(shown))
    figure, axes = plt.subplots(len(shown), len(methods) + 2, figsize=inches, squeeze=False, layout="constrained")
    for chunk in chunks(evaluation, shown, batch_size):
        measured = measure_chunk(evaluation, task, chunk)
        results = [restore_chunk(evaluation, task, method, chunk, measured) for method in methods]
        for k, i in enumerate(chunk):
            truth = visible(measured.truth[k : k + 1], evaluation.images.complex)[0]
            _show(axes[i, 0], truth, Path(evaluation.images.names[i]).name)
            for axis, method, restored in zip(axes[i, 1:-1], methods, results, strict=True):
                (score,) = score_images(evaluation, task, method, restored, slice(k, k + 1))
                words = " / ".join(f"{value:.{DIGITS[key]}f}" for key, value in score.items())
                _show(axis, visible(restored.x[k : k + 1], evaluation.images.complex)[0], words)
            error = (results[-1].x[k] - measured.truth[k]).abs().mean(0).cpu()  # over the channels
            errors = axes[i, -1].imshow(error.numpy(), cmap="magma", vmin=0, vmax=0.3)
            axes[i, -1].set(xticks=[], yticks=[])
            axes[i, -1].set_xlabel(f"mean {float(error.mean()):.3f}", fontsize=8)
    seen = measured.y.shape == measured.truth.shape  # else it is shown as A'y
    names = [("measurement" if seen else "A'y") if m.run is degraded else m.label for m in methods]
    for axis, title in zip(axes[0], ["truth", *names, f"|error| of {methods[-1].label}"], strict=True):
        axis.set_title(textwrap.fill(title, TITLE), fontsize=9)
    figure.colorbar(errors, ax=axes[:, -1].tolist(), shrink=0.8, aspect=30)
    figure.suptitle(f"{task.name}: PSNR / SSIM / LPIPS (convention {evaluation.convention})", fontsize=10)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=110, format="png")
    plt.close(figure)
    write_atomically(path, picture.getvalue())


def _show(axis: Any, image: torch.Tensor, label: str) -> None:
    """Draw an image (C, H, W) in [-1, 1] into a panel, with a label below it."""
    image = image if len(image) in (1, 3) else image[:1]  # of many channels, the first
    pixels = ((image.clamp(-1, 1) + 1) / 2).permute(1, 2, 0).cpu()
    axis.imshow(pixels.expand(-1, -1, 3).numpy())
    axis.set(xticks=[], yticks=[])
    axis.set_xlabel(label, fontsize=8)
