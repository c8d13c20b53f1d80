"""The bundled portrait in the five tasks: measured, restored with `face-128`, and how sure the model is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from tqdm import tqdm

from firm._model import load
from firm._restore import restore
from firm._util.device import default_device
from firm._util.files import write_atomically
from firm._util.machine import describe_machine
from firm.acceleration._fast import fast
from firm.data import portrait
from firm.evaluation.methods import degraded
from firm.metrics import scores
from firm.restoration.output import write_side_by_side
from firm.tasks import Task, tables


def run(
    out: Path,
    model_name: str = "face-128",
    steps: int = 2,
    samples: int = 8,
    seed: int = 0,
    device: torch.device | None = None,
) -> dict[str, Any]:
    """Write ``portrait.png`` (a row a task: truth, measurement, restoration, mean, deviation) and print a table."""
    device = device or default_device()
    model = fast(load(model_name).to(device))
    truth = portrait().to(device)
    rows: list[list[tuple[str, Tensor]]] = []
    results: dict[str, Any] = {"model": model_name, "N": steps, "samples": samples, "machine": describe_machine(device)}
    for name in tqdm(tables(), unit="task"):
        task = Task(name, 128)
        op, y = task.measure(truth, seed)
        shown = degraded(op, y, task.sigma, None)
        r = restore(model, op, y, steps, samples, seed, sigma=task.sigma)
        assert r.std is not None
        found = {"measurement": shown, "restored": r.image, "mean": r.mean}
        results[name] = {
            what: {key: round(float(value), 4) for key, value in scores(x, truth).items()} for what, x in found.items()
        }
        each = {"seconds": round(r.seconds / samples, 3), "nfe": model.calls(steps)}  # of one restoration
        results[name] |= {**each, "std": round(float(r.std.mean()), 5)}
        psnr = {what: f"{values['psnr']:.2f} dB" for what, values in results[name].items() if isinstance(values, dict)}
        rows.append(
            [
                ("truth", truth[0]),
                (f"{name}: {psnr['measurement']}", shown[0]),
                (f"restored, N = {steps}: {psnr['restored']}", r.image[0]),
                (f"mean of {samples}: {psnr['mean']}", r.mean[0]),
                ("standard deviation", r.std[0].mean(0)),
            ]
        )
    write_side_by_side(out / "portrait.png", rows)
    write_atomically(out / "portrait.json", json.dumps(results, indent=1))
    console = Console()
    console.print(_table(results))
    console.print(f"the picture is {out / 'portrait.png'}")
    return results


def _table(results: dict[str, Any]) -> Table:
    table = Table(title=f"{results['model']}, N = {results['N']}, one portrait", title_justify="left")
    for column in ("task", "measured", "PSNR", "SSIM", "LPIPS", "NFE", "seconds"):
        table.add_column(column, justify="left" if column == "task" else "right")
    for name in tables():
        r = results[name]
        best = r["restored"]
        table.add_row(
            name, f"{r['measurement']['psnr']:.2f}", f"{best['psnr']:.2f}", f"{best['ssim']:.3f}",
            f"{best['lpips']:.3f}", str(r["nfe"]), f"{r['seconds']:.2f}",
        )  # fmt: skip
    return table
