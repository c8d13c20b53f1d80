"""The model that a command names, ready to restore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from firm._model import Firm


def load_model(name: str, network: str | None, device: torch.device | str, precision: Any) -> Firm:
    """Load a model, made fast. `network` is the user's own class that it was saved with, ``file.py:Class``."""
    from firm import fast

    return fast(load_plain(name, network).to(device), precision)


def load_plain(name: str, network: str | None = None) -> Firm:
    """Load a model as it was saved."""
    from torch import nn

    from firm import load
    from firm._util.custom import load_class

    own = None if network is None else load_class(network, nn.Module, "network")
    try:
        return load(name, own)
    except FileNotFoundError:
        from firm.baselines.weights import weights_file

        listed = weights_file(name)  # of a baseline, as `firm models` lists them: `load` says what it holds
        if name != Path(name).name or not listed.is_file():
            raise
        return load(listed, own)


def range_of(text: str | None, card: dict[str, Any], data: Path) -> tuple[float, float] | None:
    """The values of arrays that stand for -1 and 1: as given, ``low,high``, or as in training; None for pictures."""
    from firm.data.array_file import array_files, is_array_file
    from firm.data.arrays import check_range

    if text is not None:
        try:
            low, high = (float(part) for part in text.split(","))
        except ValueError:
            raise ValueError(f"--value-range takes two numbers, low,high, got {text!r}") from None
        check_range((low, high))
        return low, high
    trained = card.get("value_range")
    if not trained:
        return None
    if not (
        isinstance(trained, list | tuple) and len(trained) == 2 and all(isinstance(v, int | float) for v in trained)
    ):
        raise ValueError(f"the model's card is damaged: value_range is {trained!r}; give --value-range low,high")
    try:
        arrays = is_array_file(data) or bool(array_files(data))
    except OSError:
        arrays = False
    return (float(trained[0]), float(trained[1])) if arrays else None


def channels_of(model: Firm) -> int:
    """How many channels the model's images have."""
    config: dict[str, Any] = getattr(model.estimator, "config", None) or {}
    channels = config.get("channels", model.card.get("channels"))
    if channels is None:
        raise ValueError("this model does not restore images: neither its network nor its card names their channels")
    return _whole(channels, "channels")


def size_of(card: dict[str, Any]) -> int | None:
    """Side of the images that the model was trained for, where its card tells."""
    size = card.get("size")
    return None if size is None else _whole(size, "size")


def side_for(size: int | None, dataset: str, card: dict[str, Any]) -> int | None:
    """Side of a data set's images: as given, the paper's, or the model's. None for arrays: they have their own."""
    side = size or {"celeba": 128, "afhq": 256}.get(dataset) or size_of(card)
    return None if side is None and dataset == "arrays" else side or 128


def _whole(value: Any, what: str) -> int:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"the model's card is damaged: {what} is {value!r}, not a whole number")
    return value
