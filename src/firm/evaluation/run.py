"""Run methods over tasks and images. Every finished image is a line of a CSV file, so that a run can be continued."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from firm._util.checks import generator_for
from firm._util.custom import custom_code
from firm._util.files import folder_lock
from firm._util.machine import Ranks, default_device, peak_megabytes
from firm._util.terminal import on_terminal, progress_bar
from firm.data.images import Images
from firm.evaluation.methods import NamedMethod, degraded
from firm.evaluation.records import COLUMNS, Row, open_folder
from firm.metrics import Convention, scores, visible
from firm.noise import Noise
from firm.operators import LinearOperator
from firm.tasks import BaseTask

if TYPE_CHECKING:
    from tqdm import tqdm

Work = list[tuple[BaseTask, range, list[NamedMethod]]]  # what is to be done on each chunk of images


@dataclass(frozen=True)
class Evaluation:
    """What is evaluated; all results in one folder belong to one of these.

    Parameters
    ----------
    images
        The true images.
    tasks
        What measures them.
    convention
        How the metrics are computed, see `firm.metrics.scores`.
    seed
        Seed of the measurements and of the methods' noise.
    about
        What else tells this evaluation from others, such as the name of the data set; recorded, and compared when an
        evaluation is continued.
    device
        Where the measurements are, and where the methods compute.
    """

    images: Images
    tasks: Sequence[BaseTask]
    convention: Convention = "tables"
    seed: int = 42
    about: dict[str, Any] = field(default_factory=dict)
    device: torch.device = field(default_factory=default_device)

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", torch.device(self.device))  # its name will do
        if not isinstance(self.images, Images):
            raise TypeError("Evaluation takes images as firm.data.Images(pixels, names) or firm.data.load_images(...)")


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


def evaluate(
    evaluation: Evaluation,
    methods: Sequence[NamedMethod],
    out: str | Path,
    *,
    batch_size: int = 8,
    progress: bool = True,
    ranks: Ranks | None = None,
) -> list[Row]:
    """Evaluate, appending to ``out/images.csv`` whatever is not there yet.

    Results depend neither on `batch_size` nor on how often the run was stopped: measurement and starting noise belong
    to the image, and the CPU restores and scores one image at a time (where batches would gain nothing, but change the
    last bits). On a GPU `batch_size` images are restored at once, and scored many at once.

    Parameters
    ----------
    evaluation
        The images, and the tasks that measure them.
    methods
        What restores them; each has a label of its own.
    out
        The folder of the results, which is held meanwhile.
    batch_size
        Images restored at once on a GPU.
    progress
        Whether to show a bar.
    ranks
        This one of several processes that torchrun started: they share the images, and the main one of them writes.

    Returns
    -------
    The rows of these methods and tasks, those of earlier runs first.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    for what, names in (("tasks", [t.name for t in evaluation.tasks]), ("methods", [m.label for m in methods])):
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two {what} are called {', '.join(twice)}: their results would mix; rename one")
    r, out = ranks or Ranks(0, 1, evaluation.device), Path(out)
    main = r.rank == 0
    with ExitStack() as stack:
        stack.enter_context(folder_lock(out if main else None))
        rows = _from_all(open_folder(out, evaluation) if main else [], r)
        work, wanted = _missing(evaluation, methods, rows, batch_size)
        shares = [work[rank :: r.world] for rank in range(r.world)]
        total = len(wanted) * len(evaluation.images.names)
        left = sum(len(chunk) * len(group) for _, chunk, group in work)
        shown = progress and main
        bar = stack.enter_context(progress_bar(total=total, initial=total - left, unit="img", shown=shown))
        if main:
            table = out / "images.csv"
            file = stack.enter_context(open(table, "a", newline="", encoding="utf-8", errors="surrogateescape"))
            writer = csv.DictWriter(file, COLUMNS)
            if file.tell() == 0:
                writer.writeheader()
        mine = _compute(evaluation, shares[r.rank], bar)
        for _ in range(max(sum(len(group) for *_, group in share) for share in shares)):
            new = _from_all(next(mine, []), r)
            if main:
                writer.writerows(new)
                file.flush()
                os.fsync(file.fileno())
            rows += new
            bar.update(len(new))
    return [row for row in rows if (row["task"], row["method"], row["fingerprint"]) in wanted]


def _missing(
    evaluation: Evaluation, methods: Sequence[NamedMethod], rows: Sequence[Row], batch_size: int
) -> tuple[Work, set[tuple[str, str, str]]]:
    """Return the work that is not in the `rows` yet, and the task, method and fingerprint of all that are wanted.

    Every method works on a chunk of images before the next chunk, so that they share its measurement.
    """
    done = {(row["task"], row["method"], row["fingerprint"], row["index"]) for row in rows}
    wanted: set[tuple[str, str, str]] = set()
    work: Work = []
    for task in evaluation.tasks:
        by_chunk: dict[range, list[NamedMethod]] = {}
        for method in [settled for method in methods if (settled := method.on(task)) is not None]:
            name = (task.name, method.label, method.fingerprint)
            wanted.add(name)
            todo = [i for i in range(len(evaluation.images.names)) if (*name, i) not in done]
            for chunk in chunks(evaluation, todo, batch_size):
                by_chunk.setdefault(chunk, []).append(method)
        work += [(task, chunk, by_chunk[chunk]) for chunk in sorted(by_chunk, key=lambda chunk: chunk.start)]
    return work, wanted


def _compute(evaluation: Evaluation, work: Work, bar: tqdm[Any]) -> Iterator[list[Row]]:
    """Yield the rows of each method on each chunk; one measurement of a chunk serves all its methods."""
    watched = on_terminal()
    for task, chunk, methods in work:
        measured = measure_chunk(evaluation, task, chunk)
        for method in methods:
            bar.set_description(f"{task.name}, {method.label}", refresh=watched)
            if evaluation.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(evaluation.device)
            restored = restore_chunk(evaluation, task, method, chunk, measured)
            x, peak = restored.x, peak_megabytes(evaluation.device)
            if x.shape != measured.truth.shape or not x.isfinite().all():
                wrong = f"the shape {tuple(x.shape)}, the images have {tuple(measured.truth.shape)}"
                wrong = wrong if x.shape != measured.truth.shape else "values that are NaN or infinite"
                where = f"{method.label} on {task.name}, images {chunk.start} to {chunk.stop - 1}"
                raise ValueError(f"{where}: the restoration has {wrong}")
            # On a GPU one by one would take longer than the restoration; on the CPU batches would change the last bits.
            step = max(1, 2**20 // (x.shape[-2] * x.shape[-1])) if x.is_cuda else 1
            pieces = [slice(start, start + step) for start in range(0, len(x), step)]
            every = [score for piece in pieces for score in score_images(evaluation, task, method, restored, piece)]
            named = {"task": task.name, "method": method.label, "fingerprint": method.fingerprint}
            same = {"nfe": method.nfe, "seconds": round(restored.seconds / len(chunk), 6), "peak_mb": peak}
            yield [
                {**named, "index": i, "file": evaluation.images.names[i], **score, **same}
                for i, score in zip(chunk, every, strict=True)
            ]


def _from_all(rows: list[Row], ranks: Ranks) -> list[Row]:
    """Return the rows of all processes, the same list in each; all of them must ask together."""
    if ranks.world == 1:
        return rows
    found: list[Any] = [None] * ranks.world
    dist.all_gather_object(found, rows)
    return [row for part in found for row in part]


def chunks(evaluation: Evaluation, indices: Sequence[int], batch_size: int) -> Iterator[range]:
    """Yield runs of consecutive images that are restored at once: at most `batch_size` on a GPU, one elsewhere."""
    most = batch_size if evaluation.device.type == "cuda" else 1
    start = 0
    for end in range(1, len(indices) + 1):
        if end == len(indices) or indices[end] != indices[end - 1] + 1 or end - start == most:
            yield range(indices[start], indices[end - 1] + 1)
            start = end


def measure_chunk(evaluation: Evaluation, task: BaseTask, chunk: range) -> Measured:
    """Measure the images `chunk`, on the evaluation's device."""
    truth = evaluation.images.batch(chunk).to(evaluation.device)
    op, y = task.measure(truth, evaluation.seed, chunk.start)
    return Measured(truth, task.told(op, y), y)


def restore_chunk(
    evaluation: Evaluation, task: BaseTask, method: NamedMethod, chunk: range, measured: Measured | None = None
) -> Restored:
    """Restore some of the images with one method; the time is that of the method alone.

    Parameters
    ----------
    evaluation, task
        The true images with the seed, and what measures them. The noise that the method draws belongs to the image.
    method
        A method with the settings that it has in the task, see `NamedMethod.on`.
    chunk
        The numbers of the images, counted from 0, which follow one another.
    measured
        What `measure_chunk` returns for them, where several methods share it; it is called here if not given.
    """
    m = measure_chunk(evaluation, task, chunk) if measured is None else measured
    sigma = task.noise_for(m.truth)
    if isinstance(sigma, Noise) and not method.takes_noise:  # it is told the average level
        sigma = float(sigma.on(m.op, m.y, m.truth).level(m.y).mean())
    generators = [generator_for(evaluation.seed, i, "method") for i in chunk]
    cuda = evaluation.device.type == "cuda"
    if cuda:
        torch.cuda.synchronize(evaluation.device)
    start = time.perf_counter()
    with torch.no_grad(), custom_code(task=type(task)):
        x = method.run(m.op, m.y, sigma, generators)
    if cuda:
        torch.cuda.synchronize(evaluation.device)
    return Restored(m.truth, m.op, m.y, x, time.perf_counter() - start)


def score_images(
    evaluation: Evaluation, task: BaseTask, method: NamedMethod, restored: Restored, piece: slice
) -> list[dict[str, float]]:
    """Return PSNR, SSIM and LPIPS of each image in a piece of a batch, rounded as they are stored.

    Parameters
    ----------
    evaluation, task, method
        What the batch comes from; the evaluation also says by which convention the metrics are computed.
    restored, piece
        The batch from `restore_chunk`, and which of its images to score, counted from its first.

    Returns
    -------
    For each image "psnr" in dB, and "ssim" and "lpips" where they are defined, see `firm.metrics.scores`.
    """
    x = task.aligned(restored.x[piece], restored.truth[piece])
    x = visible(x, evaluation.images.complex)
    truth = visible(restored.truth[piece], evaluation.images.complex)
    strided = task.name == "super-resolution" and task.settings().get("filter") == "stride"
    if strided and method.run is degraded and evaluation.convention == "tables" and not evaluation.images.complex:
        # The reference code maps this row to [0, 1] twice for PSNR and LPIPS (docs/evaluation.md).
        twice = restored.op.A_adjoint((restored.y[piece] + 1) / 2)
        found = scores(twice, truth, "tables", x_once=x)
    else:
        found = scores(x, truth, evaluation.convention)
    values = {key: value.tolist() for key, value in found.items()}
    return [{key: round(value[k], 6) for key, value in values.items()} for k in range(len(x))]
