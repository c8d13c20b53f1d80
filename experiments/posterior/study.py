"""The paper's figure of posterior samples: one measurement of a face with a hole, eight starting points.

Only the source draw x_0 is varied. What the measurement leaves open differs between the samples, and nothing else.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from experiments import shared
from experiments.figures import Panel, save_grid
from experiments.shared import CELEBA, SEED, Figure, Settings
from experiments.tables import Column, Line, Table
from firm import Firm, restore
from firm._util.checks import generator_for
from firm._util.terminal import progress_bar
from firm.data import portrait
from firm.evaluation import degraded
from firm.metrics import pixel_std, psnr
from firm.restoration.calibration import missing
from firm.tasks import Task

FACES, SAMPLES, STEPS, QUICK_STEPS = 3, 8, (2, 25), (2, 10)
SHOWN = 3  # samples at the first N; one at the others
MARGIN = 4  # pixels around the hole when it is shown by itself
COLUMNS = (
    Column("inside", "std inside", digits=4), Column("outside", "std outside", digits=4),
    Column("ratio", "ratio", digits=1), Column("sample", "PSNR of one sample"), Column("mean", "PSNR of the mean"),
)  # fmt: skip


class Drawn(NamedTuple):
    """One measurement and its samples."""

    truth: Tensor  # (1, C, H, W)
    measured: Tensor  # (1, C, H, W)
    hole: Tensor  # (H, W), true where pixels are missing
    samples: dict[int, Tensor]  # N -> (S, 1, C, H, W)


def study(settings: Settings, name: str) -> dict[str, Any]:
    """Draw the samples of three faces and of the bundled portrait; write four figures and the table.

    An option of its own: `S`, the number of samples.
    """
    S = settings.extra.get("S", SAMPLES)
    model, steps = shared.firm_model(settings, CELEBA), settings.steps or (QUICK_STEPS if settings.quick else STEPS)
    faces = shared.test_images(settings, CELEBA, settings.images(FACES, 1))
    pictures = [faces.batch(range(i, i + 1)) for i in range(len(faces))]
    found = [draw(model, x.to(settings.device), i, steps, S) for i, x in enumerate(progress_bar(pictures, unit="face"))]
    person = draw(model, portrait().to(settings.device), 0, steps, S)
    out, figures = settings.folder(name), []
    for who, drawn, free in (("faces", found, False), ("portrait", [person], True)):
        top = max(float(pixel_std(x).max()) for one in drawn for x in one.samples.values())  # one scale for all maps
        title = f"samples of {'test faces' if who == 'faces' else 'the portrait'} and their standard deviation"
        for end, zoomed in (("", False), ("-zoom", True)):
            save_grid(out / f"{who}{end}.png", heads(steps, S), [("", panels(one, zoomed)) for one in drawn], top=top)
            figures.append(Figure(f"{who}{end}.png", f"{title}, the hole alone" if zoomed else title, free))
    each = {"faces": [measure(one) for one in found], "portrait": [measure(person)]}
    return shared.record(
        settings, name, images=len(found), model=settings.model or CELEBA.model, figures=figures,
        tables=[summary(each, steps, S)], notes=["the paper shows this figure without numbers; its faces are others"],
        numbers={"samples": S, "N": list(steps), **each},
    )  # fmt: skip


def draw(model: Firm, truth: Tensor, index: int, steps: Sequence[int], samples: int) -> Drawn:
    """Measure one face (1, C, H, W) once, and restore it from `samples` starting points, the same for every N."""
    task = Task("box-inpainting", truth.shape[-1])
    op, y = task.measure(truth, SEED, index)
    start = generator_for(SEED, index, "method").initial_seed()
    drawn = {N: restore(model, op, y, N, samples, start, sigma=task.sigma).samples for N in steps}
    return Drawn(truth, degraded(op, y, task.sigma, None), missing(op, truth)[0, 0], drawn)


def measure(drawn: Drawn) -> dict[int, dict[str, float]]:
    """For every N: the standard deviation inside and outside of the hole, and the PSNR of a sample and of the mean."""
    found = {}
    for N, samples in drawn.samples.items():
        std = pixel_std(samples)[0]
        found[N] = {
            "inside": float(std[drawn.hole].mean()), "outside": float(std[~drawn.hole].mean()),
            "sample": float(psnr(samples[0], drawn.truth)), "mean": float(psnr(samples.mean(0), drawn.truth)),
        }  # fmt: skip
    return found


def summary(each: Mapping[str, Sequence[Mapping[int, Mapping[str, float]]]], steps: Sequence[int], S: int) -> Table:
    """The table: a line for the faces, on average, and for the portrait, with each N."""
    lines = []
    for who, measured in each.items():
        label = f"{len(measured)} face{'s' if len(measured) > 1 else ''}" if who == "faces" else who
        for N in steps:
            means = {key: statistics.fmean(one[N][key] for one in measured) for key in measured[0][N]}
            lines.append(Line(f"{label}, N = {N}", {**means, "ratio": means["inside"] / means["outside"]}))
    return Table(f"box inpainting, {S} samples of each measurement", COLUMNS, lines)


def heads(steps: Sequence[int], S: int) -> list[str]:
    """What stands over the columns that `panels` makes."""
    found = ["truth", "measurement"]
    for i, N in enumerate(steps):
        found += [f"sample, N = {N}"] * min(SHOWN if i == 0 else 1, S) + [f"deviation, N = {N}"]
    return found


def panels(drawn: Drawn, zoomed: bool = False) -> list[Panel]:
    """Truth, measurement, three samples and the standard deviation at the first N; one sample and that at others."""
    places = [torch.nonzero(drawn.hole.any(dim)).flatten() for dim in (1, 0)]  # rows and columns of the hole
    around = [slice(max(0, int(p.min()) - MARGIN), int(p.max()) + 1 + MARGIN) for p in places]
    view = around if zoomed else [slice(None)] * 2

    def shown(x: Tensor, label: str = "") -> Panel:
        return Panel(x[(..., *view)], label)

    row = [shown(drawn.truth[0]), shown(drawn.measured[0])]
    for i, samples in enumerate(drawn.samples.values()):
        for x in samples[: SHOWN if i == 0 else 1]:
            row.append(shown(x[0], f"{float(psnr(x, drawn.truth)):.2f} dB"))
        row.append(shown(pixel_std(samples)[0], f"of {len(samples)} samples"))
    return row
