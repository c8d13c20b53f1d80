"""The bundled model on the first CelebA test faces: table beside the paper's rows, curves, mismatch, posterior spread.

    python experiments/face_128/run.py --data CELEBA            # everything; a GPU is advisable
    python experiments/face_128/run.py --data CELEBA --steps 1,2 --limit 20      # a part, on a CPU

Writes results.json, checks.json, table.md and curves.png beside this file (or to --out; those of another --model to a
folder of its own); a stopped run goes on.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from firm._model import Firm, load
from firm._restore import restore
from firm._util.files import write_atomically
from firm._util.machine import choose_device, describe_machine
from firm._util.text import numbers
from firm.acceleration._fast import fast
from firm.data import load_images
from firm.evaluation import Evaluation, evaluate, firm_method, plain_methods
from firm.evaluation.names import folder_name
from firm.evaluation.report import summarize
from firm.evaluation.run import restore_chunk
from firm.metrics import psnr
from firm.reproduce import published
from firm.tasks import Task, tables

HERE = Path(__file__).parent
TASKS = tables()
PAPER = ("Degraded", "PnP-Flow1", "Flower5-OT", "FIRM N=2")  # rows of its Table 1


def main(
    data: Annotated[Path, typer.Option(help="Folder of CelebA.")],
    model: Annotated[str, typer.Option(help="A bundled model's name, or a .safetensors file.")] = "face-128",
    steps: Annotated[str, typer.Option(help="Numbers of Euler steps.")] = "1,2,4,10,25",
    limit: Annotated[int, typer.Option(min=2, help="Test faces.")] = 100,
    batch: Annotated[int, typer.Option(min=1, help="Images at once on a GPU.")] = 100,
    out: Annotated[Path | None, typer.Option(help="Folder for the results.")] = None,
    work: Annotated[Path | None, typer.Option(help="Folder for the rows of single images.")] = None,
    device_name: Annotated[str | None, typer.Option("--device", help="cpu, cuda or cuda:N.")] = None,
) -> None:
    """Evaluate, check, draw."""
    device = choose_device(device_name)
    network = fast(load(model).to(device))
    out, work = folders(model, network, out, work)
    images = load_images("celeba", data, "test", size=128, limit=limit)
    evaluation = Evaluation(images, [Task(name, 128) for name in TASKS], device=device)
    methods = [*plain_methods(), *(firm_method(network, N) for N in numbers(steps))]
    summary = summarize(evaluate(evaluation, methods, work, batch=batch))
    about = {"model": model, "images": limit, "convention": "tables", "machine": describe_machine(device)}
    write_atomically(out / "results.json", json.dumps({**about, "summary": summary}, indent=1))
    write_atomically(out / "table.md", table(summary))
    draw(summary, out / "curves.png")
    truth = images.batch(range(min(20, limit))).to(device)
    checks = {**about, "mismatch": mismatch(network, evaluation, batch), "spread": spread(network, truth)}
    write_atomically(out / "checks.json", json.dumps(checks, indent=1))
    print(table(summary))
    print(json.dumps({key: checks[key] for key in ("mismatch", "spread")}, indent=1))


def folders(name: str, model: Firm, out: Path | None, work: Path | None) -> tuple[Path, Path]:
    """Where results go: those of the bundled model beside this file, and none into the folder of another model."""
    own = Path("outputs") / "face_128" / folder_name(name, model.fingerprint(), model.card)
    bundled = name == "face-128" and not Path(name).is_file()
    return out or (HERE if bundled else own), work or own


def table(summary: dict[str, Any]) -> str:
    """PSNR / SSIM / LPIPS: the paper's rows and ours, in Markdown."""
    lines = ["| method | " + " | ".join(TASKS) + " |", "|---" * (len(TASKS) + 1) + "|"]
    rows = {f"paper: {name}": published.celeba()[name] for name in PAPER}
    rows |= {f"ours: {name}": {task: summary[task][name] for task in TASKS} for name in summary[TASKS[0]]}
    for name, row in rows.items():
        cells = [row[task] for task in TASKS]
        values = " | ".join(f"{c['psnr']:.2f} / {c['ssim']:.3f} / {c['lpips']:.3f}" for c in cells)
        lines.append(f"| {name} | {values} |")
    return "\n".join(lines) + "\n"


def draw(summary: dict[str, Any], path: Path) -> None:
    """Distortion against perception, one panel a task: PSNR up, LPIPS to the left is better."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.1 * len(TASKS), 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    for axis, task in zip(figure.subplots(1, len(TASKS)), TASKS, strict=True):
        ours = [(m, v) for m, v in summary[task].items() if m.startswith("FIRM")]
        axis.plot([v["lpips"] for _, v in ours], [v["psnr"] for _, v in ours], "o-", label="face-128")
        for method, v in ours:
            # N = 1 and 2 often lie close together
            offset, side = ((-5, 2), "right") if method.endswith("N=1") else ((5, -4), "left")
            place = (v["lpips"], v["psnr"])
            axis.annotate(method.split()[-1], place, offset, textcoords="offset points", fontsize=7, ha=side)
        for name, marker in (("PnP-Flow1", "s"), ("Flower5-OT", "^"), ("FIRM N=2", "*")):
            row = published.celeba()[name][task]
            axis.plot([row["lpips"]], [row["psnr"]], marker, ms=7, label=f"paper: {name}", alpha=0.8)
        axis.set_title(task, fontsize=10)
        axis.set_xlabel("LPIPS")
        axis.locator_params(axis="x", nbins=5)
        axis.margins(x=0.2)
        axis.grid(alpha=0.3)
    figure.axes[0].set_ylabel("PSNR, dB")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def mismatch(model: Firm, evaluation: Evaluation, batch: int) -> dict[str, float]:
    """PSNR at N = 2 of random inpainting with other shares of missing pixels and other noise levels."""
    settings = [("missing", p) for p in (0.5, 0.6, 0.7, 0.8)] + [("sigma", s) for s in (0.005, 0.02)]
    method, n = firm_method(model, 2), len(evaluation.images)
    size = batch if evaluation.device.type == "cuda" else 1
    result = {}
    for key, value in settings:
        task = Task("random-inpainting", 128, **{key: value})
        chunks = [range(first, min(first + size, n)) for first in range(0, n, size)]
        restored = [restore_chunk(evaluation, task, method, chunk) for chunk in chunks]
        result[f"{key} {value}"] = round(float(torch.cat([psnr(r.x, r.truth) for r in restored]).mean()), 3)
    return result


def spread(model: Firm, truth: torch.Tensor) -> dict[str, float]:
    """Box inpainting, 8 samples at N = 2: standard deviation inside the box and outside."""
    task = Task("box-inpainting", 128)
    inside, outside = [], []
    for i, x in enumerate(truth):
        op, y = task.measure(x[None], 42, i)
        std = restore(model, op, y, 2, 8, seed=i, sigma=task.sigma).std
        assert std is not None
        hole = (op.A(torch.ones_like(x[None])) == 0)[0]
        inside.append(float(std[0][hole].mean()))
        outside.append(float(std[0][~hole].mean()))
    a, b = sum(inside) / len(inside), sum(outside) / len(outside)
    return {"faces": len(truth), "inside": round(a, 5), "outside": round(b, 5), "ratio": round(a / b, 2)}


if __name__ == "__main__":
    typer.run(main)
