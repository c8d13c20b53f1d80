"""Table 1 of the paper: every method in every task on the first CelebA test faces, ours beside the published."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from firm._model import load
from firm._util.device import default_device
from firm._util.files import write_atomically
from firm._util.machine import describe_machine
from firm.acceleration._fast import Precision, fast
from firm.baselines.methods import Networks, baseline_methods
from firm.data import load_images
from firm.evaluation import Evaluation, evaluate, firm_method, plain_methods
from firm.evaluation.report import comparison, summarise
from firm.reproduce.comparison import latex, markdown, terminal
from firm.reproduce.published import Scores, celeba
from firm.tasks import Task, tables


def run(
    out: Path,
    data: Path,
    *,
    methods: str = "all",
    model: str = "face-128",
    steps: Sequence[int] = (2, 4, 10, 25),
    limit: int = 100,
    batch: int = 50,
    precision: Precision = "auto",
    weights: Path | None = None,
    pictures: int = 0,
    device: torch.device | None = None,
) -> dict[str, Any]:
    """Evaluate what is not in ``out/images.csv`` yet; write table.md, table.tex and results.json, print the PSNR."""
    start = time.perf_counter()
    device = device or default_device()
    networks = Networks(device, precision, weights)
    chosen = [plain_methods()[0], *(baseline_methods(methods, networks) if methods else [])]
    firm = fast(load(model).to(device), precision)
    chosen += [firm_method(firm, N) for N in steps]
    tasks = [Task(name, 128) for name in tables()]
    for method in chosen:
        for task in tasks:
            method.on(task)  # loads the networks: what is missing is said before any work
    images = load_images("celeba", data, "test", size=128, limit=limit)
    evaluation = Evaluation(images, tasks, "tables", device=device)
    summary = summarise(evaluate(evaluation, chosen, out, batch=batch))
    ours, paper = by_method(summary, [m.label for m in chosen]), celeba()
    ours = {label if label != "degraded" else "Degraded": row for label, row in ours.items()}
    results = {
        "model": model, "images": len(images), "convention": "tables", "precision": precision, "batch": batch,
        "seconds": round(time.perf_counter() - start, 1), "machine": describe_machine(device),
        "ours": ours, "paper": paper, "summary": summary,
    }  # fmt: skip
    write_atomically(out / "results.json", json.dumps(results, indent=1))
    write_atomically(out / "table.md", markdown(ours, paper))
    write_atomically(out / "table.tex", latex(ours, paper))
    if pictures:
        for task in tasks:
            comparison(evaluation, task, chosen, pictures, out / f"{task.name}.png")
    console = Console(width=140)
    console.print(terminal(ours, paper))
    console.print(f"{len(images)} faces; the whole table is in {out / 'table.md'}, table.tex and results.json")
    return results


def by_method(summary: dict[str, Any], labels: Sequence[str]) -> Scores:
    """The means, by method first: scores[method][task]."""
    return {
        label: {
            task: {metric: row[label][metric] for metric in ("psnr", "ssim", "lpips")}
            for task, row in summary.items()
            if label in row
        }
        for label in labels
    }
