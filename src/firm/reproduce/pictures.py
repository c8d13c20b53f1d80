"""Single images restored for the figures, as the tables restore them: the same measurement, noise and scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from firm.data import cat, portrait
from firm.data.images import Images
from firm.evaluation import Evaluation
from firm.evaluation.methods import NamedMethod
from firm.evaluation.run import measure_chunk, restore_chunk, score_image
from firm.reproduce.figures import Panel
from firm.reproduce.published import METRICS
from firm.reproduce.settings import SEED, Settings, Subject
from firm.tasks import BaseTask

ABSENT = "does not apply"  # a method that does not do a task
DIGITS = {"psnr": 2, "ssim": 3, "lpips": 3, "mae": 4}


@dataclass(frozen=True)
class Restored:
    """What a method made of one image."""

    image: Tensor  # (C, H, W)
    scores: dict[str, float]


def free_images(subject: Subject) -> Images:
    """A picture like those of the data set that may be published: the bundled portrait, or the bundled cat."""
    return Images(*((portrait(), ["portrait"]) if subject.dataset == "celeba" else (cat(), ["cat"])))


def restore_one(
    settings: Settings, images: Images, task: BaseTask, rows: Sequence[NamedMethod], index: int = 0
) -> list[Restored | None]:
    """Image `index` as every method restores it; None where a method does not do the task."""
    evaluation = Evaluation(images, [task], "tables", SEED, device=settings.device)
    chunk = range(index, index + 1)
    measured = measure_chunk(evaluation, task, chunk)
    found: list[Restored | None] = []
    for method in rows:
        settled = method.on(task)
        if settled is None:
            found.append(None)
            continue
        restored = restore_chunk(evaluation, task, settled, chunk, measured)
        found.append(Restored(restored.x[0], score_image(evaluation, task, settled, restored, 0)))
    return found


def panels(
    settings: Settings,
    images: Images,
    task: BaseTask,
    rows: Sequence[NamedMethod],
    index: int = 0,
    metrics: Sequence[str] = METRICS,
) -> list[Panel]:
    """The truth, then what every method made of it with its `metrics` below."""
    truth = images.batch(range(index, index + 1))[0]
    found = restore_one(settings, images, task, rows, index)
    return [
        Panel(truth),
        *(Panel(None, ABSENT) if r is None else Panel(r.image, label(r.scores, metrics)) for r in found),
    ]


def heads(rows: Sequence[NamedMethod]) -> list[str]:
    """The names over the columns that `panels` makes; the row "degraded" is the measurement."""
    return ["truth", *("measurement" if method.label == "degraded" else method.label for method in rows)]


def label(scores: dict[str, float], metrics: Sequence[str]) -> str:
    """Numbers as they stand below a panel."""
    return " / ".join(f"{scores[metric]:.{DIGITS[metric]}f}" for metric in metrics)
