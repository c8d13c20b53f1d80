"""The rows of the paper's tables: function, label, network, settings in every task, number of network calls.

The settings are the published ones, but where our networks need others: the first level of PnP-HQS, PnP-GS's steps in
random inpainting of faces. Their sources are the published code of PnP-Flow, Flower and their forks as they stood in
November 2026, and the paper's Appendix D. CelebA's stand for images below 256 pixels, AFHQ's from there on, as with
the tasks. To add a baseline: its settings in `CELEBA` and `AFHQ`, and a row in `BASELINES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from firm._prepare import Generators
from firm._util.checks import require
from firm.baselines import as_denoiser, d_flow, diffpir, flow_priors, flower, i2sb, ot_ode, pnp_flow, pnp_gs, pnp_hqs
from firm.baselines._common import begin
from firm.baselines._pnp_hqs import FIRST
from firm.operators import LinearOperator
from firm.tasks import BaseTask

TASKS = ("denoising", "deblurring", "super-resolution", "random-inpainting", "box-inpainting")
Table = dict[str, dict[str, Any]]  # task -> settings; what is not there is the function's default


def _table(**columns: tuple[Any, ...]) -> Table:
    """One column a setting, with a value for each of `TASKS`; a method does not do a task where a value is None."""
    rows = zip(TASKS, zip(*columns.values(), strict=True), strict=True)
    return {task: dict(zip(columns, values, strict=True)) for task, values in rows if None not in values}


_ALPHA = (0.8, 0.01, 0.3, 0.01, 0.5)
_OT_ODE = dict(schedule=("sqrt", "sqrt", "constant", "constant", "sqrt"), spread=(1.0, 1.0, 100.0, 1.0, 1.0))
_FLOW_PRIORS = _table(lr=(0.01, 0.01, 0.1, 0.01, 0.01), weight=(100.0, 1000.0, 10000.0, 10000.0, 10000.0))
# DiffPIR's published lambda is 1, 1000, 100, 1. Its code solves with rho = 2 lambda sigma^4 / s^2 (in denoising
# 2 lambda sigma^2 / s^2), so that our weight, of rho = weight sigma^2 / s^2, is 2 lambda sigma^2 (2 lambda).
_DIFFPIR = _table(weight=(2.0, 5.0, 0.5, 2e-4, None), zeta=(1.0, 1.0, 1.0, 1.0, None))
# The published first level of PnP-HQS, 0.38, is for DRUNet. Our denoiser fills missing pixels only from a higher one
# (fifty validation faces, from 0.38, 0.7, 1 and 2.5: random inpainting 28.27, 33.89, 33.92, 33.97 dB; deblurring 33.74,
# 33.93, 34.02, 34.22; super-resolution 32.86, 32.72, 32.60, 32.18).
_HQS = _table(steps=(1, 24, 24, 100, None), first=(FIRST, 2.5, FIRST, 2.5, None))
# The paper does not say how many steps its I2SB takes. With more of them PSNR falls, and LPIPS falls up to here (our
# bridge, 100 validation faces: deblurring .0128 with 10, .0123 with 20; super-resolution .0235 with 10, .0204 with 50,
# .0201 with 100; random inpainting .0131 with 10, .0128 with 20, .0132 with 50; box inpainting .0472 with 10).
_I2SB = _table(beta_max=(None, 1.0, 0.3, 1.0, 1.0), ode=(None, True, False, True, True), steps=(None, 10, 100, 20, 10))

CELEBA: dict[str, Table] = {
    "pnp-flow": _table(alpha=_ALPHA),
    "flower": _table(steps=(100,) * 5),
    "ot-ode": _table(start=(0.3, 0.4, 0.1, 0.1, 0.1), **_OT_ODE),
    "d-flow": _table(outer=(3, 7, 10, 20, 9), regularization=(0.001,) * 5, blend=(0.1,) * 5),
    "flow-priors": _FLOW_PRIORS,
    "pnp-gs": _table(
        steps=(1, 35, 20, 80, None),
        # Published: 20 steps that fill, and none after them. Ours fills more slowly, and steps at the noise's own level
        # then sharpen (four validation faces: 22.9 dB after 20 steps, 27.8 after 60, 29.7 with 20 of the others).
        filling=(20, 20, 20, 60, None),
        step_length=(1.0, 2.0, 2.0, 1.0, None),
        relaxation=(1.0, 0.5, 1.0, 1.0, None),
        factor=(1.0, 1.8, 1.8, 1.0, None),
    ),
    "pnp-hqs": _HQS,
    "diffpir": _DIFFPIR,
    "ista-net": {task: {} for task in TASKS[1:4]},
    "i2sb": _I2SB,
}
AFHQ = CELEBA | {
    "pnp-flow": _table(alpha=(0.8, 0.01, 0.01, 0.01, 0.5), steps=(100, 500, 500, 200, 100)),
    "flower": _table(steps=(100, 500, 500, 200, 100)),
    "ot-ode": _table(start=(0.3, 0.3, 0.1, 0.1, 0.1), **_OT_ODE),
    "d-flow": _table(
        outer=(3, 20, 20, 20, 9), regularization=(0.001, 0.01, 0.001, 0.001, 0.01), blend=(0.1, 0.5, 0.1, 0.1, 0.1)
    ),
    "pnp-gs": _table(
        steps=(1, 60, 50, 23, None),
        step_length=(1.0, 2.0, 2.0, 1.0, None),
        relaxation=(1.0, 0.3, 1.0, 1.0, None),
        factor=(1.0, 1.8, 5.0, 1.0, None),
    ),
}


def settings(method: str, task: str, size: int = 128) -> dict[str, Any] | None:
    """Return the published keyword arguments of a method in a task; None where the method does not do the task.

    A task outside the paper's tables has no settings of its own: the function's defaults are used.

    Parameters
    ----------
    method, task
        Their names: "pnp-flow" stands for PnP-Flow1 and PnP-Flow5.
    size
        The side of the images.

    >>> settings("ot-ode", "deblurring")
    {'start': 0.4, 'schedule': 'sqrt', 'spread': 1.0}
    """
    tables = AFHQ if size >= 256 else CELEBA
    require(method in tables, f"no settings for the method {method!r}; there are {', '.join(tables)}")
    return tables[method].get(task) if task in TASKS else {}


class Calls(NamedTuple):
    """Network calls for one image: forward and backward passes, and what the paper's cost table counts."""

    forward: int
    backward: int = 0
    paper: int | None = None


@dataclass(frozen=True)
class Baseline:
    """A row of the tables: a method, the network it runs with, and what that costs."""

    name: str  # on the command line
    label: str  # in the paper
    method: str  # its settings
    function: Callable[..., Tensor]  # function(net, op, y, sigma, *, generator, **settings)
    weights: str  # the network, after the name of the data set; "{task}" is the task's name
    calls: Callable[[dict[str, Any]], Calls | None]  # from the settings; None where it depends on the image
    fixed: dict[str, Any] = field(default_factory=dict)  # settings of this row in all tasks
    gradients: bool = False  # whether gradients pass through the network, which is then left as it is, in float32

    def settings(self, task: BaseTask) -> dict[str, Any] | None:
        """Return the keyword arguments in a task, or None where the method does not do it."""
        found = settings(self.method, task.name, min(task.shape))
        return None if found is None else found | self.fixed


def _unrolled(net: nn.Module, op: LinearOperator, y: Tensor, sigma: float, *, generator: Generators = None) -> Tensor:
    """ISTA-Net+ takes operator and measurements, and nothing is drawn."""
    begin(net, op, y, sigma)
    with torch.no_grad():
        out: Tensor = net(op, y)
    return out


def _with_denoiser(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(net: nn.Module, *arguments: Any, **settings: Any) -> Tensor:
        return function(as_denoiser(net), *arguments, **settings)

    return run


def _averaged(values: dict[str, Any]) -> Calls:
    calls = values.get("steps", 100) * values["averages"]
    return Calls(calls, 0, calls)


def _stepped(values: dict[str, Any], usual: int = 100, backward: bool = False) -> Calls:
    steps = values.get("steps", usual)
    return Calls(steps, steps if backward else 0)


def _guided(values: dict[str, Any]) -> Calls:
    N = values.get("steps", 100)
    steps = N - round(N * values.get("start", 0.1))
    return Calls(steps, steps, 3 * steps)


def _climbing(values: dict[str, Any]) -> Calls:
    """The second backward pass of an update goes through the first one too."""
    N, K = values.get("steps", 100), values.get("updates", 1)
    return Calls(N * (K + 1), 2 * N * K, N)


_PNP_GS_CALLS, _PNP_HQS_CALLS = partial(_stepped, usual=35, backward=True), partial(_stepped, usual=24)
BASELINES = {
    row.name: row
    for row in (
        Baseline("pnp-gs", "PnP-GS", "pnp-gs", pnp_gs, "gradient-step", _PNP_GS_CALLS, gradients=True),
        Baseline("pnp-hqs", "PnP-HQS", "pnp-hqs", _with_denoiser(pnp_hqs), "denoiser", _PNP_HQS_CALLS),
        Baseline("ista-net", "ISTA-Net", "ista-net", _unrolled, "ista-net-{task}", lambda _: Calls(1)),
        Baseline("diffpir", "DiffPIR", "diffpir", _with_denoiser(diffpir), "prior", _stepped),
        Baseline("i2sb", "I2SB", "i2sb", i2sb, "i2sb", _stepped),
        Baseline("ot-ode", "OT-ODE", "ot-ode", ot_ode, "prior", _guided, gradients=True),
        Baseline("d-flow", "D-Flow", "d-flow", d_flow, "prior", lambda _: None, gradients=True),
        Baseline("flow-priors", "Flow-Priors", "flow-priors", flow_priors, "prior", _climbing, gradients=True),
        Baseline("pnp-flow1", "PnP-Flow1", "pnp-flow", pnp_flow, "prior", _averaged, dict(averages=1)),
        Baseline("pnp-flow5", "PnP-Flow5", "pnp-flow", pnp_flow, "prior", _averaged, dict(averages=5)),
        Baseline("flower1", "Flower1-OT", "flower", flower, "prior", _averaged, dict(averages=1)),
        Baseline("flower5", "Flower5-OT", "flower", flower, "prior", _averaged, dict(averages=5)),
    )
}  # fmt: skip
GROUPS = {"all": tuple(BASELINES), "pnp-flow": ("pnp-flow1", "pnp-flow5"), "flower": ("flower1", "flower5")}


def baseline_names(text: str) -> list[str]:
    """Return the names of the rows in a comma-separated list, in which a name of `GROUPS` stands for several rows."""
    names = [name for part in text.split(",") for name in GROUPS.get(part.strip(), (part.strip(),))]
    unknown = [name for name in names if name not in BASELINES]
    require(not unknown, f"no baseline {', '.join(unknown)}; there are {', '.join([*GROUPS, *BASELINES])}")
    return list(dict.fromkeys(names))
