"""All methods side by side, one image a task: the paper's figures "Qualitative reconstructions"."""

from typing import Any

from experiments import shared
from experiments.figures import save_grid
from experiments.shared import AFHQ, CELEBA, QUICK_METHODS, Figure, Settings
from firm._util.terminal import progress_bar
from firm.tasks import Task, tables

STEPS = (2, 10)


PARTS = (  # of every figure: data set, tasks, and the baselines where it is to be quick
    (CELEBA, tuple(tables()), QUICK_METHODS),
    (AFHQ, ("denoising", "deblurring"), "pnp-hqs"),  # PnP-Flow makes 500 calls for a cat: over a minute
)


def study(settings: Settings, name: str) -> dict[str, Any]:
    """Draw a figure for each data set, whose k-th task shows the k-th test image, and the same of free pictures."""
    figures, said, ready = list[Figure](), list[str](), []
    for subject, kinds, quick in PARTS:
        faces = subject is CELEBA  # what is asked for must be there for faces; cats have fewer networks
        names, missing = shared.baselines(settings, subject, "all", quick, must=faces)
        tasks = [Task(kind, subject.size) for kind in kinds]
        rows = shared.methods(settings, subject, names, settings.steps or STEPS, tasks)
        ready.append((subject, rows, tasks, shared.test_images(settings, subject, len(tasks))))
        said += [*shared.differences(settings, subject), *missing]
    drawn = [(*r, f"{r[0].dataset}.png", r[0].title, False) for r in ready]
    for subject, rows, tasks, _ in [] if settings.quick else ready:
        free = shared.free_images(subject)
        (who,) = free.names
        drawn.append((subject, rows, tasks, free, f"{who}-qualitative.png", f"the bundled {who}", True))
    for _, rows, tasks, images, file, whose, free in drawn:
        grid = [
            (task.name, shared.panels(settings, images, task, rows, number % len(images)))
            for number, task in enumerate(progress_bar(tasks, desc=file, unit="task"))
        ]
        save_grid(settings.folder(name) / file, shared.heads(rows), grid, zoom=True)
        figures.append(Figure(file, f"all methods on {whose}; below: PSNR / SSIM / LPIPS", free))
    model = settings.model or ", ".join(subject.model for subject, *_ in PARTS)
    return shared.record(settings, name, model=model, figures=figures, notes=list(dict.fromkeys(said)))
