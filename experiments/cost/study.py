"""The paper's Table 3: seconds per image, peak memory and network calls of every method, CelebA deblurring."""

import contextlib
import gc
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from experiments import shared
from experiments.published import COST
from experiments.shared import CELEBA, SEED, Settings
from experiments.tables import Column, Line, Table
from firm import fast, load
from firm._util.checks import generator_for, require
from firm._util.files import write_atomically
from firm._util.machine import peak_megabytes, wait
from firm._util.terminal import progress_bar
from firm.acceleration.graphs import eagerly
from firm.baselines.catalog import BASELINES, Calls, baseline_names
from firm.baselines.weights import Networks, baseline_methods
from firm.data.images import Images
from firm.evaluation import NamedMethod, firm_method
from firm.tasks import BaseTask, Task

MODES = ("plain", "fast")  # eager float32, as published code runs; and made fast: CUDA graphs, bfloat16 where allowed
STEPS = (2, 4, 10, 25)
QUICK_METHODS = "pnp-hqs,pnp-flow1"


def study(settings: Settings, name: str) -> dict[str, Any]:
    """Measure each method by itself on the device; the rows so far are written after every one.

    Options of its own: `images` timed one by one, `batches` to try for the most images per second, `modes`, and `skip`,
    rows that are not measured in the mode "plain" (D-Flow takes minutes an image there).
    """
    task, device = Task("deblurring", CELEBA.size), settings.device
    quick, extra = settings.quick, settings.extra
    count, batches = extra.get("images", 3 if quick else 10), extra.get("batches", () if quick else (10, 100))
    modes, skip = extra.get("modes", ("fast",) if quick else MODES), extra.get("skip", ("d-flow",))
    skipped = baseline_names(",".join(skip)) if skip else []
    require(set(modes) <= set(MODES), f"no mode {', '.join(set(modes) - set(MODES))}; there are {', '.join(MODES)}")
    chosen, missing = shared.baselines(settings, CELEBA, "all", QUICK_METHODS)
    names = baseline_names(",".join(chosen)) if chosen else []
    for method in baseline_methods(",".join(names), Networks("cpu", "float32", settings.weights)) if names else ():
        method.on(task)  # loads the networks: what is missing is said before any work
    pictures = shared.test_images(settings, CELEBA, max([count, *batches]))
    count = min(count, len(pictures))
    rows = list[dict[str, Any]]()
    work: list[tuple[str, str, int]] = [(mode, "FIRM", N) for mode in modes for N in settings.steps or STEPS]
    work += [(mode, row, 0) for mode in modes for row in names if mode == "fast" or row not in skipped]
    for mode, row, N in progress_bar(work, unit="row"):
        with eagerly() if mode == "plain" else contextlib.nullcontext():
            method, calls = _prepare(settings, mode, row, N, task)
            found = dict(zip(("forward", "backward", "nfe"), calls or (None,) * 3, strict=True))
            found |= {"method": method.label, "mode": mode}
            found |= seconds_at_batch_one(method, task, pictures, count, device)
            found |= _at_best_batch(method, task, pictures, batches, device) if mode == "fast" else {}
        rows.append(found)
        write_atomically(settings.folder(name) / "rows.json", json.dumps(rows, indent=1))
        del method
        _free(device)
        if device.type == "cuda" and hasattr(torch._C, "_cuda_clearCublasWorkspaces"):  # private: it may go
            # Megabytes that the next row would count as its own, and that no recording uses any more.
            torch._C._cuda_clearCublasWorkspaces()
            torch.cuda.empty_cache()
    notes = ["the paper's times are those of one RTX A6000", *missing]
    if device.type == "cpu":
        notes.append("peak MB on a CPU is that of the whole process so far, so a row is never below the one before")
    more = {"tables": [table(rows, device)], "numbers": {"rows": rows}, "notes": notes}
    return shared.record(settings, name, images=count, model=settings.model or CELEBA.model, **more)


def _prepare(settings: Settings, mode: str, name: str, N: int, task: BaseTask) -> tuple[NamedMethod, Calls | None]:
    """The method alone on the device, with nothing left of the one before."""
    if name == "FIRM":
        firm = load(settings.model or CELEBA.model).to(settings.device)
        return firm_method(firm if mode == "plain" else fast(firm), N), Calls(firm.calls(N), 0, firm.calls(N))
    networks = Networks(settings.device, "float32" if mode == "plain" else "auto", settings.weights)
    method = baseline_methods(name, networks)[0].on(task)
    require(method is not None, f"{name} does not do {task.name}")
    return method, BASELINES[name].calls(BASELINES[name].settings(task) or {})


def seconds_at_batch_one(
    method: NamedMethod, task: BaseTask, pictures: Images, count: int, device: torch.device
) -> dict[str, float]:
    """Seconds an image: the median of `count`, after one to warm up. Peak memory of all of them, weights included."""
    _free(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    _, *seconds = (_once(method, task, pictures, range(i, i + 1), device) for i in (0, *range(count)))
    means = {"seconds": statistics.median(seconds), "mean_seconds": statistics.fmean(seconds)}
    return {**means, "peak_mb": peak_megabytes(device)}


def _at_best_batch(
    method: NamedMethod, task: BaseTask, pictures: Images, batches: Sequence[int], device: torch.device
) -> dict[str, float]:
    """Most images per second over the batch sizes, the second of two runs (only one where it takes over 20 s)."""
    best: dict[str, float] = {}
    for batch in batches:
        chunk = range(min(batch, len(pictures)))
        try:
            _free(device)
            seconds = _once(method, task, pictures, chunk, device)
            if seconds < 20:
                seconds = _once(method, task, pictures, chunk, device)
        except torch.OutOfMemoryError:
            break
        if len(chunk) / seconds > best.get("images/s", 0):
            best = {"images/s": len(chunk) / seconds, "batch": len(chunk)}
    return best


def _once(method: NamedMethod, task: BaseTask, pictures: Images, chunk: range, device: torch.device) -> float:
    """Seconds of one call on the images `chunk`, the device waited for before and after."""
    op, y = task.measure(pictures.batch(chunk).to(device), SEED, chunk.start)
    generators = [generator_for(SEED, i, "method") for i in chunk]
    wait(device)
    start = time.perf_counter()
    with torch.no_grad():
        method.run(op, y, task.sigma, generators)
    wait(device)
    return time.perf_counter() - start


def _free(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


COLUMNS = (
    Column("how", "how"), Column("seconds", "s/image", digits=4, better="low", paper_digits=2),
    Column("peak_mb", "peak MB", digits=0, better="low"), Column("calls", "network calls"),
    Column("nfe", "NFE", digits=0, better="low"), Column("speed", "images/s"),
)  # fmt: skip


def table(rows: Sequence[dict[str, Any]], device: torch.device) -> Table:
    """One line a method and mode, the paper's time and memory beside; memory is not ranked where it is a process's."""
    lines, keys = [], ("seconds", "peak_mb", "nfe")
    for row in rows:
        calls = "-" if row["forward"] is None else str(row["forward"])
        calls += f" + {row['backward']} back" if row["backward"] else ""
        ours = {"how": row["mode"], "calls": calls, **{key: row[key] for key in keys if row[key] is not None}}
        ours |= {"speed": f"{row['images/s']:.1f} (batch {row['batch']})"} if "images/s" in row else {}
        paper = {key: value for key, value in zip(keys, COST.get(row["method"], ()), strict=False) if value is not None}
        lines.append(Line(row["method"] if row["mode"] == "fast" else f"{row['method']}, plain", ours, paper))
    unranked = "peak_mb" if device.type == "cpu" else ""
    columns = [replace(column, better="") if column.key == unranked else column for column in COLUMNS]
    return Table("CelebA deblurring, one image at a time", columns, lines)
