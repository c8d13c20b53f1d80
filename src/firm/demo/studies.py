"""The other two tabs: what the number of steps changes, and the way from noise to a picture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from firm._restore import restore
from firm._sampling import noise_like, sample
from firm.demo.pictures import save_shown, save_trade_off
from firm.demo.request import Request, RequestError
from firm.demo.restoring import Prepared, Restorer
from firm.demo.watch import Watch

COUNTS = (1, 2, 4, 10, 25)
PANEL = 400  # pixels of a panel
LONGEST = 10  # steps of a trajectory: each shows 2 K pictures


@dataclass(frozen=True)
class StepsStudy:
    """One picture for every number of steps, with its numbers."""

    pictures: list[tuple[str, str]]  # file, caption
    rows: list[dict[str, Any]]  # N, network calls, seconds and, where the truth is known, scores
    plot: str | None


def study_steps(restorer: Restorer, request: Request, watch: Watch, folder: Path) -> StepsStudy:
    """Restore the same picture from the same noise with few and with many steps."""
    with restorer.turn(watch):
        prepared = restorer.prepare(replace(request, samples=1), watch, folder)
        problem, rows, pictures = prepared.problem, [], []
        for N in COUNTS:
            watch.begin(prepared.work(N, 1), f"N = {N}")
            result = restore(prepared.model, problem.op, problem.y, N, 1, request.seed, sigma=problem.sigma, keep=False)
            image = problem.finish(result.image)
            row = {"N": N, "calls": result.nfe, "seconds": round(result.seconds, 2), **problem.scores(image)}
            rows.append(row)
            caption = f"N = {N}" + (f", {row['psnr']:.2f} dB" if "psnr" in row else "")
            pictures.append((save_shown(folder / f"steps_{N:02d}.png", image), caption))
        plot = save_trade_off(folder / "trade_off.png", rows) if all("lpips" in row for row in rows) else None
        return StepsStudy(pictures, rows, plot)


@dataclass(frozen=True)
class Trajectory:
    """The states of the flow and, of one step, the iterates of the solver: files with captions."""

    states: list[tuple[str, str]]
    step: int
    iterates: list[tuple[str, str]]


def follow(restorer: Restorer, request: Request, step: int, watch: Watch, folder: Path) -> Trajectory:
    """Restore one sample and keep x_t and, in `step` (from 1), x^k and z^k (Algorithms 2 and 3)."""
    if request.steps > LONGEST:
        raise RequestError(f"a trajectory is shown for at most {LONGEST} steps: choose fewer")
    step = max(1, min(step, request.steps))
    with restorer.turn(watch):
        prepared = restorer.prepare(replace(request, samples=1), watch, folder)
        watch.begin(prepared.work(request.steps, 1))
        return _Recorder(prepared, step, folder).run(request)


class _Recorder:
    """A model that keeps small pictures of what passes; `sample` takes it for the model itself."""

    def __init__(self, prepared: Prepared, step: int, folder: Path) -> None:
        self.model, self.problem, self.step, self.folder = prepared.model, prepared.problem, step, folder
        self.calls = 0
        self.states: list[tuple[str, str]] = []
        self.iterates: list[tuple[str, str]] = []

    def posterior_mean(self, *state: Any, **settings: Any) -> Tensor:
        """As the model's, with its iterates kept."""
        self.calls += 1

        def keep(k: int, x: Tensor, z: Tensor) -> None:
            self.iterates.append(self._panel(x, f"x, k = {k}"))
            self.iterates.append(self._panel(z, f"z, k = {k}"))

        wanted = keep if self.calls == self.step else None
        return self.model.posterior_mean(*state, **settings, callback=wanted)

    def run(self, request: Request) -> Trajectory:
        """Sample from the noise that a restoration of one sample starts from."""
        problem = self.problem
        x_0 = noise_like(problem.op.A_adjoint(problem.y), Generator().manual_seed(request.seed))

        def keep(i: int, t: float, x: Tensor, z: Tensor) -> None:
            self.states.append(self._panel(x, f"x at t = {t:.2g}" + (": noise" if i == 0 else "")))

        x_1 = sample(self, problem.op, problem.y, request.steps, sigma=problem.sigma, x_0=x_0, callback=keep)
        self.states.append(self._panel(x_1, "x at t = 1: the result"))
        return Trajectory(self.states, self.step, self.iterates)

    @torch.no_grad()
    def _panel(self, x: Tensor, caption: str) -> tuple[str, str]:
        number = len(self.states) + len(self.iterates)
        path = self.folder / f"trajectory_{number:03d}.png"
        return save_shown(path, self.problem.finish(x), PANEL), caption
