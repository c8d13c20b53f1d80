"""The paper's ablations: the iteration depth K, the damping beta, and the solver against a single network call.

Each row is a small network of its own, all trained for the same number of steps (ablation.yaml), so the order of the
rows and the gaps between them are what to look at. A network that several studies need is trained once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from experiments import published, shared
from experiments.cost.study import seconds_at_batch_one
from experiments.shared import CELEBA, Settings
from experiments.tables import METRICS, Column, Line, Table, metric_columns
from firm import fast, load
from firm._util.checks import require
from firm._util.files import write_atomically
from firm._util.machine import ranks
from firm.data.images import Images
from firm.evaluation import firm_method
from firm.tasks import Task
from firm.training.config import TrainConfig, dump_config, load_config
from firm.training.loop import train

RANDOM, BLUR = "random-inpainting", "deblurring"
STEPS = (2, 4, 10, 25)  # of the solver's table; the others have N = 2
SMALL = (
    "small networks of 4.6 M parameters, one task each, the same number of steps for every row (ablation.yaml); "
    "the paper's have 34.5 M and one to two days on 4 GPUs: look at the order of the rows and the gaps, not at the rows"
)

Values = dict[str, Any]  # of a row, by the columns' keys


@dataclass(frozen=True)
class Variant:
    """One network: its task, and how it differs from the others (ablation.yaml)."""

    task: str
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its folder under ``OUT/networks``."""
        return "-".join([self.task, *(f"{key}{value}" for key, value in sorted(self.changes.items()))])

    def config(self, settings: Settings, data: Path | None) -> TrainConfig:
        """The configuration of its training."""
        out = settings.out / "networks" / self.name
        changes = [f"task={self.task}", f"out={out}", *(f"{key}={value}" for key, value in self.changes.items())]
        changes.append(f"cache={out.parent / 'cache'}")  # the decoded faces: one for all networks
        return load_config(Path(__file__).with_name("ablation.yaml"), [*changes, f"data={data}"] if data else changes)


DEPTH = {K: Variant(RANDOM, {} if K == 5 else {"K": K}) for K in published.DEPTH}
DAMPING = {b: Variant(RANDOM, {} if b == 0.5 else {"beta": b}) for b in published.DAMPING}
SOLVER = {task: (Variant(task, {"K": 0}), Variant(task)) for task in published.SOLVER}  # K = 0: one call on [A'y, x_t]


def study(settings: Settings, name: str) -> dict[str, Any]:
    """Train what is not there yet (with --quick: nothing), evaluate, and put the rows beside the paper's."""
    images = shared.test_images(settings, CELEBA, settings.images(100))
    make = {"ablation-k": _depth, "ablation-beta": _damping, "ablation-solver": _solver}[name]
    table, variants, said = make(settings, images)
    return shared.record(
        settings, name, images=len(images), model="one network a row", tables=[table],
        notes=[SMALL, *(untrained(settings, variants) or [said])],
    )  # fmt: skip


def _depth(settings: Settings, images: Images) -> tuple[Table, Iterable[Variant], str]:
    """K in {3, 5, 7}, random inpainting at N = 2, with milliseconds an image."""
    found = {K: evaluated(settings, variant, images, (2,), timed=True) for K, variant in DEPTH.items()}
    columns = [*METRICS, Column("ms", "ms per image", digits=1, better="low")]
    lines = [Line(f"K = {K}", found[K].get(2, {}), _named(published.DEPTH[K])) for K in DEPTH]
    psnr = [row[2]["psnr"] for row in found.values() if row]
    said = "PSNR rises with K, as in the paper" if psnr == sorted(psnr) else "PSNR does not rise with K in every step"
    return Table("iteration depth K", columns, lines), DEPTH.values(), said


def _damping(settings: Settings, images: Images) -> tuple[Table, Iterable[Variant], str]:
    """beta in {0.25, 0.5, 0.75, 1}, random inpainting at N = 2."""
    found = {b: evaluated(settings, variant, images, (2,)) for b, variant in DAMPING.items()}
    lines = [Line(f"beta = {b:g}", found[b].get(2, {}), _named(published.DAMPING[b])) for b in DAMPING]
    psnr = {b: row[2]["psnr"] for b, row in found.items() if row}
    said = f"beta = {min(psnr, key=lambda b: psnr[b]):g} is the worst (paper: beta = 1)" if psnr else ""
    return Table("damping beta", METRICS, lines), DAMPING.values(), said


def _solver(settings: Settings, images: Images) -> tuple[Table, Iterable[Variant], str]:
    """One network call on [A'y, x_t] against the solver's five, at equal N, in two tasks."""
    steps = (2, 4) if settings.quick else STEPS
    found = {task: [evaluated(settings, v, images, steps) for v in pair] for task, pair in SOLVER.items()}
    lines, gaps = [], []
    for N in steps:
        for i, label in enumerate(("flow-only", "with the solver")):
            ours, paper = Values(), Values()
            for task in SOLVER:
                ours |= {f"{task} {key}": value for key, value in found[task][i].get(N, {}).items()}
                paper |= {f"{task} {key}": v for key, v in _named(published.SOLVER[task][N][i]).items()}
            lines.append(Line(f"N = {N}, {label}", ours, paper))
    for task, (without, solved) in found.items():
        if 2 in without and 2 in solved:
            gap, theirs = solved[2]["psnr"] - without[2]["psnr"], published.SOLVER[task][2]
            gaps.append(f"{task} {gap:+.2f} dB (paper {theirs[1][0] - theirs[0][0]:+.2f})")
    said = f"the solver against flow-only at N = 2: {', '.join(gaps)}"
    columns = [replace(c, digits=4) if c.title == "LPIPS" else c for c in metric_columns(list(SOLVER))]
    variants = [variant for pair in SOLVER.values() for variant in pair]
    return Table("the solver against one network call", columns, lines), variants, said


def evaluated(
    settings: Settings, variant: Variant, images: Images, steps: Sequence[int], timed: bool = False
) -> dict[int, Values]:
    """The variant's metrics for each N, after its training where that is missing; empty where it may not be trained."""
    path = trained(settings, variant)
    if path is None:
        return {}
    model, task = fast(load(path).to(settings.device), settings.precision), Task(variant.task, CELEBA.size)
    rows = [firm_method(model, N) for N in steps]
    summary = shared.scores(settings, CELEBA, [task], rows, images)[task.name]
    found: dict[int, Values] = {}
    for N, row in zip(steps, rows, strict=True):
        found[N] = {column.key: summary[row.label][column.key] for column in METRICS}
        if timed:
            times = seconds_at_batch_one(row, task, images, min(10, len(images)), settings.device)
            found[N]["ms"] = 1000 * times["seconds"]
    return found


def trained(settings: Settings, variant: Variant) -> Path | None:
    """The variant's model. Not there, or only begun: trained to the end, but with --quick None."""
    config = variant.config(settings, settings.celeba)
    path, done = Path(config.out) / "model.safetensors", Path(config.out) / "done"
    if done.is_file():
        same = done.read_text() == _settings_of(config)
        require(same, f"{path} was trained with other settings than ablation.yaml has: delete {path.parent}")
        return path
    if settings.quick:
        return None
    with ranks(str(settings.device)) as alone:
        result = train(config, alone)
    if not result["finished"]:
        raise KeyboardInterrupt  # stopped by the user; the same command goes on
    write_atomically(done, _settings_of(config))
    return path


def _settings_of(config: TrainConfig) -> str:
    """All that a network's training depends on, but for where things lie."""
    return dump_config(replace(config, out=TrainConfig.out, data="", cache=""))


def _named(values: Sequence[float]) -> Values:
    return dict(zip(("psnr", "ssim", "lpips", "ms"), values, strict=False))


def untrained(settings: Settings, variants: Iterable[Variant]) -> list[str]:
    """A note on the networks that are not there; none if all are."""
    missing = [v.name for v in variants if not (settings.out / "networks" / v.name / "done").is_file()]
    return [f"not trained yet, so without our rows: {', '.join(missing)}; without --quick they are"] if missing else []
