"""A network by the name of its class and its settings, which may come from a file of unknown origin.

`build` is the one place that checks the types and limits of settings; the constructors trust what they are given, and
check only what depends on several settings together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

from torch import nn

from firm._util.checks import is_number, is_whole, require, short
from firm.networks.denoisers import DRUNet, GradientResStep, GradientStep
from firm.networks.estimator import MLP
from firm.networks.ista_net import ISTANet
from firm.networks.res_unet import PriorResUNet, ResUNet
from firm.networks.unet import PriorUNet, UNet

KINDS = (UNet, ResUNet, PriorUNet, PriorResUNet, GradientStep, GradientResStep, DRUNet, ISTANet, MLP)
NETWORKS: dict[str, type[nn.Module]] = {kind.__name__: kind for kind in KINDS}

LIMITS = {  # the largest value of a setting, or of each of its entries, so that no file makes the machine run full
    "channels": 4096, "side": 65536, "ch": 8192, "mult": 256, "blocks": 100, "attention": 65536, "groups": 65536,
    "unshuffle": 64, "widths": 65536, "phases": 1000, "features": 65536, "width": 65536, "depth": 1000,
}  # fmt: skip
LENGTHS = {"attention": (0, 32)}  # the fewest and the most entries of a list; of others (1, 12)


def build(kind: type[nn.Module], settings: Mapping[str, Any]) -> nn.Module:
    """Build a network of this package, `kind`, from settings whose types and limits are checked first.

    Parameters
    ----------
    kind
        One of the classes in `NETWORKS`; another one is built as it is.
    settings
        Its keyword arguments, as a file of a model or a configuration has them: lists stand for tuples.

    Returns
    -------
    The network, with freshly drawn weights. ValueError says which setting is wrong, TypeError which is unknown.
    """
    types = get_type_hints(kind.__init__) if kind in KINDS else {}  # a class of the user's knows its own
    for name, value in settings.items():
        if name in types:  # the constructor names those that it does not have
            _check(f"{kind.__name__}: {name}", name, value, types[name])
    return kind(**settings)


def _check(what: str, name: str, value: Any, wanted: Any) -> None:
    """Raise ValueError unless `value` is what the constructor's annotation `wanted` says, within the limits."""
    if wanted is bool:
        require(isinstance(value, bool), f"{what} must be true or false, got {short(value)}")
    elif wanted is float:
        require(is_number(value, 1e6), f"{what} must be a number of at most 1e+06, got {short(value)}")
    elif wanted is int or (wanted == int | tuple[int, ...] and not isinstance(value, list | tuple)):
        _check_whole(what, value, LIMITS[name])
    elif name in LIMITS:
        (least, most), is_list = LENGTHS.get(name, (1, 12)), isinstance(value, Sequence) and type(value) is not str
        require(
            is_list and least <= len(value) <= most,
            f"{what} must be a list of {least} to {most} whole numbers, such as [1, 2], got {short(value)}",
        )
        for one in value:
            _check_whole(what, one, LIMITS[name])


def _check_whole(what: str, value: Any, high: int) -> None:
    require(is_whole(value, 1, high), f"{what} must be a whole number from 1 to {high}, got {short(value)}")
