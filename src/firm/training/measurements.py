"""Measurements for training: many tasks in one batch, each with its own operators and noise levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from firm._util.custom import custom_code, is_custom
from firm.operators import LinearOperator
from firm.operators.compose import group
from firm.tasks import BaseTask, Rows, takes_mask, task_class
from firm.training.errors import ConfigError


def make_task(entry: dict[str, Any], size: int, mask: str, instead: str = "") -> BaseTask:
    """The task of an entry of the configuration's mixture; `mask` where the entry does not say shared or fresh.

    `instead`, if given, replaces either.
    """
    settings = {key: value for key, value in entry.items() if key not in ("name", "weight")}
    kind = task_class(str(entry["name"]))
    if takes_mask(kind):
        settings["mask"] = instead or settings.get("mask", mask)
    with custom_code(task=kind):
        return kind(size, **settings)


def resolved(entry: dict[str, Any], task: BaseTask) -> dict[str, Any]:
    """An entry as the model's card has it: of the user's own task with its defaults, whose code no card may run.

    The library knows the defaults of its own tasks; settings that are no degradation count only where they are given.
    """
    if not is_custom(str(entry["name"])):
        return entry
    values = {key: value for key, value in task.settings().items() if task.parameters[key].option or key in entry}
    values |= {key: list(ends) for key, ends in task.ranges.items()}
    return {**entry, **values, "name": entry["name"], "weight": entry["weight"]}


def measure(tasks: Sequence[BaseTask], x: Tensor, rows: Sequence[Rows]) -> tuple[LinearOperator, Tensor, Tensor]:
    """Measure images `x`, ordered by task; `rows` says which rows of each task's samples they are."""
    drawn = measure_each(tasks, x, rows)
    sigma = torch.cat([s for _, _, s in drawn])
    if len(drawn) == 1:
        return drawn[0][0], drawn[0][1], sigma
    op, y = group([(op, y) for op, y, _ in drawn])
    return op, y, sigma


def measure_each(
    tasks: Sequence[BaseTask], x: Tensor, rows: Sequence[Rows]
) -> list[tuple[LinearOperator, Tensor, Tensor]]:
    """The same for each task apart: operator, measurements, noise levels."""
    parts = x.split([len(r) for r in rows])
    return [task.draw(part, r) for task, part, r in zip(tasks, parts, rows, strict=True)]


def split_batch(weights: Sequence[float], batch: int) -> list[int]:
    """Samples for each task, in proportion to the weights, at least one each; they add up to `batch`."""
    if batch < len(weights):
        raise ConfigError(
            f"{batch} samples in each part of the batch cannot hold {len(weights)} tasks; take a larger batch"
        )
    exact = [1 + w / sum(weights) * (batch - len(weights)) for w in weights]
    counts = [int(e) for e in exact]
    for i in sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])[: batch - sum(counts)]:
        counts[i] += 1
    return counts
