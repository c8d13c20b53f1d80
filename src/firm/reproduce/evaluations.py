"""Scores that several studies share: what one of them has restored, the next finds in ``OUT/evaluations``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from firm._model import Firm, load
from firm.acceleration._fast import Precision, fast
from firm.baselines.methods import Networks, baseline_methods
from firm.data import load_images
from firm.data.images import Images
from firm.evaluation import Evaluation, evaluate, firm_method, plain_methods
from firm.evaluation.methods import NamedMethod
from firm.evaluation.report import summarize
from firm.reproduce.settings import SEED, Settings, Subject
from firm.tasks import BaseTask

Summary = dict[str, dict[str, dict[str, Any]]]  # task -> method -> numbers


def test_images(settings: Settings, subject: Subject, count: int) -> Images:
    """The first test images of a data set."""
    dataset: Any = subject.dataset
    return load_images(dataset, settings.data(subject), "test", size=subject.size, limit=count)


def firm_model(settings: Settings, subject: Subject) -> Firm:
    """Our model for a data set, or the one given, made fast on the device; loaded once."""
    return _loaded(settings.model or subject.model, settings.device, settings.precision)


@cache
def _loaded(name: str, device: torch.device, precision: Precision) -> Firm:
    return fast(load(name).to(device), precision)


def methods(settings: Settings, subject: Subject, baselines: str, steps: Sequence[int]) -> list[NamedMethod]:
    """The rows of a table: degraded, the baselines, FIRM with each N."""
    networks = Networks(settings.device, settings.precision, settings.weights, subject.networks)
    model = firm_model(settings, subject)
    rows = [plain_methods()[0], *(baseline_methods(baselines, networks) if baselines else [])]
    return [*rows, *(firm_method(model, N) for N in steps)]


def scores(
    settings: Settings,
    subject: Subject,
    tasks: Sequence[BaseTask],
    rows: Sequence[NamedMethod],
    images: Images,
    variant: str = "",
) -> Summary:
    """Mean and deviation of every metric, summary[task][method]; only what is not there yet is computed.

    Tasks with settings other than the paper's have a folder of their own, told apart by `variant`.
    """
    evaluation = Evaluation(images, tasks, "tables", SEED, {"dataset": subject.dataset}, settings.device)
    done = evaluate(evaluation, rows, folder(settings, subject, len(images), variant), batch_size=settings.batch)
    summary = summarize(done)
    return {task.name: summary[task.name] for task in tasks if task.name in summary}  # whatever was computed first


def folder(settings: Settings, subject: Subject, count: int, variant: str = "") -> Path:
    """Where the rows of an evaluation are kept."""
    return settings.out / "evaluations" / "-".join(filter(None, (subject.dataset, str(count), variant)))
