"""Posterior recovery on the toy problem: its table (N = 1, 2, 4, 50) and its two figures.

Trains the estimator `firm.networks.MLP` with the loss of Algorithm 1, samples it with Algorithm 2, and puts the numbers
beside the paper's and those of the exact velocity field.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from tqdm import trange

from experiments import shared
from experiments.figures import save
from experiments.shared import Figure, Settings
from experiments.tables import Column, Line, Table
from experiments.toy import problem as toy
from firm import Firm, Solver, TimeBalance, load, sample, stratified_times, velocity_loss
from firm._util.checks import require
from firm.networks import MLP

STEPS, BATCH, RATE = 16_000, 512, 3e-3  # two to three minutes on two cores
WARM_START = 0.04  # share of the steps without the solver: the paper's 20 of 500 epochs
SAMPLES = 4000
TABLE_STEPS = (1, 2, 4, 50)
FIGURE_STEPS = (1, 2, 3, 4, 6, 8, 10, 15, 25, 50)

PAPER: dict[int, dict[str, Any]] = {  # Table 10, "Posterior recovery versus N"
    1: {"w1": 1.44, "valley": 1.00, "weights": None, "modes": [0.0]},
    2: {"w1": 0.44, "valley": 0.23, "weights": [0.50, 0.50], "modes": [-1.26, 1.26]},
    4: {"w1": 0.13, "valley": 0.07, "weights": [0.52, 0.48], "modes": [-1.45, 1.45]},
    50: {"w1": 0.11, "valley": 0.005, "weights": [0.49, 0.51], "modes": [-1.52, 1.52]},
}


def study(settings: Settings, name: str) -> dict[str, Any]:
    """Train (with --quick: take the bundled network), evaluate; write model, figures and numbers.

    Options of its own: `seed`, and `training` steps.
    """
    quick, extra = settings.quick, settings.extra
    require(not (quick and "training" in extra), "--quick trains nothing: leave out --training, or --quick")
    seed, steps, out = extra.get("seed", 0), extra.get("training", STEPS), settings.folder(name)
    model = (load("toy") if quick else train(seed, steps, settings.device)).cpu()
    trained = settings.seconds()
    learned, exact = sweep(model, seed), sweep(toy.ExactField(), seed)
    both = {"learned": learned, "exact": exact}
    rows = {which: {N: summary(x, 1.5) for N, x in samples.items()} for which, samples in both.items()}
    about = {"steps": steps, "batch": BATCH, "rate": RATE, "seed": seed, "samples": SAMPLES, "u": 1.5}
    numbers = {
        "settings": "the bundled network" if quick else about, **rows,
        "learned at u = -1.5": {50: summary(draw(model, -1.5, 50, seed), -1.5)}, "seconds of training": trained,
    }  # fmt: skip
    if not quick:
        model.card = {"trained_for": "toy", "settings": about}
        model.save(out / "toy.safetensors")
    posterior_figure(model, seed, out / "posterior.png")
    steps_figure(learned, rows, out / "steps.png")
    figures = [
        Figure("posterior.png", "samples of the posterior over its exact density", free=True),
        Figure("steps.png", "distance to the posterior against N, and the marginals", free=True),
    ]
    return shared.record(
        settings, name, model="toy", tables=[table(rows)], figures=figures, numbers=numbers, seed=seed,
        notes=["the exact velocity field takes the same steps: what it misses as well is due to them, not to learning"],
    )  # fmt: skip


def train(seed: int, steps: int, device: torch.device | None = None, problem: Any = toy, K: int = 5) -> Firm:
    """Algorithm 1 on the mixture, with the paper's beta and rho, and its K; returns the averaged weights.

    All random numbers are drawn on the CPU, so they are the same on every device. `problem` has the functions
    `operator`, `sample_prior` and `measure` of `experiments.toy.problem`.
    """
    torch.manual_seed(seed)  # of the initial weights
    generator = Generator().manual_seed(seed)
    op = problem.operator().to(device)
    model = Firm(MLP(), Solver(K)).to(device)
    warm = Firm(model.estimator, Solver(K=0))
    balance = TimeBalance().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, eta_min=RATE / 100)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    progress = trange(steps, desc="training", unit="step")
    for step in progress:
        x_1 = problem.sample_prior(BATCH, generator)
        x_0 = torch.randn(BATCH, 2, generator=generator)
        y, t = problem.measure(x_1, generator), stratified_times(BATCH, generator=generator)
        x_1, x_0, y, t = (v.to(device) for v in (x_1, x_0, y, t))
        loss = velocity_loss(
            warm if step < WARM_START * steps else model, op, x_1, y, x_0, t, weights=balance or "omega"
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        average.update_parameters(model)
        if step % 100 == 0:
            progress.set_postfix(loss=f"{loss.item():.3f}")
    model.load_state_dict(average.module.state_dict())
    return model.requires_grad_(False).eval()


def draw(model: Any, u: float, N: int, seed: int) -> Tensor:
    """Samples of p(x | y) for the measurement y = (u, 0), (SAMPLES, 2)."""
    y = torch.tensor([u, 0.0]).expand(SAMPLES, 2)
    return sample(model, toy.operator(), y, N, generator=Generator().manual_seed(seed))


def sweep(model: Any, seed: int) -> dict[int, Tensor]:
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


COLUMNS = (
    Column("w1", "W1(v)", better="low"), Column("valley", "mass in |v| < 0.75"),
    Column("weights", "mode weights"), Column("modes", "modes"),
)  # fmt: skip


def table(rows: dict[str, dict[int, dict[str, Any]]]) -> Table:
    """The learned field beside the paper's and the exact one, for each N."""

    def values(r: dict[str, Any]) -> dict[str, Any]:
        weights = f"{r['weights'][0]:.2f}/{r['weights'][1]:.2f}" if r["weights"] else "-"
        modes = "/".join(f"{mode:.2f}" for mode in r["modes"])
        return {"w1": r["w1"], "valley": f"{r['valley']:.1%}", "weights": weights, "modes": modes}

    lines = []
    for N in TABLE_STEPS:
        lines.append(Line(f"N = {N}", values(rows["learned"][N]), values(PAPER[N])))
        lines.append(Line(f"N = {N}, exact field", values(rows["exact"][N])))
    return Table(f"posterior recovery versus N (u = +1.5, {SAMPLES} samples)", COLUMNS, lines)


def posterior_figure(model: Any, seed: int, path: Path) -> None:
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
        _marginal(axes[1, column], x[:, 1], y)
        axes[1, column].legend()
    save(figure, path)


def steps_figure(learned: dict[int, Tensor], rows: dict[str, dict[int, dict[str, Any]]], path: Path) -> None:
    """W1(v) and the mass in the valley against N; below, the marginals of v for some N."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(12, 6.5), layout="constrained")
    top, bottom = figure.subfigures(2, 1)
    for axis, column in zip(top.subplots(1, 2), COLUMNS, strict=False):
        for label, found, style in (("learned", rows["learned"], "o-"), ("exact field", rows["exact"], "s--"),
                                    ("paper", PAPER, "k*")):  # fmt: skip
            axis.plot(list(found), [row[column.key] for row in found.values()], style, label=label)
        axis.set(title=column.title, xlabel="Euler steps N", xscale="log")
        axis.set_xticks(FIGURE_STEPS, [str(N) for N in FIGURE_STEPS])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend()
    shown = (1, 2, 4, 6, 10, 50)
    for axis, N in zip(bottom.subplots(1, len(shown), sharex=True), shown, strict=True):
        _marginal(axis, learned[N][:, 1], torch.tensor([1.5, 0.0]))
        axis.set(title=f"N = {N}", yticks=[], ylabel="", ylim=(0, 1.6))
    save(figure, path)


def _marginal(axis: Any, v: Tensor, y: Tensor) -> None:
    """Histogram of samples of v over the exact p(v | y)."""
    grid = torch.linspace(-2.6, 2.6, 521, dtype=torch.float64)
    cdf = toy.marginal_cdf(grid, y.double(), 1)
    axis.hist(v.tolist(), bins=80, range=(-2.6, 2.6), density=True, alpha=0.6, color="tab:blue", label="samples")
    axis.plot(grid[1:] - 0.005, cdf.diff() / 0.01, color="tab:red", label="exact p(v | y)")
    axis.set(xlabel="v", ylabel="density")
