"""Compressed sensing in k-space on AFHQ-Cat: 21.88 % of the Fourier transform's lines (Appendix E)."""

from typing import Any

import torch

from experiments import shared
from experiments.figures import Panel, save_grid
from experiments.published import FOURIER, METRICS
from experiments.shared import AFHQ, SEED, Figure, Settings
from firm.tasks import Task

IMAGES, QUICK_IMAGES = 100, 4
STEPS, QUICK_STEPS = (2, 4, 10), (2, 4)
LEFT_OUT = "Flower1-OT, 100 network calls an image, is left out with --quick"  # they take 15 s a cat on two cores


def study(settings: Settings, name: str) -> dict[str, Any]:
    """Make the table, and a figure of the first test image with the sampling mask; the same figure of the cat."""
    steps = settings.steps or (QUICK_STEPS if settings.quick else STEPS)
    short = settings.quick and settings.methods is None
    names, missing = ([], [LEFT_OUT]) if short else shared.baselines(settings, AFHQ, "flower1")
    task = Task("fourier", AFHQ.size)  # 56 of 256 lines, noise 0.002: the paper's
    rows = shared.methods(settings, AFHQ, names, steps, [task])
    images = shared.test_images(settings, AFHQ, settings.images(IMAGES, QUICK_IMAGES))
    summary = shared.scores(settings, AFHQ, [task], rows, images)
    paper = {method: {"fourier": dict(zip(METRICS, values, strict=True))} for method, values in FOURIER.items()}
    table = shared.beside(f"Fourier lines, {shared.of(images, AFHQ)}", summary, rows, paper)
    title = "and the sampling mask; below: PSNR / SSIM / LPIPS"
    figures = [
        Figure("fourier.png", f"Fourier lines on {AFHQ.title}, {title}"),
        Figure("cat-fourier.png", f"Fourier lines on the bundled cat, {title}", free=True),
    ]
    mask = torch.fft.fftshift(task.operator(SEED).mask).expand(task.shape)  # zero frequency in the middle
    last = Panel(2 * mask[None] - 1, f"{100 * float(mask.mean()):.2f} % of k-space", zoomed=False)
    drawn = rows[: len(rows) - len(steps) + 1]  # FIRM with its first N
    above = ["zero-filled" if head == "measurement" else head for head in shared.heads(drawn)]
    for figure, shown in zip(figures, (images, shared.free_images(AFHQ)), strict=True):
        row = [*shared.panels(settings, shown, task, drawn), last]
        save_grid(settings.folder(name) / figure.file, [*above, "sampling mask"], [("", row)], zoom=True)
    return shared.record(
        settings, name, images=len(images), model=settings.model or AFHQ.model, tables=[table], figures=figures,
        notes=[*shared.differences(settings, AFHQ), *missing], numbers={"summary": summary},
    )  # fmt: skip
