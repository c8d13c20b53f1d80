"""The networks that the baselines run with: where they lie, how they were trained, and rows that are ready to run."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from firm._model import fingerprint, load_network
from firm._prepare import Generators
from firm._util.checks import require
from firm.acceleration import fast_network
from firm.acceleration._fast import Precision
from firm.baselines.catalog import BASELINES, CELEBA, Baseline, baseline_names
from firm.evaluation.methods import NamedMethod
from firm.operators import LinearOperator
from firm.tasks import BaseTask

_CHECKOUT = Path(__file__).parents[3] / "weights"
FOLDER = _CHECKOUT if _CHECKOUT.is_dir() else Path("weights")  # of the checkout that this package is part of, if any
TRAINED_BY = {  # the beginning of a name -> how to make it
    "face-prior": "firm train configs/prior.yaml data=CELEBA out=runs/prior",
    "face-denoiser": "firm train configs/baselines/denoiser.yaml data=CELEBA out=runs/denoiser",
    "face-gradient-step": "firm train configs/baselines/gradient-step.yaml init_from=PRIOR data=CELEBA out=runs/gs",
    "face-ista-net": "firm train configs/baselines/ista-net.yaml task=TASK data=CELEBA out=runs/ista-net",
    "face-i2sb": "firm train configs/baselines/i2sb.yaml init_from=DENOISER data=CELEBA out=runs/i2sb",
    "cat-denoiser": "firm train configs/baselines/denoiser.yaml dataset=afhq size=256 data=AFHQ out=runs/cat-denoiser",
    "cat-prior": "firm train configs/prior.yaml dataset=afhq size=256 data=AFHQ out=runs/cat-prior",
}


def load_weights(name: str, where: Path | None = None) -> nn.Module:
    """Load the network `name` from the folder `where`, or from the usual one.

    It is ready to call, and its attribute ``card`` says what it is. FileNotFoundError says how to train a missing one.
    """
    path = (where or FOLDER) / f"{name}.safetensors"
    made = next((f", or train them: {how}" for start, how in TRAINED_BY.items() if name.startswith(start)), "")
    hint = "Those of faces are in the repository, not in the installed package, others do not come with firm"
    missing = f"{path}: no such weights. {hint}: name their folder (--weights){made}"
    require(path.is_file(), missing, FileNotFoundError)
    return load_network(path)


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
        """Tell whether the network lies where it is looked for."""
        return ((self.where or FOLDER) / f"{self.images}-{name}.safetensors").is_file()

    def serve(self, row: Baseline) -> bool:
        """Tell whether the row of a baseline has its networks in every task that it does."""
        return all(self.has(row.weights.format(task=task)) for task in CELEBA[row.method])

    def get(self, name: str, gradients: bool) -> tuple[nn.Module, str]:
        """Return the network and its fingerprint; as it is if gradients go through it, else made fast."""
        if (name, gradients) not in self._ready:
            net = load_weights(f"{self.images}-{name}", self.where).to(self.device)
            quick = net if gradients else fast_network(net, self.precision, False)
            rounding = getattr(quick, "dtype", torch.float32)  # what "auto" came to on this device
            self._ready[name, gradients] = (quick, fingerprint(net, str(rounding).removeprefix("torch.")))
        return self._ready[name, gradients]


def baseline_methods(names: str, networks: Networks) -> list[NamedMethod]:
    """Return the rows that `names` lists, ready for `firm.evaluation.evaluate`, with the settings of every task."""
    rows = [BASELINES[name] for name in baseline_names(names)]
    return [NamedMethod(row.label, _unsettled, settle=partial(_settled, row, networks)) for row in rows]


def _settled(row: Baseline, networks: Networks, task: BaseTask) -> NamedMethod | None:
    """Return a row with its settings and its network in a task; None where it does not do the task."""
    values, name = row.settings(task), row.weights.format(task=task.name)
    if values is None:
        return None
    if name != row.weights and task.name not in CELEBA[row.method] and not networks.has(name):
        return None  # a network for each task, and nobody has trained one for this
    net, weights = networks.get(name, row.gradients)
    calls = row.calls(values)

    def run(op: LinearOperator, y: Tensor, sigma: float, generator: Generators) -> Tensor:
        return row.function(net, op, y, sigma, generator=generator, **values)

    about = json.dumps([row.name, weights, values], sort_keys=True)
    return NamedMethod(row.label, run, None if calls is None else calls.forward, fingerprint(None, about))


def _unsettled(*_: object) -> Tensor:
    """Refuse to run without a task."""
    raise RuntimeError("a baseline has settings for each task: take method.on(task)")
