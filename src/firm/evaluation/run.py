"""Run methods over tasks and images. Every finished image is a line of a CSV file, so that a run can be continued."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from firm._util.custom import custom_code
from firm._util.locks import locked
from firm._util.machine import default_device, peak_megabytes, wait
from firm._util.seeds import generator_for
from firm._util.terminal import on_terminal, progress_bar
from firm.data.images import Images
from firm.evaluation.folder import COLUMNS, Row, claim, read_rows
from firm.evaluation.methods import NamedMethod, degraded
from firm.metrics import Convention, scores, visible
from firm.operators import LinearOperator
from firm.tasks import BaseTask


class EvaluationError(RuntimeError):
    """A method returned something that is not a restoration."""


@dataclass(frozen=True)
class Evaluation:
    """What is evaluated. All results in one folder belong to one of these."""

    images: Images
    tasks: Sequence[BaseTask]
    convention: Convention = "tables"
    seed: int = 42
    about: dict[str, Any] = field(default_factory=dict)  # the data set: recorded, and compared when continued
    device: torch.device = field(default_factory=default_device)  # where the measurements are, and methods compute

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", torch.device(self.device))  # its name will do
        if not isinstance(self.images, Images):
            raise TypeError("Evaluation takes images as firm.data.Images(pixels, names), or firm.data.load_images(...)")

    @property
    def files(self) -> Sequence[str]:
        """Names of the images."""
        return self.images.names


@dataclass(frozen=True)
class Measured:
    """A batch and its measurements."""

    truth: Tensor  # (B, C, H, W)
    op: LinearOperator
    y: Tensor


@dataclass(frozen=True)
class Restored(Measured):
    """A batch that a method has restored."""

    x: Tensor  # (B, C, H, W)
    seconds: float  # for the batch


@locked(lambda evaluation, methods, out, **_: Path(out))
def evaluate(
    evaluation: Evaluation, methods: Sequence[NamedMethod], out: str | Path, *, batch: int = 8, progress: bool = True
) -> list[Row]:
    """Evaluate, appending to ``out/images.csv`` whatever is not there yet; return the rows of these methods and tasks.

    Results depend neither on `batch` nor on how often the run was stopped: measurement and starting noise belong to
    the image, and the CPU restores and scores one image at a time (where batches would gain nothing, but change the
    last bits). On a GPU `batch` images are restored at once, and scored many at once.
    """
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    for what, names in (("tasks", [t.name for t in evaluation.tasks]), ("methods", [m.label for m in methods])):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two {what} are called {', '.join(twice)}: their results would mix; rename one")
    out = Path(out)
    claim(out, evaluation)
    table = out / "images.csv"
    rows = read_rows(table, evaluation.files)
    done = {(row["task"], row["method"], row["fingerprint"], row["index"]) for row in rows}
    settled = [(task, method.on(task)) for task in evaluation.tasks for method in methods]
    pairs = [(task, method) for task, method in settled if method is not None]
    work: list[tuple[BaseTask, NamedMethod, range]] = []
    for task, method in pairs:
        todo = [i for i in range(len(evaluation.files)) if (task.name, method.label, method.fingerprint, i) not in done]
        work += [(task, method, chunk) for chunk in chunks(evaluation, todo, batch)]
    place = {task.name: number for number, task in enumerate(evaluation.tasks)}
    work.sort(key=lambda item: (place[item[0].name], item[2].start))  # every method on a chunk before the next chunk
    total = len(pairs) * len(evaluation.files)
    left = sum(len(chunk) for _, _, chunk in work)
    with (
        open(table, "a", newline="", encoding="utf-8", errors="surrogateescape") as file,
        progress_bar(total=total, initial=total - left, unit="img", shown=progress) as bar,
    ):
        writer = csv.DictWriter(file, COLUMNS)
        if file.tell() == 0:
            writer.writeheader()
        key, measured = None, None  # of the current chunk: one measurement serves all methods
        for task, method, chunk in work:
            bar.set_description(f"{task.name}, {method.label}", refresh=on_terminal())
            if measured is None or key != (task.name, chunk):
                key, measured = (task.name, chunk), measure_chunk(evaluation, task, chunk)
            new = _evaluate_chunk(evaluation, task, method, chunk, measured)
            writer.writerows(new)
            file.flush()
            os.fsync(file.fileno())
            rows += new
            bar.update(len(chunk))
    wanted = {(task.name, method.label, method.fingerprint) for task, method in pairs}
    return [row for row in rows if (row["task"], row["method"], row["fingerprint"]) in wanted]


def chunks(evaluation: Evaluation, indices: Sequence[int], batch: int) -> Iterator[range]:
    """Runs of consecutive images that are restored at once: at most `batch` on a GPU, one elsewhere."""
    batch = batch if evaluation.device.type == "cuda" else 1
    start = 0
    for end in range(1, len(indices) + 1):
        if end == len(indices) or indices[end] != indices[end - 1] + 1 or end - start == batch:
            yield range(indices[start], indices[end - 1] + 1)
            start = end


def measure_chunk(evaluation: Evaluation, task: BaseTask, chunk: range) -> Measured:
    """Measure the images `chunk`, on the evaluation's device."""
    truth = evaluation.images.batch(chunk).to(evaluation.device)
    return Measured(truth, *task.measure(truth, evaluation.seed, chunk.start))


def restore_chunk(
    evaluation: Evaluation, task: BaseTask, method: NamedMethod, chunk: range, measured: Measured | None = None
) -> Restored:
    """Restore the images `chunk`, measured first where they are not yet."""
    m = measure_chunk(evaluation, task, chunk) if measured is None else measured
    generators = [generator_for(evaluation.seed, i, "method") for i in chunk]
    wait(evaluation.device)
    start = time.perf_counter()
    with torch.no_grad(), custom_code(task=type(task)):
        x = method.run(m.op, m.y, task.sigma, generators)
    wait(evaluation.device)
    return Restored(m.truth, m.op, m.y, x, time.perf_counter() - start)


def score_image(
    evaluation: Evaluation, task: BaseTask, method: NamedMethod, restored: Restored, k: int
) -> dict[str, float]:
    """PSNR, SSIM and LPIPS of image `k` of a batch, rounded as they are stored."""
    return _score(evaluation, task, method, restored, slice(k, k + 1))[0]


def score_images(
    evaluation: Evaluation, task: BaseTask, method: NamedMethod, restored: Restored
) -> list[dict[str, float]]:
    """The same of every image of a batch."""
    step = _scored_at_once(restored.x)
    pieces = [slice(start, start + step) for start in range(0, len(restored.x), step)]
    return [score for piece in pieces for score in _score(evaluation, task, method, restored, piece)]


def _scored_at_once(x: Tensor) -> int:
    """One image on the CPU; on a GPU as many as fill it, where one by one would take longer than the restoration."""
    return max(1, 2**20 // (x.shape[-2] * x.shape[-1])) if x.is_cuda else 1


def _score(
    evaluation: Evaluation, task: BaseTask, method: NamedMethod, restored: Restored, piece: slice
) -> list[dict[str, float]]:
    x, truth = (visible(v[piece], evaluation.images.complex) for v in (restored.x, restored.truth))
    paper = evaluation.convention == "tables" and not evaluation.images.complex
    if paper and method.run is degraded and _bare_stride(task):
        # The reference code maps this row to [0, 1] twice for PSNR and LPIPS (docs/evaluation.md).
        twice = restored.op.A_adjoint((restored.y[piece] + 1) / 2)
        found = scores(twice, truth, "tables", x_once=x)
    else:
        found = scores(x, truth, evaluation.convention)
    values = {key: value.tolist() for key, value in found.items()}
    return [{key: round(value[k], 6) for key, value in values.items()} for k in range(len(x))]


def _bare_stride(task: BaseTask) -> bool:
    """Whether this is the paper's super-resolution."""
    return task.name == "super-resolution" and task.settings().get("filter") == "stride"


def _evaluate_chunk(
    evaluation: Evaluation, task: BaseTask, method: NamedMethod, chunk: range, measured: Measured
) -> list[Row]:
    if evaluation.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(evaluation.device)
    restored = restore_chunk(evaluation, task, method, chunk, measured)
    peak = peak_megabytes(evaluation.device)
    where = f"{method.label} on {task.name}, images {chunk.start} to {chunk.stop - 1}"
    if restored.x.shape != restored.truth.shape:
        found, wanted = tuple(restored.x.shape), tuple(restored.truth.shape)
        raise EvaluationError(f"{where}: the restoration has the shape {found}, the images have {wanted}")
    if not bool(restored.x.isfinite().all()):
        raise EvaluationError(f"{where}: the restoration has values that are NaN or infinite")
    every = score_images(evaluation, task, method, restored)
    return [
        {
            "task": task.name,
            "method": method.label,
            "fingerprint": method.fingerprint,
            "index": i,
            "file": evaluation.files[i],
            **score,
            "nfe": method.nfe,
            "seconds": round(restored.seconds / len(chunk), 6),
            "peak_mb": peak,
        }
        for i, score in zip(chunk, every, strict=True)
    ]
