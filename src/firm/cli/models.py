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
    from firm.acceleration import fast

    if network is not None and not strict:
        with suppress(ValueError):
            return fast(load_plain(name).to(device), precision)
    return fast(load_plain(name, network).to(device), precision)


def load_plain(name: str, network: str | None = None) -> Firm:
    """Load a model as it was saved."""
    from torch import nn

    from firm._model import load
    from firm._util.custom import load_class

    return load(listed(name), None if network is None else load_class(network, nn.Module, "network"))


def listed(name: str) -> str | Path:
    """Return the file of a baseline's network that `firm models` lists by this name; all other names as they are."""
    from firm._model import bundled

    if name in bundled() or Path(name).exists() or name != Path(name).name:
        return name
    from firm.baselines.weights import weights_file

    path = weights_file(name)
    return path if path.is_file() else name


def range_of(text: str | None, card: dict[str, Any], data: Path) -> tuple[float, float] | None:
    """Return the values of arrays that stand for -1 and 1: ``low,high`` if given, else those of training.

    None for pictures, and where nobody says.
    """
    from firm.data.array_file import array_files, is_array_file
    from firm.data.arrays import check_range

    if text is not None:
        ends: list[float] = []
        with suppress(ValueError):
            ends = [float(part) for part in text.split(",")]
        if len(ends) != 2:
            raise ValueError(f"--value-range takes two numbers, low,high, got {text!r}")
        check_range((ends[0], ends[1]))
        return ends[0], ends[1]
    with suppress(OSError):
        if card.get("value_range") and (is_array_file(data) or array_files(data)):
            low, high = map(float, card["value_range"])
            return low, high
    return None


def side_for(size: int | None, dataset: str, card: dict[str, Any]) -> int | None:
    """Return the side of a data set's images: as given, the paper's, or the model's; None for arrays, as they are."""
    side = size or {"celeba": 128, "afhq": 256}.get(dataset) or card.get("size")
    return None if side is None and dataset == "arrays" else side or 128
