"""Networks that a saved file builds by name: the paper's U-Net and ours, the baselines', the MLP of the toy problem.

`build` is the one place that checks the types and limits of settings; the constructors trust what they are given, and
check only what depends on several settings together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_type_hints

from torch import nn

from firm._util.checks import short
from firm.networks.denoisers import DRUNet as DRUNet
from firm.networks.denoisers import GradientResStep as GradientResStep
from firm.networks.denoisers import GradientStep as GradientStep
from firm.networks.denoisers import Step as Step
from firm.networks.denoisers import denoise as denoise
from firm.networks.estimator import EXTRA as EXTRA
from firm.networks.estimator import MLP as MLP
from firm.networks.estimator import Estimator as Estimator
from firm.networks.estimator import OneImage as OneImage
from firm.networks.ista_net import ISTANet as ISTANet
from firm.networks.res_unet import PriorResUNet as PriorResUNet
from firm.networks.res_unet import ResUNet as ResUNet
from firm.networks.unet import PRESETS as PRESETS
from firm.networks.unet import PriorUNet as PriorUNet
from firm.networks.unet import UNet as UNet

_KINDS = (UNet, ResUNet, PriorUNet, PriorResUNet, GradientStep, GradientResStep, DRUNet, ISTANet, MLP)
NETWORKS: dict[str, type[nn.Module]] = {kind.__name__: kind for kind in _KINDS}

_LIMITS = {  # the largest value of a setting, or of each of its entries, so that no file makes the machine run full
    "channels": 4096, "side": 65536, "ch": 8192, "mult": 256, "blocks": 100, "attention": 65536, "groups": 65536,
    "unshuffle": 64, "widths": 65536, "phases": 1000, "features": 65536, "width": 65536, "depth": 1000,
}  # fmt: skip


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
    types = get_type_hints(kind.__init__) if kind in _KINDS else {}  # a class of the user's knows its own
    for name, value in settings.items():
        needs = _violated(name, value, types.get(name))
        if needs:  # the constructor names the settings that it does not have
            raise ValueError(f"{kind.__name__}: {name} must be {needs}, got {short(value)}")
    return kind(**settings)


def _violated(name: str, value: Any, wanted: Any) -> str:
    """Say what a setting must be if it is not: what its annotation `wanted` says, within the limits."""
    if wanted is bool:
        return "" if isinstance(value, bool) else "true or false"
    if wanted is float:
        fits = hasattr(value, "__float__") and not isinstance(value, bool) and abs(value) <= 1e6
        return "" if fits else "a number of at most 1e+06"
    if wanted is None or name not in _LIMITS:
        return ""
    entries, high, needs = [value], _LIMITS[name], "a whole number"
    if isinstance(value, list | tuple) or wanted == tuple[int, ...]:
        least, most = (0, 32) if name == "attention" else (1, 12)
        if wanted is int or not isinstance(value, list | tuple) or not least <= len(value) <= most:
            return needs if wanted is int else f"a list of {least} to {most} whole numbers, such as [1, 2]"
        entries, needs = list(value), "whole numbers"
    fit = all(hasattr(v, "__index__") and not isinstance(v, bool) and 1 <= v <= high for v in entries)
    return "" if fit else f"{needs} from 1 to {high}"
