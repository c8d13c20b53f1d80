"""The rows of the paper's tables: function, network, number of calls. To add one: its settings, and a row here."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from firm._model import fingerprint
from firm._sampling import Generators
from firm.acceleration import fast_network
from firm.acceleration._fast import Precision
from firm.baselines import d_flow, diffpir, flow_priors, flower, i2sb, ot_ode, pnp_flow, pnp_gs, pnp_hqs
from firm.baselines._common import begin
from firm.baselines._denoiser import as_denoiser
from firm.baselines.settings import CELEBA as PUBLISHED
from firm.baselines.settings import settings
from firm.baselines.weights import load_weights, weights_file
from firm.evaluation.methods import NamedMethod
from firm.operators import LinearOperator
from firm.tasks import BaseTask


class Calls(NamedTuple):
    """Network calls for one image: forward and backward passes, and what the paper's cost table counts."""

    forward: int
    backward: int = 0
    paper: int | None = None


@dataclass(frozen=True)
class Baseline:
    """A row of the tables."""

    name: str  # on the command line
    label: str  # in the paper
    method: str  # its settings
    function: Callable[..., Tensor]  # function(net, op, y, sigma, *, generator, **settings)
    weights: str  # the network, after the name of the data set; "{task}" is the task's name
    calls: Callable[[dict[str, Any]], Calls | None]  # from the settings; None where it depends on the image
    fixed: dict[str, Any] = field(default_factory=dict)  # settings of this row in all tasks
    gradients: bool = False  # whether gradients pass through the network, which is then left as it is, in float32

    def settings(self, task: BaseTask) -> dict[str, Any] | None:
        """Keyword arguments in a task, None where the method does not do it."""
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


def _stepped(values: dict[str, Any], usual: int = 100) -> Calls:
    return Calls(values.get("steps", usual))


def _guided(values: dict[str, Any]) -> Calls:
    N = values.get("steps", 100)
    steps = N - round(N * values.get("start", 0.1))
    return Calls(steps, steps, 3 * steps)


def _gradient_step(values: dict[str, Any]) -> Calls:
    steps = values.get("steps", 35)
    return Calls(steps, steps)


def _climbing(values: dict[str, Any]) -> Calls:
    """The second backward pass of an update goes through the first one too."""
    N, K = values.get("steps", 100), values.get("updates", 1)
    return Calls(N * (K + 1), 2 * N * K, N)


PRIOR = "prior"
BASELINES = {
    row.name: row
    for row in (
        Baseline("pnp-gs", "PnP-GS", "pnp-gs", pnp_gs, "gradient-step", _gradient_step, gradients=True),
        Baseline("pnp-hqs", "PnP-HQS", "pnp-hqs", _with_denoiser(pnp_hqs), "denoiser", partial(_stepped, usual=24)),
        Baseline("ista-net", "ISTA-Net", "ista-net", _unrolled, "ista-net-{task}", lambda _: Calls(1)),
        Baseline("diffpir", "DiffPIR", "diffpir", _with_denoiser(diffpir), PRIOR, _stepped),
        Baseline("i2sb", "I2SB", "i2sb", i2sb, "i2sb", _stepped),
        Baseline("ot-ode", "OT-ODE", "ot-ode", ot_ode, PRIOR, _guided, gradients=True),
        Baseline("d-flow", "D-Flow", "d-flow", d_flow, PRIOR, lambda _: None, gradients=True),
        Baseline("flow-priors", "Flow-Priors", "flow-priors", flow_priors, PRIOR, _climbing, gradients=True),
        Baseline("pnp-flow1", "PnP-Flow1", "pnp-flow", pnp_flow, PRIOR, _averaged, dict(averages=1)),
        Baseline("pnp-flow5", "PnP-Flow5", "pnp-flow", pnp_flow, PRIOR, _averaged, dict(averages=5)),
        Baseline("flower1", "Flower1-OT", "flower", flower, PRIOR, _averaged, dict(averages=1)),
        Baseline("flower5", "Flower5-OT", "flower", flower, PRIOR, _averaged, dict(averages=5)),
    )
}  # fmt: skip
GROUPS = {"all": tuple(BASELINES), "pnp-flow": ("pnp-flow1", "pnp-flow5"), "flower": ("flower1", "flower5")}


def baseline_names(text: str) -> list[str]:
    """The rows that a comma-separated list names; `GROUPS` stand for several."""
    names = [name for part in text.split(",") for name in GROUPS.get(part.strip(), (part.strip(),))]
    unknown = [name for name in names if name not in BASELINES]
    if unknown:
        raise ValueError(f"no baseline {', '.join(unknown)}; there are {', '.join([*GROUPS, *BASELINES])}")
    return list(dict.fromkeys(names))


class Networks:
    """The baselines' networks for one kind of images ("face"), loaded when first asked for, once each."""

    def __init__(
        self,
        device: torch.device | str,
        precision: Precision = "float32",
        where: Path | None = None,
        images: str = "face",
    ) -> None:
        self.device, self.precision, self.where, self.images = device, precision, where, images
        self._ready: dict[tuple[str, bool], tuple[nn.Module, str]] = {}

    def has(self, name: str) -> bool:
        """Whether the network lies where it is looked for."""
        return weights_file(f"{self.images}-{name}", self.where).is_file()

    def get(self, name: str, gradients: bool) -> tuple[nn.Module, str]:
        """The network and its fingerprint; as it is if gradients go through it, else made fast."""
        if (name, gradients) not in self._ready:
            net = load_weights(f"{self.images}-{name}", self.where).to(self.device)
            quick = net if gradients else fast_network(net, self.precision, False)
            rounding = getattr(quick, "dtype", torch.float32)  # what "auto" came to on this device
            self._ready[name, gradients] = (quick, fingerprint(net, str(rounding).removeprefix("torch.")))
        return self._ready[name, gradients]


def available(names: list[str], networks: Networks) -> list[str]:
    """Those of the rows that have their networks, in every task that they do."""
    return [
        name
        for name in names
        if all(
            weights_file(f"{networks.images}-{BASELINES[name].weights.format(task=task)}", networks.where).is_file()
            for task in PUBLISHED[BASELINES[name].method]
        )
    ]


def baseline_methods(names: str, networks: Networks) -> list[NamedMethod]:
    """The rows that `names` lists, ready for `firm.evaluation.evaluate`: in every task with its settings there."""
    rows = [BASELINES[name] for name in baseline_names(names)]
    return [NamedMethod(row.label, _unsettled, settle=partial(_settled, row, networks)) for row in rows]


def _settled(row: Baseline, networks: Networks, task: BaseTask) -> NamedMethod | None:
    values, name = row.settings(task), row.weights.format(task=task.name)
    if values is None:
        return None
    if name != row.weights and task.name not in PUBLISHED[row.method] and not networks.has(name):
        return None  # a network for each task, and nobody has trained one for this
    net, weights = networks.get(name, row.gradients)
    calls = row.calls(values)

    def run(op: LinearOperator, y: Tensor, sigma: float, generator: Generators) -> Tensor:
        return row.function(net, op, y, sigma, generator=generator, **values)

    about = json.dumps([row.name, weights, values], sort_keys=True)
    return NamedMethod(row.label, run, None if calls is None else calls.forward, fingerprint(None, about))


def _unsettled(op: LinearOperator, y: Tensor, sigma: float, generator: Generators) -> Tensor:
    raise RuntimeError("a baseline has settings for each task: take method.on(task)")
