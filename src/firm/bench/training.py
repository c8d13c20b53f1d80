"""Speed of training steps: naive eager float32 against everything switched on, and whether both compute the same."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from firm._util.files import write_atomically
from firm._util.machine import Ranks, default_device, describe_machine, peak_megabytes, wait
from firm.data.images import Images
from firm.training.config import TrainConfig, load_config
from firm.training.estimate import compile_beforehand, estimate, matrix_rate
from firm.training.trainer import Trainer

COLUMNS = {
    "mode": "", "batch": "", "error": "", "images/s": ".1f", "ms a step": ".1f", "peak_mb": ".0f",
    "share of matrix rate": ".1%", "start in s": ".0f", "gradient error": ".1e",
}  # fmt: skip
NAIVE = dict(bf16=False, channels_last=False, compile=False, cuda_graph=False, fused=False)


def bench(
    path: Path | None,
    overrides: list[str],
    batches: list[int],
    *,
    naive: bool,
    seconds: float,
    out: Path | None,
    device: torch.device | None = None,
) -> dict[str, Any]:
    """Measure each batch size, naive and fast; a size that does not fit is recorded as such. JSON after every one.

    With `naive`, the fast rows also hold the relative difference of the first step's gradient from the naive one:
    rounding, if all is well. Start from trained weights (``init_from``) for that; at random ones the last layers are
    nearly zero and hide the others.
    """
    base, device = load_config(path, overrides), device or default_device()
    plainly = NAIVE | ({"recompute": "nothing"} if base.recompute == "pointwise" else {})  # is for compiled blocks
    rows: list[dict[str, Any]] = []
    results = {
        "config": str(path), "overrides": overrides, "K": base.K,
        "matrix TFLOP/s": round(matrix_rate(device) / 1e12, 4), **estimate(base, device),
        "machine": describe_machine(device), "rows": rows,
    }  # fmt: skip
    for batch in batches:
        plain: Tensor | None = None
        for name, settings in (("naive", plainly), ("fast", {})) if naive else (("fast", {}),):
            config = replace(base, batch_size=batch, **settings)  # type: ignore[arg-type]
            row: dict[str, Any] = {"mode": name, "batch": batch}
            try:
                measured, gradient = _measure_speed(config, seconds, device)
            except torch.OutOfMemoryError:
                row["error"] = "out of memory"
            else:
                share = measured["images/s"] * results["TFLOP a training image"] / results["matrix TFLOP/s"]
                row |= measured | {"share of matrix rate": round(share, 4)}
                if name == "naive":
                    plain = gradient
                elif plain is not None:
                    row["gradient error"] = float((gradient - plain).norm() / plain.norm())
            rows.append(row)
            if out is not None:
                write_atomically(out, json.dumps(results, indent=1))
            if device.type == "cuda":
                torch.cuda.empty_cache()
    return results


def _measure_speed(
    config: TrainConfig, seconds: float, device: torch.device | None = None
) -> tuple[dict[str, Any], Tensor]:
    """Time full steps (data, loss, backward, clipping, AdamW, averaging) with the solver on, after warming up.

    Returns the numbers, and the gradient of the first step as one vector on the CPU.
    """
    config, device = replace(config, warm_start_epochs=0, ema_from_epoch=0), device or default_device()
    side = config.read_size or config.size
    shape = (64, config.channels, side, side)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    start, ranks = time.perf_counter(), Ranks(0, 1, device)
    compile_beforehand(config, ranks)
    trainer = Trainer(config, ranks, Images(pixels, [str(i) for i in range(len(pixels))]))
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with trainer.custom_code():
        _, norm = trainer.advance()
        gradient = torch.cat([p.grad.flatten() for p in trainer.params if p.grad is not None]).cpu().double()
        gradient *= max(1.0, norm.item() / config.clip_grad_norm)  # as it was before clipping, which hides its size
        trainer.advance()
        wait(device)
        warm_up = time.perf_counter() - start
        steps, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds or steps < 3:
            trainer.advance()
            steps += 1
        wait(device)
    step = (time.perf_counter() - start) / steps
    return {
        "images/s": round(config.batch_size / step, 2),
        "ms a step": round(1000 * step, 2),
        "peak_mb": peak_megabytes(device),
        "start in s": round(warm_up, 1),
    }, gradient
