"""Why the paper's deblurring row loses 4.6 dB from N = 2 to 25 and ours does not: the weights of the times in the loss.

The same network is trained with the paper's omega(t) and with balanced weights (and with the paper's direct output as
well), and evaluated for several N. The error of its posterior mean is measured at every time of the flow: N = 1 needs
t = 0 only, N = 25 all times up to 0.96.
"""

from __future__ import annotations

from typing import Any

import torch

from firm._flow import interpolate
from firm._model import Firm, load
from firm._util.seeds import generator_for
from firm.acceleration._fast import fast
from firm.data.images import Images
from firm.reproduce import published
from firm.reproduce.ablation import BLUR, SMALL, Variant, evaluated, faces, psnr_of, trained, untrained
from firm.reproduce.figures import save
from firm.reproduce.record import Clock, Figure, record
from firm.reproduce.settings import CELEBA, SEED, Settings
from firm.reproduce.tables import Line, Table, Value, metric_columns
from firm.tasks import Task

STEPS = (1, 2, 4, 10, 25)
TIMES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.96, 0.99)
PROBED = 20  # images whose error is measured at every time

VARIANTS = {
    "balanced weights, correction (ours)": Variant(BLUR),
    "the paper's weights, correction": Variant(BLUR, {"objective": "paper"}),
    "the paper's weights, direct (the paper)": Variant(BLUR, {"objective": "paper", "output": "direct"}),
}


def study(settings: Settings, name: str) -> dict[str, Any]:
    """Train what is not there yet (with --quick: nothing), evaluate, draw the error over time."""
    clock, images = Clock(), faces(settings)
    steps = (1, 2, 4) if settings.quick else STEPS
    found = {label: evaluated(settings, variant, images, steps) for label, variant in VARIANTS.items()}
    groups = [f"N = {N}" for N in steps]
    lines = [
        Line(label, {f"N = {N} {key}": value for N, values in rows.items() for key, value in values.items()})
        for label, rows in found.items()
    ]
    lines.append(Line("FIRM in the paper's table", {}, _paper(steps)))
    curves = {label: curve for label in found if (curve := _over_time(settings, VARIANTS[label], images)) is not None}
    figures = []
    if curves:
        _draw(curves, settings.folder(name) / "times.png")
        figures.append(Figure("times.png", "error of the posterior mean at every time of the flow", free=True))
    notes, missing = [SMALL], untrained(settings, VARIANTS.values())
    notes += missing if missing else [_losses(found)]
    return record(
        settings, name, clock, images=len(images), model="one network a row", figures=figures, notes=notes,
        tables=[Table("deblurring with other weights of the times", metric_columns(groups), lines)],
        numbers={"times": TIMES, "root mean square error": curves},
    )  # fmt: skip


def _paper(steps: tuple[int, ...]) -> dict[str, Value]:
    scores = published.celeba()
    known = {N: scores[f"FIRM N={N}"][BLUR] for N in steps if f"FIRM N={N}" in scores}
    return {f"N = {N} {key}": value for N, row in known.items() for key, value in row.items()}


def _losses(found: dict[str, dict[int, dict[str, Value]]]) -> str:
    """How much PSNR every variant loses from N = 2 to the last N."""
    said = []
    for label, rows in found.items():
        said.append(f"{label}: {psnr_of(rows) - psnr_of(rows, max(rows)):.2f} dB")
    return f"PSNR lost from N = 2 to {max(rows)} (paper: 4.58 dB at 25): {'; '.join(said)}"


def _over_time(settings: Settings, variant: Variant, images: Images) -> list[float] | None:
    """Root mean square error of the estimate of x_1 at the times `TIMES`, on the true path of the first images."""
    path = trained(settings, variant)
    if path is None:
        return None
    model, task = fast(load(path).to(settings.device), settings.precision), Task(variant.task, CELEBA.size)
    squares = torch.zeros(len(TIMES), dtype=torch.float64)
    count = min(PROBED, len(images))
    for i in range(count):
        squares += _errors(model, task, images.batch(range(i, i + 1)).to(settings.device), i)
    return [round(float(value), 6) for value in (squares / count).sqrt()]


def _errors(model: Firm, task: Any, x_1: torch.Tensor, index: int) -> torch.Tensor:
    """Mean squared error at every time, of one image (1, C, H, W) and one x_0."""
    op, y = task.measure(x_1, SEED, index)
    x_0 = torch.randn(x_1.shape, generator=generator_for(SEED, index, "method")).to(x_1.device)
    found = []
    with torch.no_grad():
        for t in TIMES:
            z = model.posterior_mean(op, interpolate(x_0, x_1, t), t, y, sigma=task.sigma)
            found.append(float((z.float() - x_1).square().mean()))
    return torch.tensor(found, dtype=torch.float64)


def _draw(curves: dict[str, list[float]], path: Any) -> None:
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for label, values in curves.items():
        axis.plot(TIMES, values, "o-", label=label)
    axis.set(xlabel="time t of the flow", ylabel="root mean square error of the estimate of x_1")
    axis.grid(alpha=0.25)
    axis.legend()
    save(figure, path)
