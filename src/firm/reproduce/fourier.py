"""Compressed sensing in k-space on AFHQ-Cat: 21.88 % of the Fourier transform's lines (Appendix E)."""

from __future__ import annotations

from typing import Any

import torch

from firm._util.text import counted
from firm.data.images import Images
from firm.evaluation.methods import NamedMethod
from firm.operators import Fourier
from firm.reproduce import published
from firm.reproduce.evaluations import methods, scores, test_images
from firm.reproduce.figures import Panel, save_grid
from firm.reproduce.pictures import free_images, heads, panels
from firm.reproduce.published import METRICS, Scores
from firm.reproduce.record import Clock, Figure, record
from firm.reproduce.rows import baselines, beside, notes, require
from firm.reproduce.settings import AFHQ, SEED, Settings
from firm.tasks import BaseTask, Task

IMAGES, QUICK_IMAGES = 100, 4
STEPS, QUICK_STEPS = (2, 4, 10), (2, 4)


def study(settings: Settings, name: str) -> dict[str, Any]:
    """The table, and a figure of the first test image with the sampling mask."""
    clock, steps = Clock(), settings.steps or (QUICK_STEPS if settings.quick else STEPS)
    names, missing = _baselines(settings)
    rows = methods(settings, AFHQ, names, steps)
    task = Task("fourier", AFHQ.size)  # 56 of 256 lines, noise 0.002: the paper's
    require(rows, [task])
    images = test_images(settings, AFHQ, settings.limit or (QUICK_IMAGES if settings.quick else IMAGES))
    summary = scores(settings, AFHQ, [task], rows, images)
    table = beside(f"Fourier lines, {counted(len(images))} of {AFHQ.title}", summary, rows, in_paper())
    title = "and the sampling mask; below: PSNR / SSIM / LPIPS"
    figures = [
        Figure("fourier.png", f"Fourier lines on {AFHQ.title}, {title}"),
        Figure("cat-fourier.png", f"Fourier lines on the bundled cat, {title}", free=True),
    ]
    for figure, shown in zip(figures, (images, free_images(AFHQ)), strict=True):
        draw(settings, name, figure.file, shown, task, rows[: len(rows) - len(steps) + 1])
    return record(
        settings, name, clock, images=len(images), model=settings.model or AFHQ.model, tables=[table],
        figures=figures, notes=[*notes(settings, AFHQ), *missing], numbers={"summary": summary},
    )  # fmt: skip


def _baselines(settings: Settings) -> tuple[str, list[str]]:
    """Flower1-OT, but not where it is to be quick: its 100 network calls take 15 s a cat on two cores."""
    if settings.quick and settings.methods is None:
        return "", ["Flower1-OT, 100 network calls an image, is left out with --quick"]
    return baselines(settings, AFHQ, "flower1")


def in_paper() -> Scores:
    """The published table in the form of the others."""
    return {
        method: {"fourier": dict(zip(METRICS, values, strict=True))} for method, values in published.FOURIER.items()
    }


def draw(settings: Settings, name: str, file: str, images: Images, task: BaseTask, rows: list[NamedMethod]) -> None:
    """Truth, zero-filled A'y, the baselines, FIRM with its first N, and the mask (zero frequency in the middle)."""
    op = task.operator(SEED)
    assert isinstance(op, Fourier)
    mask = torch.fft.fftshift(op.mask).expand(task.shape)
    measured = f"{100 * float(mask.mean()):.2f} % of k-space"
    row = [*panels(settings, images, task, rows), Panel(2 * mask[None] - 1, measured, zoomed=False)]
    above = ["zero-filled" if head == "measurement" else head for head in heads(rows)]
    save_grid(settings.folder(name) / file, [*above, "sampling mask"], [("", row)], zoom=True)
