"""Other noise and other masks than the paper trained for: random inpainting on CelebA, without training again."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from experiments import published, shared
from experiments.figures import Panel, save_grid
from experiments.published import METRICS
from experiments.shared import CELEBA, Figure, Settings
from experiments.tables import Line, Table, metric_columns
from firm.tasks import BaseTask, Task

TASK = "random-inpainting"
MISSING, SIGMA = 0.7, 0.01  # what the paper trained with
RATIOS = (0.5, 0.6, 0.7, 0.8)
NOISES = (0.005, 0.01, 0.02)
SHOWN = 3  # images in the figure
LEFT_OUT = "Flower5-OT, 500 network calls an image, is left out with --quick"  # they take 17 s an image on two cores

At = tuple[float, float]  # share of missing pixels, noise level
Found = dict[At, dict[str, dict[str, Any]]]  # where -> method -> metric


def study(settings: Settings, name: str) -> dict[str, Any]:
    """Make two tables, over the noise and over the share of missing pixels, and the figure of the second."""
    steps = settings.steps or (2,)
    short = settings.quick and settings.methods is None
    names, missing = ([], [LEFT_OUT]) if short else shared.baselines(settings, CELEBA, "flower5")
    degraded, *rows = shared.methods(settings, CELEBA, names, steps, [_task_at(MISSING, SIGMA)])
    ours = rows[-len(steps)]  # FIRM with the first N: what the figure shows
    images = shared.test_images(settings, CELEBA, settings.images(100))
    noises: dict[str, At] = {f"noise {sigma:g}": (MISSING, sigma) for sigma in NOISES}
    ratios: dict[str, At] = {f"{100 * ratio:g} % missing": (ratio, SIGMA) for ratio in RATIOS}
    found: Found = {}
    for at in dict.fromkeys([*noises.values(), *ratios.values()]):
        variant = "" if at == (MISSING, SIGMA) else "missing-{:g}-noise-{:g}".format(*at)  # the paper's rows serve here
        found[at] = shared.scores(settings, CELEBA, [_task_at(*at)], rows, images, variant)[TASK]
    labels, whose = [row.label for row in rows], f"{shared.of(images, CELEBA)}, random inpainting"
    tables = [
        table(f"{whose}, noise at test", found, labels, noises),
        table(f"{whose}, pixels missing at test", found, labels, ratios),
    ]
    grid = []
    for index in range(min(SHOWN, len(images))):  # the truth, then measurement and restoration for every share
        row = list[Panel]()
        for ratio in RATIOS:
            truth, *pair = shared.panels(settings, images, _task_at(ratio, SIGMA), [degraded, ours], index)
            row = [*(row or [truth]), *pair]
        grid.append(("", row))
    heads = ["truth", *(head for ratio in ratios for head in (ratio, ours.label))]
    save_grid(settings.folder(name) / "mismatch.png", heads, grid)
    title = f"{ours.label} where 50 to 80 % of the pixels are missing, CelebA; below: PSNR / SSIM / LPIPS"
    notes = [*observed(found, ours.label), *trained_on(settings), *shared.differences(settings, CELEBA), *missing]
    return shared.record(
        settings, name, images=len(images), model=settings.model or CELEBA.model, tables=tables,
        figures=[Figure("mismatch.png", title)], notes=notes,
        numbers={f"missing {missing:g}, noise {sigma:g}": row for (missing, sigma), row in found.items()},
    )  # fmt: skip


def _task_at(missing: float, sigma: float) -> BaseTask:
    """Random inpainting with a share of missing pixels and a noise level."""
    return Task(TASK, CELEBA.size, missing=missing, sigma=sigma)


def table(title: str, found: Found, labels: Sequence[str], places: Mapping[str, At]) -> Table:
    """A line a method, three metrics for each of the `places`, ours and the paper's."""
    lines = [Line(label, {}) for label in labels]
    for line, (name, at) in itertools.product(lines, places.items()):
        line.ours.update({f"{name} {metric}": found[at][line.label][metric] for metric in METRICS})
        line.paper.update(zip((f"{name} {metric}" for metric in METRICS), in_paper(line.label, *at), strict=False))
    return Table(title, metric_columns(list(places)), lines)


def in_paper(label: str, missing: float, sigma: float) -> tuple[float, ...]:
    """PSNR, SSIM and LPIPS as published; empty where they are not."""
    if (missing, sigma) == (MISSING, SIGMA):
        return tuple(published.CELEBA.get(label, {}).get(TASK, {}).values())
    if missing == MISSING:
        return published.NOISE.get(label, {}).get(sigma, ())
    return published.MISSING[missing] if label == "FIRM N=2" else ()


def observed(found: Found, label: str) -> list[str]:
    """Whether PSNR falls with every further share of missing pixels, and what other noise changes."""
    psnr = {at: row[label]["psnr"] for at, row in found.items()}
    falls = all(a > b for a, b in itertools.pairwise(psnr[ratio, SIGMA] for ratio in RATIOS))
    less, more = (psnr[MISSING, sigma] - psnr[MISSING, SIGMA] for sigma in (NOISES[0], NOISES[-1]))
    return [
        f"{label}: PSNR {'falls' if falls else 'does not fall'} with every further share of missing pixels "
        "(in the paper it falls)",
        f"{label}: {less:+.2f} dB with noise {NOISES[0]:g} and {more:+.2f} dB with {NOISES[-1]:g} beside {SIGMA:g} "
        "(paper, N = 2: +0.16 and -0.46)",
    ]


def trained_on(settings: Settings) -> list[str]:
    """What the model's card says of the task: ours may have seen all these settings, the paper's only one."""
    entries = shared.firm_model(settings, CELEBA).card.get("trained_for", [])
    entry: dict[str, Any] = next((entry for entry in entries if entry.get("name") == TASK), {})
    try:
        (low, high), (quiet, loud) = entry.get("missing"), entry.get("sigma")
    except TypeError:  # one value, or none
        return []
    seen = low <= min(RATIOS) and max(RATIOS) <= high and quiet <= min(NOISES) and max(NOISES) <= loud
    return [
        f"our model was trained on {100 * low:g} to {100 * high:g} % missing and noise {quiet:g} to {loud:g}"
        f"{', so for it this is no mismatch' if seen else ''}; the paper's was trained at {100 * MISSING:g} % and "
        f"{SIGMA:g} alone"
    ]
