"""The paper's efficiency table: seconds per image, peak memory and network calls of every method, CelebA deblurring."""

from __future__ import annotations

import contextlib
import gc
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from firm._model import load
from firm._util.device import default_device, wait
from firm._util.files import write_atomically
from firm._util.machine import describe_machine, peak_megabytes
from firm._util.seeds import generator_for
from firm.acceleration._fast import fast
from firm.acceleration.replay import eagerly
from firm.baselines.methods import BASELINES, Calls, Networks, baseline_methods, baseline_names
from firm.data import load_images
from firm.data.images import Images
from firm.evaluation.methods import NamedMethod, firm_method
from firm.reproduce.published import COST
from firm.tasks import BaseTask, Task

SEED = 42
MODES = ("plain", "fast")  # eager float32, as published code runs; and made fast: CUDA graphs, bfloat16 where allowed


def run(
    out: Path,
    data: Path,
    *,
    methods: str = "all",
    model: str = "face-128",
    steps: Sequence[int] = (2, 4, 10, 25),
    images: int = 10,
    batches: Sequence[int] = (10, 100),
    modes: Sequence[str] = MODES,
    skip: Sequence[str] = (),
    weights: Path | None = None,
    device: torch.device | None = None,
) -> dict[str, Any]:
    """Measure each method by itself on the device; cost.json is written after every row.

    `skip` names rows that are not measured in the mode "plain" (D-Flow takes minutes an image there).
    """
    task, device = Task("deblurring", 128), device or default_device()
    if wrong := [mode for mode in modes if mode not in MODES]:
        raise ValueError(f"no mode {', '.join(wrong)}; there are {', '.join(MODES)}")
    for method in baseline_methods(methods, Networks("cpu", "float32", weights)):
        method.on(task)  # loads the networks: what is missing is said before any work
    pictures = load_images("celeba", data, "test", size=128, limit=max(images, *batches, 1))
    rows: list[dict[str, Any]] = []
    results: dict[str, Any] = {
        "task": task.name, "images": images, "model": model, "machine": describe_machine(device), "rows": rows
    }  # fmt: skip
    work = [(mode, "FIRM", N) for mode in modes for N in steps]
    work += [
        (mode, name, 0) for mode in modes for name in baseline_names(methods) if mode == "fast" or name not in skip
    ]
    for mode, name, N in tqdm(work, unit="row"):
        with eagerly() if mode == "plain" else contextlib.nullcontext():
            method, calls = _prepare(mode, name, N, model, weights, task, device)
            row: dict[str, Any] = {"method": method.label, "mode": mode, **_calls(calls)}
            row |= _at_batch_one(method, task, pictures, images, device)
            row |= _at_best_batch(method, task, pictures, batches, device) if mode == "fast" else {}
        rows.append(row)
        write_atomically(out / "cost.json", json.dumps(results, indent=1))
        del method
        _free(device)
    write_atomically(out / "cost.md", markdown(results))
    console = Console(width=140)
    console.print(_table(results))
    console.print(f"results are in {out / 'cost.md'} and cost.json")
    return results


def _prepare(
    mode: str, name: str, N: int, model: str, weights: Path | None, task: BaseTask, device: torch.device
) -> tuple[NamedMethod, Calls | None]:
    """The method alone on the device, with nothing left of the one before."""
    if name == "FIRM":
        firm = load(model).to(device)
        return firm_method(firm if mode == "plain" else fast(firm), N), Calls(firm.calls(N), 0, firm.calls(N))
    networks = Networks(device, "float32" if mode == "plain" else "auto", weights)
    method = baseline_methods(name, networks)[0].on(task)
    if method is None:
        raise ValueError(f"{name} does not do {task.name}")
    values = BASELINES[name].settings(task)
    return method, BASELINES[name].calls(values or {})


def _calls(calls: Calls | None) -> dict[str, int | None]:
    if calls is None:
        return {"forward": None, "backward": None, "nfe": None}
    return {"forward": calls.forward, "backward": calls.backward, "nfe": calls.paper}


def _at_batch_one(
    method: NamedMethod, task: BaseTask, pictures: Images, count: int, device: torch.device
) -> dict[str, float]:
    """Seconds an image: the median of `count`, after one to warm up. Peak memory of all of them, weights included."""
    _free(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    seconds = [_once(method, task, pictures, range(i, i + 1), device) for i in (0, *range(count))][1:]
    peak = peak_megabytes(device)
    return {"seconds": statistics.median(seconds), "mean_seconds": statistics.fmean(seconds), "peak_mb": peak}


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


def _text(row: dict[str, Any]) -> list[str]:
    def number(key: str, form: str) -> str:
        return "-" if row.get(key) is None else format(row[key], form)

    published = COST.get(row["method"], (None, None, None))
    beside = ["-" if value is None else format(value, "g") for value in published]
    calls = number("forward", "d") if not row["backward"] else f"{row['forward']} + {row['backward']} back"
    speed = "-" if row.get("images/s") is None else f"{row['images/s']:.1f} (batch {row['batch']})"
    return [
        row["method"], row["mode"], number("seconds", ".4f"), beside[0], number("peak_mb", ".0f"), beside[1], calls,
        number("nfe", "d"), beside[2], speed,
    ]  # fmt: skip


COLUMNS = ("method", "how", "s/image", "paper", "peak MB", "paper", "calls", "NFE", "paper", "images/s")


def markdown(results: dict[str, Any]) -> str:
    """The rows as a Markdown table."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(_text(row)) + " |" for row in results["rows"])]) + "\n"


def _table(results: dict[str, Any]) -> Table:
    machine = results["machine"]
    title = (
        f"CelebA deblurring, batch 1, {results['images']} images, {machine.get('gpu', machine['cpu'])} (paper: A6000)"
    )
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("method", "how") else "right", no_wrap=True)
    for row in results["rows"]:
        table.add_row(*_text(row))
    return table
