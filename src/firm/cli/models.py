"""The model that a command names, ready to restore, and what its card says where options are left out."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from firm._model import Firm


def load_model(
    name: str, network: str | None, device: torch.device | str, precision: Any, *, strict: bool = True
) -> Firm:
    """Load a model and make it fast; `network` is the custom class that it was saved with, ``file.py:Class``.

    Unless `strict`, as for one of several models, those that were saved with another class do without it.
    """
    from firm import fast

    if network is not None and not strict:
        with suppress(ValueError):
            return fast(load_plain(name).to(device), precision)
    return fast(load_plain(name, network).to(device), precision)


def load_plain(name: str, network: str | None = None) -> Firm:
    """Load a model as it was saved."""
    from torch import nn

    from firm import load
    from firm._util.custom import load_class

    custom = None if network is None else load_class(network, nn.Module, "network")
    try:
        return load(name, custom)
    except FileNotFoundError:
        from firm.baselines.weights import weights_file

        listed = weights_file(name)  # of a baseline, as `firm models` lists them: `load` says what it holds
        if name != Path(name).name or not listed.is_file():
            raise
        return load(listed, custom)


def range_of(text: str | None, card: dict[str, Any], data: Path) -> tuple[float, float] | None:
    """Return the values of arrays that stand for -1 and 1: ``low,high`` if given, else those of training.

    None for pictures, and where nobody says.
    """
    from firm.data.array_file import array_files, is_array_file
    from firm.data.arrays import check_range

    if text is not None:
        try:
            low, high = (float(part) for part in text.split(","))
        except ValueError:
            raise ValueError(f"--value-range takes two numbers, low,high, got {text!r}") from None
        check_range((low, high))
        return low, high
    if card.get("value_range"):
        with suppress(OSError):
            if is_array_file(data) or array_files(data):
                low, high = map(float, card["value_range"])
                return low, high
    return None


def side_for(size: int | None, dataset: str, card: dict[str, Any]) -> int | None:
    """Return the side of a data set's images: as given, the paper's, or the model's; None for arrays, as they are."""
    side = size or {"celeba": 128, "afhq": 256}.get(dataset) or card.get("size")
    return None if side is None and dataset == "arrays" else side or 128
