"""Validation: PSNR of a method on held-out images in every task of a run, and a picture of the first few."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from firm._prepare import noise_like
from firm._util.files import write_atomically
from firm._util.sheet import Panel, sheet
from firm.data.images import Images
from firm.evaluation import Evaluation, NamedMethod, degraded
from firm.evaluation.run import restore_chunk
from firm.metrics import psnr, visible

if TYPE_CHECKING:
    from firm.training.config import TrainConfig

SHOWN = 6  # images of each task in the picture
CHUNK = 16  # images restored at once


def scored(
    method: NamedMethod, config: TrainConfig, images: Images, device: torch.device, picture: Path | None,
    name: str = "psnr",
) -> dict[str, float]:  # fmt: skip
    """Score a method by PSNR on held-out images: over all tasks of a configuration, then in each of several.

    Settings that training draws from a range have the paper's value here, or the nearest end of the range where that
    lies outside it; random masks are the protocol's.

    Parameters
    ----------
    method, config, images, device
        What restores, the run's configuration, the images, and where to measure and restore.
    picture
        Where to write a picture of the first images of each task: truth, measurement, restoration.
    name
        The key of the score over all tasks; those of the tasks begin with it.

    Returns
    -------
    PSNR in dB by name: first the mean over the tasks, then that of each where there are several.
    """
    tasks = config.make_tasks(mask="shared")
    evaluation = Evaluation(images, tasks, device=device)
    known, values = [task.name for task in tasks], []
    result, rows = {name: 0.0}, []
    for i, task in enumerate(tasks):
        title = task.name  # numbered where a mixture has a task twice, with other settings
        if known.count(title) > 1:
            title += f" {known[: i + 1].count(title)}"
        scores: list[Tensor] = []
        for first in range(0, len(images), CHUNK):
            found = restore_chunk(evaluation, task, method, range(first, min(first + CHUNK, len(images))))
            truth, x = (visible(v, images.complex) for v in (found.truth, found.x))
            scores.append(psnr(x, truth))
            if not first:
                given = visible(degraded(found.op, found.y, 0.0, None), images.complex)
                rows += _labeled(truth, given, x, scores[0], f"{title}: measurement", method.label)
        values.append(round(float(torch.cat(scores).mean()), 4))
        if len(tasks) > 1:
            result[f"{name} {title}"] = values[-1]
    if picture is not None:
        save_sheet(rows, picture)
    return result | {name: round(sum(values) / len(values), 4)}


def denoising_scores(
    denoise: Callable[[Tensor, float], Tensor], levels: Sequence[float], images: Images, device: torch.device
) -> tuple[dict[str, float], list[list[Panel]]]:
    """Score a denoiser by PSNR at several noise levels; the noise is the same in every validation.

    Parameters
    ----------
    denoise
        Called as ``denoise(y, sigma)`` with noisy images (B, C, H, W) and their noise level; returns images as large.
    levels
        Noise levels, for images in [-1, 1].
    images, device
        The clean images, and where to denoise.

    Returns
    -------
    PSNR in dB for each level, and rows of a sheet: truth, noisy and denoised of the first images, at the first level.
    """
    scores: dict[str, float] = {}
    rows: list[list[Panel]] = []
    for sigma in levels:
        generator, values = torch.Generator().manual_seed(0), []
        for first in range(0, len(images), CHUNK):
            x = images.batch(range(first, min(first + CHUNK, len(images)))).to(device)
            y = x + sigma * noise_like(x, generator)
            denoised = denoise(y, sigma)
            values.append(psnr(denoised, x))
            rows = rows or _labeled(x, y, denoised, values[0], f"noisy, sigma = {sigma:g}", "denoised")
        scores[f"psnr sigma={sigma:g}"] = round(float(torch.cat(values).mean()), 4)
    return scores, rows


def _labeled(truth: Tensor, given: Tensor, x: Tensor, scores: Tensor, measured: str, made: str) -> list[list[Panel]]:
    """Make rows of a sheet: truth, measurement and restoration of the first images (B, C, H, W), with PSNR."""
    return [
        [("truth", truth[i]), (measured, given[i]), (f"{made}: {float(scores[i]):.2f} dB", x[i])]
        for i in range(min(SHOWN, len(truth)))
    ]


def save_sheet(rows: Sequence[Sequence[Panel]], path: Path) -> None:
    """Write rows of titled images, (C, H, W) each, as one picture at `path`."""
    buffer = io.BytesIO()
    sheet(rows).save(buffer, "png")
    write_atomically(path, buffer.getvalue())
