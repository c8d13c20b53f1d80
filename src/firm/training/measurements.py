"""Measurements for training, drawn on the device of the images: many operators and noise levels in one batch.

Every rank draws the random numbers of the whole batch and keeps its rows, so that a run does not depend on how the
batch is split. Nothing here waits for the device, so a CUDA graph can hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from firm.operators import Blur, Fourier, Identity, Mask, Operator, Subsample
from firm.operators.grouped import group
from firm.operators.patterns import draw_strokes
from firm.tasks import PARAMETERS, Task
from firm.training.config import ConfigError

Range = tuple[float, float]


@dataclass(frozen=True)
class Rows:
    """The part of a batch that this process works on."""

    total: int
    start: int
    stop: int

    def rand(self, *shape: int, device: torch.device) -> Tensor:
        """Uniform numbers, (stop - start, *shape), out of those of the whole batch."""
        return torch.rand(self.total, *shape, device=device)[self.start : self.stop]

    def randn(self, *shape: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
        """The same, standard normal."""
        return torch.randn(self.total, *shape, device=device, dtype=dtype)[self.start : self.stop]


@dataclass(frozen=True)
class TrainTask:
    """A task whose settings are ranges to draw from, per sample; a range of one value is that value."""

    base: Task
    ranges: dict[str, Range]

    @staticmethod
    def make(entry: dict[str, Any], size: int, mask: str) -> TrainTask:
        """From an entry of the configuration's mixture."""
        settings = {key: value for key, value in entry.items() if key not in ("name", "weight")}
        ranges = {key: settings.pop(key) for key in list(settings) if isinstance(settings[key], list | tuple)}
        if "mask" in PARAMETERS[entry["name"]]:
            settings.setdefault("mask", mask)
        return TrainTask(
            Task(entry["name"], size, **settings), {k: (float(a), float(b)) for k, (a, b) in ranges.items()}
        )

    def draw(self, x: Tensor, rows: Rows) -> tuple[Operator, Tensor, Tensor]:
        """Operator, measurements and noise levels (B,) for images `x`, the `rows` of the batch."""
        op = self._operator(rows, x.device)
        sigma = self._sample("sigma", rows, x.device, logarithmic=True)
        clean = op.A(x)
        noise = rows.randn(*clean.shape[1:], device=x.device, dtype=clean.dtype)
        return op, clean + sigma.reshape(-1, 1, 1, 1) * noise, sigma

    def _operator(self, rows: Rows, device: torch.device) -> Operator:
        task, n = self.base, self.base.shape[0]
        if task.name == "denoising":
            return Identity()
        if task.name == "super-resolution":
            assert task.factor is not None
            return Subsample(task.factor, None if n % task.factor == 0 else (n, n))
        if task.name == "deblurring" and "blur" in self.ranges:
            assert task.kernel_size is not None
            offsets = torch.arange(task.kernel_size, device=device) - task.kernel_size // 2
            row = torch.exp(-offsets.square() / (2 * self._sample("blur", rows, device)[:, None].square()))
            row = row / row.sum(1, keepdim=True)
            return Blur((row[:, :, None] * row[:, None, :])[:, None], check=False)
        if task.name == "box-inpainting" and "box" in self.ranges:
            side = self._sample("box", rows, device).round()[:, None]
            first = ((n - side) / 2).floor()
            inside = (torch.arange(n, device=device) >= first) & (torch.arange(n, device=device) < first + side)
            return Mask(1 - (inside[:, :, None] & inside[:, None, :]).float()[:, None], check=False)
        if task.name == "random-inpainting" and task.mask == "fresh":
            missing = self._sample("missing", rows, device).reshape(-1, 1, 1, 1)
            return Mask((rows.rand(1, n, n, device=device) >= missing).float(), check=False)
        if task.name == "stroke-inpainting" and task.mask == "fresh":
            assert task.strokes is not None
            ends = rows.rand(task.strokes, 2, 2, device=device)
            return Mask(draw_strokes(ends, self._sample("width", rows, device), task.shape), check=False)
        if task.name == "fourier" and task.mask == "fresh":
            return Fourier(self._cartesian(rows, device), check=False)
        return _constant(task, device)

    def _sample(self, key: str, rows: Rows, device: torch.device, logarithmic: bool = False) -> Tensor:
        """One value per sample of the setting `key`, uniform in its range (or uniform in its logarithm)."""
        value = getattr(self.base, key)
        low, high = self.ranges.get(key, (value, value))
        u = rows.rand(device=device)
        if logarithmic and low > 0:
            return low * (high / low) ** u
        return low + (high - low) * u

    def _cartesian(self, rows: Rows, device: torch.device) -> Tensor:
        """Symmetric random lines like `cartesian_mask`, one draw per sample, (B, 1, 1, n)."""
        n = self.base.shape[0]
        lines = self._sample("lines", rows, device).round()
        half = (n + 1) // 2 - 1  # pairs (k, -k), k = 1 .. half
        score = rows.rand(half, device=device)
        score[:, : int(0.08 * n) // 2] = -1  # the lowest frequencies come first
        rank = score.argsort(1).argsort(1)
        pairs = (rank < ((lines - 1) / 2).floor()[:, None]).float()
        columns = torch.zeros(len(lines), n, device=device)
        columns[:, 0] = 1
        columns[:, 1 : half + 1] = pairs
        columns[:, n - half :] = pairs.flip(1)
        if n % 2 == 0:
            columns[:, n // 2] = (lines % 2 == 0).float()
        return columns[:, None, None]


_constants: dict[tuple[Task, torch.device], Operator] = {}


def _constant(task: Task, device: torch.device) -> Operator:
    """The operator of a task that draws nothing, built once."""
    if (task, device) not in _constants:
        _constants[task, device] = task.operator().to(device)
    return _constants[task, device]


def measure(tasks: Sequence[TrainTask], x: Tensor, rows: Sequence[Rows]) -> tuple[Operator, Tensor, Tensor]:
    """Measure images `x`, ordered by task; `rows` says which rows of each task's samples they are."""
    counts = [r.stop - r.start for r in rows]
    drawn = [task.draw(part, r) for task, part, r in zip(tasks, x.split(counts), rows, strict=True)]
    sigma = torch.cat([s for _, _, s in drawn])
    if len(drawn) == 1:
        return drawn[0][0], drawn[0][1], sigma
    op, y = group([(op, y) for op, y, _ in drawn])
    return op, y, sigma


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
