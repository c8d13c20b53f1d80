"""The models that a command names, ready to restore, and what images they take where options are left out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from firm._util.terminal import printable

if TYPE_CHECKING:
    from firm._model import Firm

Range = tuple[float, float]
T = TypeVar("T")


def load_plain(name: str, network: str | None = None, *, strict: bool = True) -> Firm:
    """Load a model as it was saved.

    Parameters
    ----------
    name
        A bundled model, a file, or the folder of a training run.
    network
        The custom class that the model was saved with, ``file.py:Class``.
    strict
        Whether the model must be of that class. If not, as where several models are loaded, a model that loads without
        the class is loaded without it.
    """
    from torch import nn

    from firm._model import load
    from firm._util.custom import load_class

    if network is not None and not strict:
        with suppress(ValueError):
            return load_plain(name)
    return load(listed(name), None if network is None else load_class(network, nn.Module, "network"))


def noted(work: Callable[[], T]) -> T:
    """Return what `work` returns; its warnings are printed as notes."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = work()
    for warning in told:
        typer.echo(f"note: {printable(str(warning.message))}", err=True)
    return result


def listed(name: str) -> str | Path:
    """Return the file of a baseline's network that `firm models` lists by this name; all other names as they are."""
    from firm._model import bundled

    if name in bundled() or Path(name).exists():
        return name
    from firm.baselines.weights import FOLDER

    path = FOLDER / f"{name}.safetensors"
    return path if name == path.stem and path.is_file() else name


def form_of_images(
    models: Mapping[str, Firm], data: Path, *, dataset: str, size: int | None = None, value_range: str | None = None
) -> tuple[int | None, int | None, Range | None]:
    """Return the form of a data set's images that all models take; ValueError where the models differ.

    Parameters
    ----------
    models
        The models by the names that messages give them; there may be none.
    data, dataset
        Where the images are, and the layout of the data set, such as "celeba", "folder" or "arrays".
    size
        The side that the user asked for, in pixels. None takes 128 for celeba and 256 for afhq, else the side that the
        models' cards name, and 128 where they name none, unless the data set is "arrays".
    value_range
        What the user gave as ``--value-range``, see `range_of`.

    Returns
    -------
    The side (None for arrays as they are), the number of channels (None for any), and the values that stand for -1
    and 1 (None for pictures, and where nobody says).
    """
    from firm._model import channels_of

    cards = {name: model.card for name, model in models.items()} or {"": {}}
    given, usual = size or {"celeba": 128, "afhq": 256}.get(dataset), None if dataset == "arrays" else 128
    sides = {name: given or card.get("size") or usual for name, card in cards.items()}
    side = _agreed(sides, "the side of their images", "give --size")
    counts = {name: channels_of(model) for name, model in models.items()}
    channels = _agreed(counts, "the channels of their images", "evaluate them one by one")
    ranges = {name: range_of(value_range, card, data) for name, card in cards.items()}
    return side, channels, _agreed(ranges, "the values that stand for -1 and 1", "give --value-range low,high")


def _agreed(found: Mapping[str, T], what: str, cure: str) -> T | None:
    """Return the one value of all models, None without a model; where they differ, say the `cure`."""
    if len(set(found.values())) > 1:
        each = ", ".join(f"{name} {value}" for name, value in found.items())
        raise ValueError(f"the models differ in {what} ({each}): {cure}")
    return next(iter(found.values()), None)


def range_of(text: str | None, card: Mapping[str, Any], data: Path) -> Range | None:
    """Return the values of arrays that stand for -1 and 1: ``low,high`` if given, else those of training.

    Parameters
    ----------
    text
        What the user gave as ``--value-range``; None if the option was left out.
    card
        The model's card, whose ``value_range`` is that of training.
    data
        The file or folder that is read. Without `text`, the result is None for pictures, and where the card is silent.
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
