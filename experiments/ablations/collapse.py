"""Why the paper's deblurring row loses 4.6 dB from N = 2 to 25 and ours does not: the weights of the times in the loss.

The same network is trained with the paper's omega(t) and with balanced weights (and with the paper's direct output as
well), and evaluated for several N. The error of its posterior mean is measured at every time of the flow: N = 1 needs
t = 0 only, N = 25 all times up to 0.96.
"""

from typing import Any

import torch

from experiments import published, shared
from experiments.ablations.study import BLUR, SMALL, Values, Variant, evaluated, trained, untrained
from experiments.figures import save
from experiments.shared import CELEBA, SEED, Figure, Settings
from experiments.tables import Line, Table, metric_columns
from firm import fast, interpolate, load
from firm._util.checks import generator_for
from firm.data.images import Images
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
    images = shared.test_images(settings, CELEBA, settings.images(100))
    steps = (1, 2, 4) if settings.quick else STEPS
    found = {label: evaluated(settings, variant, images, steps) for label, variant in VARIANTS.items()}
    paper = {N: published.CELEBA.get(f"FIRM N={N}", {}).get(BLUR, {}) for N in steps}
    lines = [Line(label, _by_steps(rows)) for label, rows in found.items()]
    lines.append(Line("FIRM in the paper's table", {}, _by_steps(paper)))
    curves = {label: curve for label in found if (curve := _over_time(settings, VARIANTS[label], images)) is not None}
    figures = []
    if curves:
        _draw(curves, settings.folder(name) / "times.png")
        figures.append(Figure("times.png", "error of the posterior mean at every time of the flow", free=True))
    columns = metric_columns([f"N = {N}" for N in steps])
    return shared.record(
        settings, name, images=len(images), model="one network a row", figures=figures,
        notes=[SMALL, *(untrained(settings, VARIANTS.values()) or [_losses(found)])],
        tables=[Table("deblurring with other weights of the times", columns, lines)],
        numbers={"times": TIMES, "root mean square error": curves},
    )  # fmt: skip


def _by_steps(rows: dict[int, Any]) -> Values:
    return {f"N = {N} {key}": value for N, row in rows.items() for key, value in row.items()}


def _losses(found: dict[str, dict[int, Values]]) -> str:
    """How much PSNR every variant loses from N = 2 to the last N."""
    lost = [f"{label}: {rows[2]['psnr'] - rows[max(rows)]['psnr']:.2f} dB" for label, rows in found.items()]
    last = max(N for rows in found.values() for N in rows)
    return f"PSNR lost from N = 2 to {last} (paper: 4.58 dB at 25): {'; '.join(lost)}"


def _over_time(settings: Settings, variant: Variant, images: Images) -> list[float] | None:
    """Root mean square error of the estimate of x_1 at the times `TIMES`, on the true path of the first images."""
    path = trained(settings, variant)
    if path is None:
        return None
    model, task = fast(load(path).to(settings.device), settings.precision), Task(variant.task, CELEBA.size)
    squares, count = [0.0] * len(TIMES), min(PROBED, len(images))
    for index in range(count):
        x_1 = images.batch(range(index, index + 1)).to(settings.device)
        op, y = task.measure(x_1, SEED, index)
        x_0 = torch.randn(x_1.shape, generator=generator_for(SEED, index, "method")).to(x_1.device)
        with torch.no_grad():
            for i, t in enumerate(TIMES):
                z = model.posterior_mean(op, interpolate(x_0, x_1, t), t, y, sigma=task.sigma)
                squares[i] += float((z.float() - x_1).square().mean())
    return [round((square / count) ** 0.5, 6) for square in squares]


def _draw(curves: dict[str, list[float]], path: Any) -> None:
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for label, values in curves.items():
        axis.plot(TIMES, values, "o-", label=label)
    axis.set(xlabel="time t of the flow", ylabel="root mean square error of the estimate of x_1")
    axis.grid(alpha=0.25)
    axis.legend()
    save(figure, path)
