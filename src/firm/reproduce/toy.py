"""Posterior recovery on the toy problem: its table (N = 1, 2, 4, 50) and its two figures.

Trains the estimator `firm.networks.MLP` with the loss of Algorithm 1, samples it with Algorithm 2, and puts the numbers
beside the paper's and those of the exact velocity field.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Generator, Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from tqdm import trange

from firm._flow import stratified_times, velocity_loss
from firm._model import Firm, Solver
from firm._posterior_mean import PosteriorMean
from firm._sampling import sample
from firm._util.files import write_atomically
from firm._util.machine import describe_machine
from firm.networks import MLP
from firm.reproduce import toy_problem as toy
from firm.training.balance import TimeBalance

STEPS, BATCH, RATE = 16_000, 512, 3e-3  # two to three minutes on two cores
WARM_START = 0.04  # share of the steps without the solver: the paper's 20 of 500 epochs
SAMPLES = 4000
TABLE_STEPS = (1, 2, 4, 50)
FIGURE_STEPS = (1, 2, 3, 4, 6, 8, 10, 15, 25, 50)

PAPER: dict[int, dict[str, Any]] = {  # Table "Posterior recovery versus N"
    1: {"w1": 1.44, "valley": 1.00, "weights": None, "modes": [0.0]},
    2: {"w1": 0.44, "valley": 0.23, "weights": [0.50, 0.50], "modes": [-1.26, 1.26]},
    4: {"w1": 0.13, "valley": 0.07, "weights": [0.52, 0.48], "modes": [-1.45, 1.45]},
    50: {"w1": 0.11, "valley": 0.005, "weights": [0.49, 0.51], "modes": [-1.52, 1.52]},
}


def run(out: Path, seed: int = 0, steps: int = STEPS, device: torch.device | None = None) -> dict[str, Any]:
    """Train, evaluate, print the table, and write model, figures and numbers to `out`."""
    start = time.perf_counter()
    model = train(seed, steps, device).cpu()
    trained = time.perf_counter() - start
    learned, exact = sweep(model, seed), sweep(toy.ExactField(), seed)
    results = {
        "settings": {"steps": steps, "batch": BATCH, "rate": RATE, "seed": seed, "samples": SAMPLES, "u": 1.5},
        "paper": PAPER,
        "learned": {N: summary(x, 1.5) for N, x in learned.items()},
        "exact": {N: summary(x, 1.5) for N, x in exact.items()},
        "learned at u = -1.5": {50: summary(draw(model, -1.5, 50, seed), -1.5)},
        "seconds": {"training": round(trained, 1), "all": round(time.perf_counter() - start, 1)},
        "machine": describe_machine(),
    }
    model.card = {"trained_for": "toy", "settings": results["settings"]}
    model.save(out / "toy.safetensors")
    write_atomically(out / "results.json", json.dumps(results, indent=1))
    posterior_figure(model, seed, out / "posterior.png")
    steps_figure(learned, exact, out / "steps.png")
    console = Console()
    console.print(table(results))
    console.print(f"trained in {trained:.0f} s; posterior.png, steps.png, results.json, toy.safetensors are in {out}")
    return results


def train(seed: int, steps: int, device: torch.device | None = None) -> Firm:
    """Algorithm 1 on the mixture, with the paper's K, beta and rho; returns the averaged weights.

    All random numbers are drawn on the CPU, so they are the same on every device.
    """
    torch.manual_seed(seed)  # of the initial weights
    generator = Generator().manual_seed(seed)
    op = toy.operator().to(device)
    model = Firm(MLP(), Solver()).to(device)
    warm = Firm(model.estimator, Solver(K=0))
    balance = TimeBalance().to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps, eta_min=RATE / 100)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    progress = trange(steps, desc="training", unit="step")
    for step in progress:
        x_1 = toy.sample_prior(BATCH, generator)
        x_0 = torch.randn(BATCH, 2, generator=generator)
        y, t = toy.measure(x_1, generator), stratified_times(BATCH, generator=generator)
        x_1, x_0, y, t = (v.to(device) for v in (x_1, x_0, y, t))
        loss = velocity_loss(warm if step < WARM_START * steps else model, op, x_1, y, x_0, t, balance=balance)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        average.update_parameters(model)
        if step % 100 == 0:
            progress.set_postfix(loss=f"{loss.item():.3f}")
    model.load_state_dict(average.module.state_dict())
    return model.requires_grad_(False).eval()


def draw(model: PosteriorMean, u: float, N: int, seed: int) -> Tensor:
    """Samples of p(x | y) for the measurement y = (u, 0), (SAMPLES, 2)."""
    y = torch.tensor([u, 0.0]).expand(SAMPLES, 2)
    return sample(model, toy.operator(), y, N, generator=Generator().manual_seed(seed))


def sweep(model: PosteriorMean, seed: int) -> dict[int, Tensor]:
    """Samples at u = 1.5 for every number of steps."""
    return {N: draw(model, 1.5, N, seed) for N in FIGURE_STEPS}


def summary(x: Tensor, u: float) -> dict[str, Any]:
    """The table's rows for samples `x`, (n, 2), of the posterior at y = (u, 0)."""
    y, v = torch.tensor([u, 0.0]), x[:, 1]
    valley = float((v.abs() < toy.VALLEY).float().mean())
    groups = [v] if valley > 0.95 else [v[v <= -toy.VALLEY], v[v >= toy.VALLEY]]  # one mode, or two
    return {
        "w1": toy.wasserstein(v, y, 1),
        "w1 of u": toy.wasserstein(x[:, 0], y, 0),
        "valley": valley,
        "weights": [float((v < 0).float().mean()), float((v >= 0).float().mean())] if len(groups) == 2 else None,
        "modes": [float(group.median()) for group in groups],
        "u off by": abs(float(x[:, 0].mean()) - u),
    }


def table(results: dict[str, Any]) -> Table:
    """Paper, learned and exact side by side, for each N."""
    out = Table(title=f"Posterior recovery versus N (u = +1.5, {SAMPLES} samples)", title_justify="left")
    out.add_column("N")
    out.add_column("")
    for column in ("paper", "ours, learned", "exact field"):
        out.add_column(column, justify="right")
    for N in TABLE_STEPS:
        paper, learned, exact = results["paper"][N], results["learned"][N], results["exact"][N]
        both = (learned, exact)
        out.add_row(str(N), "W1(v)", f"{paper['w1']:.2f}", *(f"{r['w1']:.2f}" for r in both))
        out.add_row("", "mass in |v| < 0.75", f"{paper['valley']:.1%}", *(f"{r['valley']:.1%}" for r in both))
        weights = [r["weights"] for r in (paper, *both)]
        out.add_row("", "mode weights", *(f"{w[0]:.2f}/{w[1]:.2f}" if w else "-" for w in weights))
        modes = ["/".join(f"{m:.2f}" for m in r["modes"]) for r in (paper, *both)]
        out.add_row("", "modes", *modes, end_section=True)
    return out


def posterior_figure(model: PosteriorMean, seed: int, path: Path) -> None:
    """Samples at N = 50 over the exact contours, and the marginals of v, for u = 1.5 and u = -1.5."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(9, 7.5), layout="constrained")
    grid = torch.linspace(-2.6, 2.6, 261)
    for column, u in enumerate((1.5, -1.5)):
        y, x = torch.tensor([u, 0.0]), draw(model, u, 50, seed)
        points = torch.stack(torch.meshgrid(grid, grid, indexing="xy"), dim=-1)
        p = toy.density(points, y)
        top = axes[0, column]
        top.scatter(*x.T, s=3, alpha=0.35, color="tab:blue", label="samples, N = 50")
        top.contour(grid, grid, p, levels=(p.max() * torch.tensor([0.05, 0.3, 0.7])).tolist(), colors="tab:red")
        mean = toy.ExactField().posterior_mean(toy.operator(), torch.zeros(1, 2), 0.0, y[None])[0]
        top.plot(*mean, "kx", ms=9, mew=2, label="posterior mean")
        top.set(title=f"measurement u = {u:+.1f}", xlabel="u", ylabel="v", aspect="equal")
        top.legend(loc="center right" if u < 0 else "center left")
        marginal(axes[1, column], x[:, 1], y)
        axes[1, column].legend()
    save(figure, path)


def steps_figure(learned: dict[int, Tensor], exact: dict[int, Tensor], path: Path) -> None:
    """W1(v) and the mass in the valley against N; below, the marginals of v for some N."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(12, 6.5), layout="constrained")
    parts: Any = figure.subfigures(2, 1)
    top, bottom = parts
    curves = {"w1": ("W1(v)", "w1"), "valley": ("mass in |v| < 0.75", "valley")}
    for axis, (title, key) in zip(top.subplots(1, 2), curves.values(), strict=True):
        for label, samples, style in (("learned", learned, "o-"), ("exact field", exact, "s--")):
            axis.plot(list(samples), [summary(x, 1.5)[key] for x in samples.values()], style, label=label)
        axis.plot(TABLE_STEPS, [PAPER[N][key] for N in TABLE_STEPS], "k*", ms=10, ls="none", label="paper")
        axis.set(title=title, xlabel="Euler steps N", xscale="log", xticks=FIGURE_STEPS)
        axis.set_xticklabels([str(N) for N in FIGURE_STEPS])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend()
    shown = (1, 2, 4, 6, 10, 50)
    for axis, N in zip(bottom.subplots(1, len(shown), sharex=True), shown, strict=True):
        marginal(axis, learned[N][:, 1], torch.tensor([1.5, 0.0]))
        axis.set(title=f"N = {N}", yticks=[], ylabel="", ylim=(0, 1.6))
    save(figure, path)


def marginal(axis: Any, v: Tensor, y: Tensor) -> None:
    """Histogram of samples of v over the exact p(v | y)."""
    grid = torch.linspace(-2.6, 2.6, 521, dtype=torch.float64)
    cdf = toy.marginal_cdf(grid, y.double(), 1)
    axis.hist(v.tolist(), bins=80, range=(-2.6, 2.6), density=True, alpha=0.6, color="tab:blue", label="samples")
    axis.plot(grid[1:] - 0.005, cdf.diff() / 0.01, color="tab:red", label="exact p(v | y)")
    axis.set(xlabel="v", ylabel="density")


def save(figure: Any, path: Path) -> None:
    """Write the figure as PNG and close it."""
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
