"""Speed of sampling: milliseconds and memory an image, for several numbers of steps, at batch 1 and the best batch."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from firm._model import Firm
from firm._sampling import sample
from firm._util.checks import require
from firm._util.files import write_atomically
from firm._util.machine import default_device, describe_machine, peak_megabytes, wait
from firm._util.terminal import progress_bar
from firm.acceleration._fast import Precision, fast
from firm.tasks import BaseTask, Task

COLUMNS = {"mode": "", "batch": "", "N": "", "nfe": "", "ms an image": ".1f", "images/s": ".2f", "peak_mb": ".0f"}
BATCHES = {"cpu": (1, 2, 4), "cuda": (1, 8, 32, 64, 128)}


def bench_sampling(
    model: Firm,
    name: str,
    steps: Sequence[int],
    *,
    task: str = "random-inpainting",
    precision: Precision = "auto",
    naive: bool = True,
    seconds: float = 3.0,
    out: Path | None = None,
    device: torch.device | None = None,
) -> dict[str, Any]:
    """Measure the model as it is ("naive": eager float32) and made `fast`, on random measurements.

    The best batch is the one with most images per second at one step. JSON is written after every measurement.

    Parameters
    ----------
    model, name
        What restores, and what the table calls it.
    steps
        Numbers of steps N.
    task, precision
        What to restore, and the precision of the fast rows.
    naive
        Whether to measure the model as it is, too.
    seconds
        The time for each measurement.
    out
        A file for the numbers as JSON.
    device
        Where to measure; None is the GPU if there is one.
    """
    device = device or default_device()
    model = model.to(device)
    size = int(model.card.get("size") or getattr(model.estimator, "config", {}).get("side") or 0)
    require(size, f"the model {name} does not restore pictures, or does not say of which size")
    problem = Task(task, size)
    rows: list[dict[str, Any]] = []
    about = {"model": name, "K": model.solver.K, "task": task, "size": size, "precision": precision}
    results: dict[str, Any] = {**about, "machine": describe_machine(device), "rows": rows}
    modes = {"naive": model} if naive else {}
    modes["fast"] = fast(model, precision)
    total = len(modes) * (len(BATCHES[device.type]) + 2 * len(steps))
    with progress_bar(total=total) as bar:
        for mode, chosen in modes.items():
            found: dict[int, float] = {}
            for batch in BATCHES[device.type]:
                try:
                    found[batch] = _measure(chosen, problem, 1, batch, seconds / 3)["images/s"]
                except torch.OutOfMemoryError:
                    break
                bar.update()
            best = max(found, key=lambda b: found[b])
            results[f"best batch, {mode}"] = best
            for batch in dict.fromkeys((1, best)):
                for N in steps:
                    row = {"mode": mode, "N": N, "nfe": chosen.calls(N), "batch": batch}
                    rows.append(row | _measure(chosen, problem, N, batch, seconds))
                    if out is not None:
                        write_atomically(out, json.dumps(results, indent=1))
                    bar.update()
        bar.update(total - bar.n)
    return results


def _measure(model: Firm, task: BaseTask, steps: int, batch: int, seconds: float) -> dict[str, float]:
    """Time whole calls of `sample`, starting noise included, after warming up: milliseconds, images/s, peak memory."""
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(0)
    config: dict[str, Any] = model.estimator.config  # type: ignore[assignment]
    channels = int(config["channels"])
    x = torch.rand(batch, channels, *task.shape, generator=torch.Generator().manual_seed(0)).to(device) * 2 - 1
    op, y = task.measure(x)

    def once() -> None:
        sample(model, op, y, steps, sigma=task.noise_for(x), generator=generator)
        wait(device)

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    once()
    once()
    calls, start = 0, time.perf_counter()
    while calls == 0 or time.perf_counter() - start < seconds:
        once()
        calls += 1
    each = (time.perf_counter() - start) / calls / batch
    return {"ms an image": round(1000 * each, 3), "images/s": round(1 / each, 2), "peak_mb": peak_megabytes(device)}
