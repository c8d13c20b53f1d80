"""The bundled portrait in the five tasks: measured, restored with `face-128`, and how sure the model is."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from firm._model import load
from firm._restore import restore
from firm._util.terminal import progress_bar
from firm.acceleration._fast import fast
from firm.data import portrait
from firm.evaluation.methods import degraded
from firm.metrics import scores
from firm.reproduce.record import Clock, Figure, record
from firm.reproduce.settings import CELEBA, Settings
from firm.reproduce.tables import Column, Line, Table
from firm.restoration.output import write_side_by_side
from firm.tasks import Task, tables


def study(settings: Settings, name: str) -> dict[str, Any]:
    """Write ``portrait.png`` (a row a task: truth, measurement, restoration, mean, deviation) and print a table.

    Options of its own: `N`, `samples` and `seed`.
    """
    clock, device = Clock(), settings.device
    steps, samples, seed = (settings.option(key, usual) for key, usual in (("N", 2), ("samples", 8), ("seed", 0)))
    model_name = settings.model or CELEBA.model
    model = fast(load(model_name).to(device))
    truth = portrait().to(device)
    rows: list[list[tuple[str, Tensor]]] = []
    lines, numbers = [], dict[str, Any]()
    for kind in progress_bar(tables(), unit="task"):
        task = Task(kind, CELEBA.size)
        op, y = task.measure(truth, seed)
        shown = degraded(op, y, task.sigma, None)
        r = restore(model, op, y, steps, samples, seed, sigma=task.sigma)
        assert r.std is not None
        found = {"measurement": shown, "restored": r.image, "mean": r.mean}
        scored = {
            what: {key: round(float(value), 4) for key, value in scores(x, truth).items()} for what, x in found.items()
        }
        each = {"seconds": round(r.seconds / samples, 3), "nfe": model.calls(steps)}  # of one restoration
        numbers[kind] = {**scored, **each, "std": round(float(r.std.mean()), 5)}
        lines.append(Line(kind, {"measured": scored["measurement"]["psnr"], **scored["restored"], **each}))
        psnr = {what: f"{values['psnr']:.2f} dB" for what, values in scored.items()}
        rows.append(
            [
                ("truth", truth[0]),
                (f"{kind}: {psnr['measurement']}", shown[0]),
                (f"restored, N = {steps}: {psnr['restored']}", r.image[0]),
                (f"mean of {samples}: {psnr['mean']}", r.mean[0]),
                ("standard deviation", r.std[0].mean(0)),
            ]
        )
    write_side_by_side(settings.folder(name) / "portrait.png", rows)
    title = "truth, measurement, restoration, mean and standard deviation of the bundled portrait"
    return record(
        settings, name, clock, images=1, model=model_name, numbers={"N": steps, "samples": samples, **numbers},
        tables=[Table(f"{model_name}, N = {steps}, one portrait", COLUMNS, lines)],
        figures=[Figure("portrait.png", title, free=True)], seed=seed, quick=False,
    )  # fmt: skip


COLUMNS = (
    Column("measured", "measured"),
    Column("psnr", "PSNR"),
    Column("ssim", "SSIM", digits=3),
    Column("lpips", "LPIPS", digits=3),
    Column("nfe", "NFE", digits=0),
    Column("seconds", "seconds"),
)
