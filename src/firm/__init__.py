"""FIRM: flow-based imaging via regularized minimization. Restores images from y = A x + noise in a few steps."""

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firm._util import terminal as _terminal  # noqa: F401 (before torch, for Ctrl-C while the command loads it)

__version__ = "0.1.0"

# The public surface, loaded when first used: `firm --version` needs no torch. Type checkers read these lines as Python,
# `_SURFACE` reads them as text: a name stands here and nowhere else.
if TYPE_CHECKING:
    from firm import acceleration as acceleration
    from firm import baselines as baselines
    from firm import bench as bench
    from firm import blind as blind
    from firm import data as data
    from firm import evaluation as evaluation
    from firm import metrics as metrics
    from firm import networks as networks
    from firm import noise as noise
    from firm import operators as operators
    from firm import restoration as restoration
    from firm import scale as scale
    from firm import tasks as tasks
    from firm import training as training
    from firm._flow import interpolate as interpolate
    from firm._flow import omega as omega
    from firm._flow import stratified_times as stratified_times
    from firm._flow import tau as tau
    from firm._flow import velocity_loss as velocity_loss
    from firm._model import Firm as Firm
    from firm._model import Solver as Solver
    from firm._model import bundled as bundled
    from firm._model import load as load
    from firm._model import load_network as load_network
    from firm._posterior_mean import flow_only as flow_only
    from firm._posterior_mean import posterior_mean as posterior_mean
    from firm._prepare import prepare as prepare
    from firm._restore import Restoration as Restoration
    from firm._restore import restore as restore
    from firm._sampling import sample as sample
    from firm.acceleration import fast as fast
    from firm.acceleration import tiled as tiled
    from firm.networks import UNet as UNet
    from firm.operators import data_consistency as data_consistency
    from firm.restoration.advice import advice as advice
    from firm.tasks import Task as Task
    from firm.training.step import TimeBalance as TimeBalance

_LINES = re.findall(r"^    from (\S+) import (\w+) as \2$", Path(__file__).read_text(encoding="utf-8"), re.MULTILINE)
_SURFACE = {name: module for module, name in _LINES}
__all__ = [*_SURFACE]


def __getattr__(name: str) -> Any:
    if name not in _SURFACE:
        raise AttributeError(f"module 'firm' has no attribute {name!r}")
    if _SURFACE[name] == "firm":
        return import_module(f"firm.{name}")
    return globals().setdefault(name, getattr(import_module(_SURFACE[name]), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *_SURFACE})
