"""What a network is trained for, and what a training step gives it: the seam for objectives of one's own.

An objective maps a network and a batch to every sample's error and time, ``loss(net, batch) -> (B,), (B,)``. The engine
knows nothing else of it: it weighs the errors, takes gradients and steps, averages the weights, validates and saves.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from firm._model import save_network
from firm._util.machine import lacks_memory
from firm.networks import EXTRA, UNet, build
from firm.noise import Noise
from firm.noise.grouped import grouped
from firm.operators import LinearOperator
from firm.operators.compose import group
from firm.tasks import BaseTask, Rows

if TYPE_CHECKING:
    from firm.data.images import Images
    from firm.training.config import TrainConfig


class ConfigError(ValueError):
    """A configuration that cannot be used; the message says which setting and what would do."""


class TrainingError(RuntimeError):
    """A run that cannot begin or go on; the message says why, and the way out."""


@dataclass(frozen=True)
class Batch:
    """One part of a batch, as an objective sees it.

    Random numbers come from its methods alone: they draw those of the whole batch and keep the rows of this part, so
    that the result does not depend on how the batch was split over processes and accumulation steps.

    Parameters
    ----------
    x_1
        Clean images, (B, C, H, W), ordered by task.
    t
        Stratified times, (B,).
    rows
        Which rows of the whole batch these are, for each task.
    tasks
        What measures them; none where the objective does not measure.
    warm
        Whether this is the warm start of FIRM, with a single network call.
    """

    x_1: Tensor
    t: Tensor
    rows: Sequence[Rows]
    tasks: Sequence[BaseTask]
    warm: bool = False

    def measure(self) -> tuple[LinearOperator, Tensor, Tensor | Noise]:
        """Measure the images, in float32.

        Returns
        -------
        One operator for all images, which holds those of several tasks side by side; the measurements, (B, ...); and
        the noise levels, (B,), or the noise model where a task has noise of another kind.
        """
        drawn = self.measure_each()
        if len(drawn) == 1:
            return drawn[0][:3]
        with torch.autocast(self.x_1.device.type, enabled=False):
            op, y = group([(op, y) for op, y, _, _ in drawn])
            return op, y, grouped([noise for _, _, noise, _ in drawn], op)

    def measure_each(self) -> list[tuple[LinearOperator, Tensor, Tensor | Noise, slice]]:
        """Draw operator, measurements and noise for each task apart, and say which images it measures."""
        ends = accumulate(r.stop - r.start for r in self.rows)
        places = [slice(end - r.stop + r.start, end) for r, end in zip(self.rows, ends, strict=True)]
        with torch.autocast(self.x_1.device.type, enabled=False):
            drawn = [t.draw(self.x_1[p], r) for t, r, p in zip(self.tasks, self.rows, places, strict=True)]
        return [(*d, place) for d, place in zip(drawn, places, strict=True)]

    def randn(self) -> Tensor:
        """Draw standard Gaussian noise in the shape of the images."""
        return torch.cat([r.randn(*self.x_1.shape[1:], device=self.x_1.device) for r in self.rows])

    def rand(self) -> Tensor:
        """Draw uniform numbers, (B,)."""
        return torch.cat([r.rand(device=self.x_1.device) for r in self.rows])


class Objective:
    """Base of the objectives; a custom one derives from it and defines `loss`. ``self.config`` defines the run."""

    kind: ClassVar[str] = "network"  # what the saved file holds
    weights: Literal["omega", "balanced", "uniform"] = "uniform"  # of the errors at different times
    measures: ClassVar[bool] = True  # whether it uses the configuration's tasks
    takes_sigma: ClassVar[bool] = False  # whether its networks take the noise level without `noise_level: true`
    noise_level: ClassVar[bool] = True  # whether its networks may have `noise_level: true`
    network_class: ClassVar[type[nn.Module]] = UNet  # what presets and plain settings of `network` are built with
    fits: ClassVar[tuple[str, ...]] = ("UNet", "ResUNet")  # the networks of the library that its loss can call

    def __init__(self, config: TrainConfig) -> None:
        if config.noise_level and not self.noise_level:
            raise ConfigError(f"objective={config.objective}: its network takes no noise_level among its arguments")
        self.config = config

    def loss(self, net: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Compute the error of every sample, without waiting for the device.

        Parameters
        ----------
        net
            The network, in training mode. It is called inside autocast where the configuration asks for bf16.
        batch
            Images, times, and what else can be drawn for them.

        Returns
        -------
        The errors and the times that they belong to, both (B,).
        """
        raise ConfigError(f"the objective {type(self).__name__} must define loss(net, batch)")

    def inputs(self, batch_size: int, device: torch.device | str) -> tuple[Any, ...]:
        """Make inputs of one network call, of zeros: to count its arithmetic, and to compile it beforehand.

        They are images (B, C, size, size), then times, noise levels and iterations (B,) as the network has them.

        Parameters
        ----------
        batch_size, device
            B, the number of images, and where the inputs are made.
        """
        c = self.config
        x = torch.zeros(batch_size, c.channels, c.size, c.size, device=device)
        t = torch.full((batch_size,), 0.5, device=device)
        extra = c.network_arguments()[1].get("extra", ())
        usual = getattr(self.network_class, "images", 2)
        images = (x,) * (getattr(c.network_class(), "images", usual) + sum(EXTRA.get(name, 0) for name in extra))
        return (*images, *(t,) * (1 + c.noise_level + ("iteration" in extra)))

    def calls(self) -> int:
        """Count the network calls for one sample of a training step."""
        return 1

    def build(self) -> nn.Module:
        """Build the network that the configuration describes."""
        kind, (_, arguments) = self.config.network_class(), self.config.network_arguments()
        try:
            net: nn.Module = build(kind, arguments)
            net.config = getattr(net, "config", arguments)  # type: ignore[assignment]  # saved with the weights
            json.dumps(net.config)
        except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: no memory for it
            known = ", ".join(inspect.signature(kind).parameters)
            about = f"network: {kind.__name__}({known}), whose attribute config is saved as JSON, cannot be built"
            why = "there is not enough memory for its weights" if lacks_memory(error) else error
            raise ConfigError(f"{about}: {why}") from error
        return net

    def save(self, net: nn.Module, card: dict[str, Any], path: Path) -> None:
        """Write the trained network, with its card, to a file.

        Parameters
        ----------
        net
            The network with the averaged weights.
        card
            What the model was trained for, and how; it is saved as JSON.
        path
            The .safetensors file.
        """
        save_network(path, net, self.kind, card)

    def validate(self, net: nn.Module, images: Images, picture: Path | None) -> dict[str, float]:
        """Score the network on held-out images.

        Parameters
        ----------
        net
            The averaged network, in evaluation mode.
        images
            The images held out, (n, C, size, size).
        picture
            Where to draw the first of them; None draws nothing.

        Returns
        -------
        Scores by name; the first, if any, chooses the best model.
        """
        return {}
