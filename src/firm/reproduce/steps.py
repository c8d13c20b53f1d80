"""The number of Euler steps N: few favor PSNR, many LPIPS. The paper's figures of the trade-off, and over N."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firm._util.text import counted
from firm.data.images import Images
from firm.evaluation.methods import NamedMethod
from firm.reproduce import published
from firm.reproduce.evaluations import Summary, methods, scores, test_images
from firm.reproduce.figures import label_points, save, save_grid
from firm.reproduce.pictures import free_images, heads, panels
from firm.reproduce.published import Scores
from firm.reproduce.record import Clock, Figure, record
from firm.reproduce.rows import beside, notes
from firm.reproduce.settings import AFHQ, CELEBA, Settings, Subject
from firm.tasks import Task, tables

STEPS = (1, 2, 4, 10, 25, 50, 100)
QUICK_STEPS = (1, 2, 4, 10)
IMAGES = 100


@dataclass(frozen=True)
class Part:
    """One of the two data sets: what is published of it, the tasks whose pictures the paper shows, and less of both."""

    subject: Subject
    paper: Callable[[], Scores]
    shown: tuple[str, ...]
    quick_images: int
    quick_tasks: tuple[str, ...]


PARTS = (
    Part(CELEBA, published.celeba, ("deblurring", "super-resolution", "random-inpainting"), 10, tuple(tables())),
    Part(AFHQ, published.afhq, ("deblurring",), 3, ("deblurring",)),
)


def study(settings: Settings, name: str) -> dict[str, Any]:
    """For both data sets a table of every N and task, its curves, and pictures of one image over N."""
    clock, out = Clock(), settings.folder(name)
    steps = settings.steps or (QUICK_STEPS if settings.quick else STEPS)
    rows = [methods(settings, part.subject, "", steps) for part in PARTS]  # a model that is missing is said first
    found, figures, said, summaries = [], list[Figure](), list[str](), dict[str, Summary]()
    for part, (degraded, *ours) in zip(PARTS, rows, strict=True):
        subject = part.subject
        tasks = [Task(task, subject.size) for task in (part.quick_tasks if settings.quick else tables())]
        images = test_images(settings, subject, settings.limit or (part.quick_images if settings.quick else IMAGES))
        summary = scores(settings, subject, tasks, ours, images)
        found.append(beside(f"{counted(len(images))} of {subject.title}", summary, ours, part.paper()))
        figures.append(draw_curves(out, part, summary, steps, counted(len(images))))
        figures += draw_pictures(settings, name, subject, images, part.shown, [degraded, *ours])
        said += [*notes(settings, subject)[:1], *trade_off(part, summary, steps)]
        summaries[subject.dataset] = summary
    for part, used in zip(PARTS, rows, strict=True) if not settings.quick else ():
        figures += draw_pictures(settings, name, part.subject, free_images(part.subject), part.shown, used, free=True)
    return record(
        settings, name, clock, model=settings.model or ", ".join(part.subject.model for part in PARTS),
        tables=found, figures=figures, notes=said, numbers={"steps": list(steps), "summary": summaries},
    )  # fmt: skip


def trade_off(part: Part, summary: Summary, steps: Sequence[int]) -> list[str]:
    """In how many tasks PSNR and LPIPS fall from few steps to many, the paper's 2 and 25 where we have them."""
    first, last = (2, 25) if {2, 25} <= set(steps) else (min(steps), max(steps))
    if first == last:
        return []
    ours = _falling({f"FIRM N={N}": {t: row[f"FIRM N={N}"] for t, row in summary.items()} for N in steps}, first, last)
    paper = _falling(part.paper(), 2, 25)
    return [
        f"{part.subject.title}, from N = {first} to {last}: PSNR falls in {ours[0]} and LPIPS in {ours[1]} of "
        f"{len(summary)} tasks (the paper, from N = 2 to 25: in {paper[0]} and {paper[1]} of 5)"
    ]


def _falling(found: dict[str, dict[str, Any]], first: int, last: int) -> tuple[int, int]:
    """In how many tasks PSNR and LPIPS are lower with `last` steps than with `first`."""
    few, many = found[f"FIRM N={first}"], found[f"FIRM N={last}"]
    return (
        sum(many[task]["psnr"] < few[task]["psnr"] for task in few),
        sum(many[task]["lpips"] < few[task]["lpips"] for task in few),
    )


def draw_pictures(
    settings: Settings,
    name: str,
    subject: Subject,
    images: Images,
    shown: Sequence[str],
    rows: Sequence[NamedMethod],
    free: bool = False,
) -> list[Figure]:
    """For each task the first image: truth, measurement, and FIRM with every N; PSNR and LPIPS below."""
    figures = []
    (picture, *_) = images.names
    start, whose = (picture, f"the bundled {picture}") if free else (subject.dataset, subject.title)
    for kind in shown:
        row = panels(settings, images, Task(kind, subject.size), rows, metrics=("psnr", "lpips"))
        file = f"{start}-{kind}.png"
        save_grid(settings.folder(name) / file, heads(rows), [("", row)], zoom=True)
        figures.append(Figure(file, f"{kind} over the number of steps, {whose}; below: PSNR / LPIPS", free))
    return figures


def draw_curves(out: Path, part: Part, summary: Summary, steps: Sequence[int], count: str) -> Figure:
    """LPIPS over PSNR, and both over N: a line a task; the paper's, of its four N, dashed."""
    import matplotlib.pyplot as plt

    figure, (both, *single) = plt.subplots(1, 3, figsize=(15, 4.8), layout="constrained")
    paper, published_steps = part.paper(), (2, 4, 10, 25)
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
