"""The bundled portrait in the five tasks: measured, restored with `face-128`, and how sure the model is."""

from typing import Any

from experiments import shared
from experiments.tables import METRICS, Column, Line, Table
from firm import fast, load, restore
from firm._util.terminal import progress_bar
from firm.data import portrait
from firm.evaluation import degraded
from firm.metrics import scores
from firm.restoration.output import write_side_by_side
from firm.tasks import Task, tables

COLUMNS = (
    Column("measured", "measured"), *(Column(column.key, column.title, digits=column.digits) for column in METRICS),
    Column("nfe", "NFE", digits=0), Column("seconds", "seconds"),
)  # fmt: skip


def study(settings: shared.Settings, name: str) -> dict[str, Any]:
    """Write ``portrait.png`` (a row a task: truth, measurement, restoration, mean, deviation) and print a table.

    Options of its own: `N`, `samples` and `seed`.
    """
    device = settings.device
    steps, samples, seed = (settings.extra.get(key, usual) for key, usual in (("N", 2), ("samples", 8), ("seed", 0)))
    model_name = settings.model or shared.CELEBA.model
    model, truth = fast(load(model_name).to(device)), portrait().to(device)
    rows, lines, numbers = [], [], dict[str, Any]()
    for kind in progress_bar(tables(), unit="task"):
        task = Task(kind, shared.CELEBA.size)
        op, y = task.measure(truth, seed)
        r = restore(model, op, y, steps, samples, seed, sigma=task.sigma)
        found = {"measurement": degraded(op, y, task.sigma, None), "restored": r.image, "mean": r.mean}
        scored = {
            what: {key: round(float(value), 4) for key, value in scores(x, truth).items()} for what, x in found.items()
        }
        each = {"seconds": round(r.seconds / samples, 3), "nfe": model.calls(steps)}  # of one restoration
        numbers[kind] = {**scored, **each, "std": round(float(r.std.mean()), 5)}
        lines.append(Line(kind, {"measured": scored["measurement"]["psnr"], **scored["restored"], **each}))
        titles = (kind, f"restored, N = {steps}", f"mean of {samples}")
        shown = [
            (f"{title}: {scored[what]['psnr']:.2f} dB", x[0])
            for title, (what, x) in zip(titles, found.items(), strict=True)
        ]
        rows.append([("truth", truth[0]), *shown, ("standard deviation", r.std[0].mean(0))])
    write_side_by_side(settings.folder(name) / "portrait.png", rows)
    title = "truth, measurement, restoration, mean and standard deviation of the bundled portrait"
    return shared.record(
        settings, name, images=1, model=model_name, numbers={"N": steps, "samples": samples, **numbers},
        tables=[Table(f"{model_name}, N = {steps}, one portrait", COLUMNS, lines)],
        figures=[shared.Figure("portrait.png", title, free=True)], seed=seed, quick=False,
    )  # fmt: skip
