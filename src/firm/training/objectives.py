"""What a network is trained for. The engine knows this protocol and nothing else of an objective.

An objective maps a network and a batch to each sample's error and time, ``loss(net, batch) -> (B,), (B,)``. The engine
weighs the errors, takes gradients and steps, averages the weights, validates and saves.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from firm._model import save_network
from firm._util.custom import is_custom, load_class
from firm.networks import EXTRA, UNet
from firm.training.batch import Batch
from firm.training.errors import ConfigError

if TYPE_CHECKING:
    from firm.data.images import Images
    from firm.training.config import TrainConfig

NAMED = {  # `objective` in a configuration; "paper" and "balanced" differ in the weights of the errors
    "paper": "firm.training.velocity:Velocity",
    "balanced": "firm.training.velocity:Velocity",
    "prior": "firm.training.prior:Prior",
    "denoiser": "firm.training.denoiser:Denoiser",
    "unrolled": "firm.training.unrolled:Unrolled",
    "bridge": "firm.training.bridge:Bridge",
}


class Objective:
    """Base of the objectives; one of your own derives from it and defines `loss`. ``self.config`` defines the run."""

    kind: ClassVar[str] = "network"  # what the saved file holds
    weights: Literal["omega", "balanced", "uniform"] = "uniform"  # of the errors at different times
    measures: ClassVar[bool] = True  # whether it uses the configuration's tasks
    takes_sigma: ClassVar[bool] = False  # whether its networks take the noise level without being told to
    network_class: ClassVar[type[nn.Module]] = UNet  # what presets and plain settings of `network` are built with
    fits: ClassVar[tuple[str, ...]] = ("UNet", "ResUNet")  # the networks of the library that its loss can call

    def __init__(self, config: TrainConfig) -> None:
        self.config = config

    def loss(self, net: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """The error of every sample and its time, both (B,). Must not wait for the device.

        Runs inside autocast where the configuration asks for bf16.
        """
        raise ConfigError(f"the objective {type(self).__name__} must define loss(net, batch)")

    def inputs(self, batch: int, device: torch.device | str) -> tuple[Any, ...]:
        """Inputs of one network call, of zeros: to count its arithmetic, and to compile it beforehand."""
        c = self.config
        x = torch.zeros(batch, c.channels, c.size, c.size, device=device)
        t = torch.full((batch,), 0.5, device=device)
        extra = c.network_arguments()[1].get("extra", ())
        usual = getattr(self.network_class, "images", 2)
        images = (x,) * (getattr(c.network_class(), "images", usual) + sum(EXTRA.get(name, 0) for name in extra))
        return (*images, *(t,) * (1 + c.noise_level + ("iteration" in extra)))

    def calls(self) -> int:
        """Network calls for one sample of a training step."""
        return 1

    def build(self) -> nn.Module:
        """The network that the configuration describes."""
        _, arguments = self.config.network_arguments()
        kind = self.config.network_class()
        try:
            net: Any = kind(**arguments)
        except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: no memory for it
            known = ", ".join(inspect.signature(kind).parameters)
            raise ConfigError(f"network: {kind.__name__}({known}): {error}") from error
        if not hasattr(net, "config"):
            net.config = arguments  # saved with the weights, to build it again
        try:
            json.dumps(net.config)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"network: the attribute config of {kind.__name__} is saved as JSON, and cannot be: {error}"
            ) from error
        built: nn.Module = net
        return built

    def save(self, net: nn.Module, card: dict[str, Any], path: Path) -> None:
        """Write the trained network."""
        save_network(path, net, self.kind, card)

    def validate(self, net: nn.Module, images: Images, picture: Path | None) -> dict[str, float]:
        """Scores on held-out images, and a picture of them; the first score, higher is better, chooses the best."""
        return {}


def objective_class(name: str) -> type[Objective]:
    """The class of an objective: one of `NAMED`, or the user's own, ``file.py:Class``, which is run."""
    if name not in NAMED and not is_custom(name):
        raise ValueError(f"no objective {name!r}; there are {', '.join(NAMED)}, and file.py:Class for your own")
    return load_class(NAMED.get(name, name), Objective, "objective")
