"""The model that a command names, ready to restore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from firm._model import Firm


def load_model(name: str, network: str | None, device: torch.device | str, precision: Any) -> Firm:
    """Load a model, made fast. `network` is the user's own class that it was saved with, ``file.py:Class``."""
    from torch import nn

    from firm import fast, load
    from firm._util.importing import load_class

    own = None if network is None else load_class(network, nn.Module, "network")
    return fast(load(name, own).to(device), precision)


def channels_of(model: Firm) -> int:
    """How many channels the model's images have."""
    config: dict[str, Any] = getattr(model.estimator, "config", None) or {}
    channels = config.get("channels", model.card.get("channels"))
    if channels is None:
        raise ValueError("this model does not restore images: neither its network nor its card names their channels")
    return int(channels)
