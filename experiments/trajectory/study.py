"""The paper's figure of the solver's way: its iterates x^k and z^k in every Euler step, for a face with a hole."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from torch import Generator, Tensor

from experiments import shared
from experiments.figures import Panel, save_grid
from experiments.shared import CELEBA, SEED, Figure, Settings
from experiments.tables import Column, Line, Table
from firm import Firm, sample
from firm._prepare import noise_like
from firm._util.checks import generator_for, require
from firm.data import portrait
from firm.evaluation import degraded
from firm.metrics import psnr
from firm.operators import LinearOperator
from firm.tasks import Task


@dataclass
class Step:
    """What happens in one Euler step: the state it starts from, and the solver's iterates, k = 1 ... K."""

    t: float
    x_t: Tensor  # (B, C, H, W), which is also z^0
    x: list[Tensor] = field(default_factory=list)  # x^k, data-consistent
    z: list[Tensor] = field(default_factory=list)  # z^k, the damped learned update


def trajectory(
    model: Firm, op: LinearOperator, y: Tensor, steps: int, sigma: float, generator: Generator
) -> tuple[list[Step], Tensor]:
    """Sample as `firm.sample` does; return what happened in every step, and the sample."""
    found = list[Step]()

    def posterior_mean(op: LinearOperator, x_t: Tensor, t: Any, y: Tensor, **settings: Any) -> Tensor:
        step = Step(float(t), x_t)
        found.append(step)

        def keep(k: int, x: Tensor, z: Tensor) -> None:
            step.x.append(x)
            step.z.append(z)

        return model.posterior_mean(op, x_t, t, y, callback=keep, **settings)

    watched: Any = SimpleNamespace(posterior_mean=posterior_mean)
    return found, sample(watched, op, y, steps, sigma=sigma, x_0=noise_like(op.A_adjoint(y), generator))


def study(settings: Settings, name: str) -> dict[str, Any]:
    """Follow one test face and the bundled portrait, with N = 2 Euler steps; an option of its own: `N`."""
    N = settings.extra.get("N", 2)
    model, device = shared.firm_model(settings, CELEBA), settings.device
    K = model.solver.K
    require(K > 0, f"{settings.model}: a model without the solver (K = 0) has no iterates to show")
    task, out = Task("box-inpainting", CELEBA.size), settings.folder(name)
    face = shared.test_images(settings, CELEBA, 1).batch(range(1))
    numbers, lines, figures = dict[str, Any](), list[Line](), list[Figure]()
    for who, truth, free in (("face", face.to(device), False), ("portrait", portrait().to(device), True)):
        op, y = task.measure(truth, SEED)
        steps, x_1 = trajectory(model, op, y, N, task.sigma, generator_for(SEED, 0, "method"))
        measured = degraded(op, y, task.sigma, None)
        heads = ["truth", "measurement, x_t", *(f"k = {k}" for k in range(1, K + 1))]
        save_grid(out / f"{who}.png", heads, panels(steps, truth, measured))
        figures.append(Figure(f"{who}.png", f"the solver's iterates on the way to a sample, {who}", free))
        numbers[who] = {"measurement": float(psnr(measured, truth)), "sample": float(psnr(x_1, truth)), "steps": []}
        for step in steps:
            scores = {v: [float(psnr(x, truth)) for x in iterates] for v, iterates in (("x", step.x), ("z", step.z))}
            numbers[who]["steps"].append({"t": step.t, **scores})
            for v, values in scores.items():
                lines.append(Line(f"{who}, t = {step.t:g}, {v}^k", {str(k + 1): x for k, x in enumerate(values)}))
    columns = [Column(str(k), f"k = {k}") for k in range(1, K + 1)]
    return shared.record(
        settings, name, images=1, model=settings.model or CELEBA.model, figures=figures, numbers=numbers,
        tables=[Table(f"PSNR of the solver's iterates, N = {N}", columns, lines)], quick=False,
    )  # fmt: skip


def panels(steps: list[Step], truth: Tensor, measured: Tensor) -> list[tuple[str, list[Panel]]]:
    """Two rows a step, with their names: truth, measurement and x^k; below, the state x_t = z^0 and z^k."""

    def shown(x: Tensor) -> Panel:
        return Panel(x[0], f"{float(psnr(x, truth)):.2f} dB")

    rows = []
    for step in steps:
        rows.append((f"t = {step.t:g}: x^k", [Panel(truth[0]), shown(measured), *map(shown, step.x)]))
        rows.append((f"t = {step.t:g}: z^k", [Panel(None), shown(step.x_t), *map(shown, step.z)]))
    return rows
