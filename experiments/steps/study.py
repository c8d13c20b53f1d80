"""The number of Euler steps N: few favor PSNR, many LPIPS. The paper's figures of the trade-off, and over N."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments import published, shared
from experiments.figures import label_points, save, save_grid
from experiments.shared import AFHQ, CELEBA, Figure, Settings, Subject, Summary
from firm.data.images import Images
from firm.evaluation import NamedMethod
from firm.tasks import Task, tables

STEPS, QUICK_STEPS = (1, 2, 4, 10, 25, 50, 100), (1, 2, 4, 10)
IMAGES = 100


class _Part(NamedTuple):
    """One of the two data sets: what is published of it, the tasks whose pictures the paper shows, and less of both."""

    subject: Subject
    paper: published.Scores
    shown: tuple[str, ...]
    quick_images: int
    quick_tasks: tuple[str, ...]


PARTS = (
    _Part(CELEBA, published.CELEBA, ("deblurring", "super-resolution", "random-inpainting"), 10, tuple(tables())),
    _Part(AFHQ, published.AFHQ, ("deblurring",), 3, ("deblurring",)),
)


def study(settings: Settings, name: str) -> dict[str, Any]:
    """Make for both data sets a table of every N and task, its curves, and pictures of one image over N."""
    out = settings.folder(name)
    steps = settings.steps or (QUICK_STEPS if settings.quick else STEPS)
    rows = [shared.methods(settings, part.subject, [], steps) for part in PARTS]  # a missing model is said first
    found, figures, said, summaries = [], list[Figure](), list[str](), dict[str, Summary]()
    for part, (degraded, *ours) in zip(PARTS, rows, strict=True):
        subject = part.subject
        tasks = [Task(task, subject.size) for task in (part.quick_tasks if settings.quick else tables())]
        images = shared.test_images(settings, subject, settings.images(IMAGES, part.quick_images))
        summary = shared.scores(settings, subject, tasks, ours, images)
        found.append(shared.beside(shared.of(images, subject), summary, ours, part.paper))
        figures.append(draw_curves(out, part, summary, steps, shared.counted(len(images))))
        figures += draw_pictures(settings, name, part, images, [degraded, *ours])
        said += [*shared.differences(settings, subject)[:1], *trade_off(part, summary, steps)]
        summaries[subject.dataset] = summary
    for part, used in zip(PARTS, rows, strict=True) if not settings.quick else ():
        figures += draw_pictures(settings, name, part, shared.free_images(part.subject), used, free=True)
    return shared.record(
        settings, name, model=settings.model or ", ".join(part.subject.model for part in PARTS),
        tables=found, figures=figures, notes=said, numbers={"steps": list(steps), "summary": summaries},
    )  # fmt: skip


def trade_off(part: _Part, summary: Summary, steps: Sequence[int]) -> list[str]:
    """In how many tasks PSNR and LPIPS fall from few steps to many, the paper's 2 and 25 where we have them."""
    first, last = (2, 25) if {2, 25} <= set(steps) else (min(steps), max(steps))
    if first == last:
        return []

    def falling(few: dict[str, Any], many: dict[str, Any]) -> list[int]:
        return [sum(many[task][metric] < few[task][metric] for task in few) for metric in ("psnr", "lpips")]

    ours = falling(*({t: row[f"FIRM N={N}"] for t, row in summary.items()} for N in (first, last)))
    paper = falling(*(part.paper[f"FIRM N={N}"] for N in (2, 25)))
    return [
        f"{part.subject.title}, from N = {first} to {last}: PSNR falls in {ours[0]} and LPIPS in {ours[1]} of "
        f"{len(summary)} tasks (the paper, from N = 2 to 25: in {paper[0]} and {paper[1]} of 5)"
    ]


def draw_pictures(
    settings: Settings, name: str, part: _Part, images: Images, rows: Sequence[NamedMethod], free: bool = False
) -> list[Figure]:
    """For each task the first image: truth, measurement, and FIRM with every N; PSNR and LPIPS below."""
    figures, (picture, *_) = [], images.names
    start, whose = (picture, f"the bundled {picture}") if free else (part.subject.dataset, part.subject.title)
    for kind in part.shown:
        task, file = Task(kind, part.subject.size), f"{start}-{kind}.png"
        row = shared.panels(settings, images, task, rows, metrics=("psnr", "lpips"))
        save_grid(settings.folder(name) / file, shared.heads(rows), [("", row)], zoom=True)
        figures.append(Figure(file, f"{kind} over the number of steps, {whose}; below: PSNR / LPIPS", free))
    return figures


def draw_curves(out: Path, part: _Part, summary: Summary, steps: Sequence[int], count: str) -> Figure:
    """LPIPS over PSNR, and both over N: a line a task; the paper's, of its four N, dashed."""
    import matplotlib.pyplot as plt

    figure, (both, *single) = plt.subplots(1, 3, figsize=(15, 4.8), layout="constrained")
    paper, published_steps = part.paper, (2, 4, 10, 25)
    labels: list[tuple[str, Any, Any, str]] = []
    for number, (task, found) in enumerate(summary.items()):
        theirs = {f"FIRM N={N}": paper[f"FIRM N={N}"][task] for N in published_steps}
        for row, where, dashed in ((found, sorted(steps), False), (theirs, published_steps, True)):
            style = dict(color=f"C{number}", marker="o", markersize=4, linestyle="--" if dashed else "-")
            style |= dict(alpha=0.45, markerfacecolor="none", linewidth=1) if dashed else dict(label=task)
            psnr, lpips = ([row[f"FIRM N={N}"][metric] for N in where] for metric in ("psnr", "lpips"))
            both.plot(psnr, lpips, **style)
            for axis, values in zip(single, (psnr, lpips), strict=True):
                axis.plot(where, values, **style)
            color = "0.6" if dashed else f"C{number}"
            labels += [(str(N), x, y, color) for N, x, y in zip(where, psnr, lpips, strict=True)]
    both.set(xlabel="PSNR (dB), right is better", ylabel="LPIPS, down is better", title="a number at a point is its N")
    for axis, metric in zip(single, ("PSNR (dB)", "LPIPS"), strict=True):
        axis.set(xscale="log", xlabel="steps N", ylabel=metric)
        axis.set_xticks(sorted({*steps, *published_steps}), [str(N) for N in sorted({*steps, *published_steps})])
        axis.minorticks_off()
    for axis in (both, *single):
        axis.grid(alpha=0.25)
    single[0].legend(fontsize=8)
    figure.suptitle(f"{part.subject.title}: ours, {count}; dashed and hollow: the paper, 100 others", fontsize=10)
    label_points(both, labels)
    file = f"{part.subject.dataset}-curves.png"
    save(figure, out / file)
    return Figure(file, f"PSNR and LPIPS over the number of steps, {part.subject.title}", free=True)
