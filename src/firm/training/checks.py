"""What a training configuration must fulfil: values, their combinations, the network, the tasks."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from firm._util.custom import is_custom
from firm._util.text import did_you_mean
from firm.networks import NETWORKS, PRESETS, UNet, build
from firm.tasks import takes_mask
from firm.training.errors import ConfigError
from firm.training.objectives import NAMED, Objective, objective_class

if TYPE_CHECKING:
    from firm.training.config import TrainConfig

MOST_STEPS = 10**9 - 1  # of a run: checkpoints are numbered with nine digits; the paper's have 10^6 steps
# Far beyond what is useful, and still small enough to fail with a sentence instead of filling the memory.
MOST = {"size": 16384, "channels": 1024, "K": 1000, "batch": 10**6, "strata": 10**6, "keep": 10**6}


def check(c: TrainConfig) -> None:
    """Refuse impossible values and combinations."""

    def need(condition: bool, message: str) -> None:
        if not condition:
            raise ConfigError(message)

    for key in ("size", "channels", "batch", "epochs", "steps_per_epoch", "strata", "accumulate", "keep", "log_every"):
        need(getattr(c, key) >= 1, f"{key} must be at least 1, got {getattr(c, key)}")
    for key in ("K", "warm_epochs", "ema_from_epoch", "rate_warmup", "limit", "val_images",
                "validate_every", "compile_workers", "max_minutes", "weight_decay", "checkpoint_every",
                "checkpoint_minutes"):  # fmt: skip
        need(getattr(c, key) >= 0, f"{key} must not be negative, got {getattr(c, key)}")
    for key, most in MOST.items():
        need(getattr(c, key) <= most, f"{key} must be at most {most}, got {getattr(c, key)}")
    need(c.total_steps <= MOST_STEPS, f"epochs x steps_per_epoch must be at most {MOST_STEPS}, got {c.total_steps}")
    need(abs(c.seed) < 2**63, f"seed must have less than 64 bits, got {c.seed}")
    for key in ("rho", "rate", "clip", "tau_min"):
        need(getattr(c, key) > 0, f"{key} must be positive, got {getattr(c, key)}")
    for key in ("beta1", "beta2", "ema_decay"):
        need(0 <= getattr(c, key) < 1, f"{key} must be in [0, 1), got {getattr(c, key)}")
    need(0 <= c.beta <= 1, f"beta must be in [0, 1], got {c.beta}")
    need(0 <= c.t_min < c.t_max < 1, f"need 0 <= t_min < t_max < 1, got {c.t_min} and {c.t_max}")
    need(0 <= c.rate_end <= c.rate, f"rate_end ({c.rate_end}) must lie between 0 and rate ({c.rate})")
    need(c.warm_epochs <= c.epochs, f"warm_epochs ({c.warm_epochs}) is more than epochs ({c.epochs})")
    need(c.batch % c.accumulate == 0, f"batch ({c.batch}) must be a multiple of accumulate ({c.accumulate})")
    need(bool(c.val_steps) and min(c.val_steps) >= 1, f"val_steps must hold numbers of at least 1, got {c.val_steps}")
    need(not c.deterministic or not c.compile, "deterministic=true needs compile=false")
    need(
        c.recompute != "pointwise" or c.compile,
        "recompute=pointwise is for compiled blocks: set compile=true, or recompute=calls, which works without",
    )
    _check_images(c, need)
    try:
        objective = objective_class(c.objective)
    except ValueError as error:
        raise ConfigError(f"{error}{did_you_mean(c.objective, NAMED)}") from error
    _check_network(c, need, objective.network_class, objective.fits)
    for key, why in unused(c).items():
        need(getattr(c, key) == getattr(type(c), key), why)
    if objective.measures:
        _check_tasks(c, need, objective)


def unused(c: TrainConfig) -> dict[str, str]:
    """The settings that the objective does not look at, and why; one of the user's own may look at any."""
    if is_custom(c.objective):
        return {}
    found = {}
    if c.objective != "prior":
        found["pairing"] = "pairing=optimal belongs to objective=prior: no other one looks at it"
    if c.objective not in ("paper", "balanced"):
        for key in ("output", "coupling"):
            about = f"{key}={getattr(c, key)} belongs to objective=paper and balanced, which have a solver"
            found[key] = f"{about}: objective={c.objective} does not look at it"
    if not objective_class(c.objective).measures:
        for key in ("task", "mixture", "mask"):
            about = f"{key} is for objectives with measurements: objective={c.objective} learns from the images alone"
            found[key] = f"{about}; leave it out"
    return found


def _check_images(c: TrainConfig, need: Any) -> None:
    for key in ("scale", "value_range"):
        pair = getattr(c, key)
        ok = not pair or (len(pair) == 2 and pair[0] <= pair[1])
        need(ok, f"{key} must be a range [low, high], got {list(pair)}")
    need(not c.scale or c.scale[0] > 0, f"scale must be positive, got {list(c.scale)}")
    need(not c.scale or c.crop == "random", "scale needs crop=random")
    need(c.read_size == 0 or c.read_size >= c.size, f"read_size ({c.read_size}) is smaller than size ({c.size})")
    need(
        c.read_size in (0, c.size) or c.crop == "random",
        "read_size beyond size is for crop=random: centered images are read at `size`",
    )
    need(
        not c.mapped or c.dataset == "arrays" or bool(c.cache),
        "mapped=true needs cache=FOLDER for the decoded pictures",
    )
    need(
        not c.val_data or c.dataset in ("folder", "arrays"),
        f"val_data is for dataset=folder and arrays; {c.dataset} has a val split of its own, in data=",
    )
    need(
        not c.key or c.dataset in ("folder", "arrays"),
        f"key names an array in files that hold several; dataset={c.dataset} has pictures",
    )
    need(c.dataset == "arrays" or not c.value_range, "value_range is for dataset=arrays; pictures have their own range")


def _check_network(c: TrainConfig, need: Any, usual: type[nn.Module], fits: tuple[str, ...]) -> None:
    if isinstance(c.network, str) and not is_custom(c.network):
        need(c.network not in NETWORKS, f"network: write {{class: {c.network}}}, with its arguments")
        need(c.network in PRESETS, f"network: no preset {c.network!r}{did_you_mean(c.network, PRESETS)}")
        settings = ", ".join(inspect.signature(usual).parameters)
        need(issubclass(usual, UNet), f"network: {c.network!r} is a U-Net; {usual.__name__} takes {settings}")
    name, arguments = c.network_arguments()
    ours = name is None or is_custom(name) or name in NETWORKS
    need(ours, f"network: no class {name!r} (your own is file.py:Class){did_you_mean(str(name), NETWORKS)}")
    try:
        kind = c.network_class()
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if name is not None and name not in NETWORKS:
        return  # its class knows its arguments
    if name is not None and not is_custom(c.objective):
        need(name in fits, f"network: objective={c.objective} trains {' or '.join(fits)}, not {name}")
    known = list(inspect.signature(kind).parameters)
    for key in arguments:
        need(key in known, f"network: {kind.__name__} has no argument {key!r}{did_you_mean(str(key), known)}")
    try:
        with torch.device("meta"):  # without memory for its weights
            net = build(kind, arguments)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"network: {error}") from error
    channels = arguments.get("channels", c.channels)
    need(channels == c.channels, f"network: channels ({channels}) must be those of the images, channels={c.channels}")
    stride = int(getattr(net, "stride", 1))
    need(c.size % stride == 0, f"size ({c.size}) must be a multiple of the network's stride, {stride}")


def _check_tasks(c: TrainConfig, need: Any, objective: type[Objective]) -> None:
    for entry in c.tasks():
        need(all(isinstance(key, str) for key in entry), f"mixture: settings have names, got {entry}")
        need("name" in entry, f"mixture: every task needs a name, got {entry}")
        weight = entry["weight"]
        number = isinstance(weight, int | float) and not isinstance(weight, bool) and math.isfinite(weight)
        need(number and weight > 0, f"mixture: weight must be positive, got {weight}")
    try:
        tasks = c.make_tasks()
    except ValueError as error:
        raise ConfigError(f"mixture: {error}" if c.mixture else str(error)) from error
    for task in tasks:
        drawn = [key for key in task.ranges if key != "sigma"]
        for key, value in task.settings().items():
            sensible = not isinstance(value, int) or value <= MOST["size"]
            need(sensible, f"{task.name}: {key} must be at most {MOST['size']}, got {value}")
        shared = takes_mask(type(task)) and task.settings()["mask"] == "shared"
        need(not (shared and drawn), f"{task.name}: a range of {', '.join(drawn)} needs mask: fresh")
    n = len(tasks)  # every part of a batch holds all of them
    need(c.batch // c.accumulate >= n, f"batch / accumulate must be at least the number of tasks, {n}")
    if any("sigma" in task.ranges for task in tasks) and not objective.takes_sigma:
        kind = objective.network_class
        known = c.network_arguments()[0] is not None or "noise_level" in inspect.signature(kind).parameters
        need(known, f"{kind.__name__} takes no noise level: give sigma one value, not a range")
        need(c.noise_level, "a range of noise levels needs a network with noise_level: true among its arguments")
