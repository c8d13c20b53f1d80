"""What a training configuration must fulfill: values, their combinations, the network, the tasks."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from firm._util.checks import require
from firm._util.custom import is_custom
from firm._util.text import did_you_mean
from firm.networks import NETWORKS, PRESETS, UNet
from firm.tasks import takes_mask
from firm.training.objectives import NAMED, ConfigError, Objective, objective_class

if TYPE_CHECKING:
    from firm.training.config import TrainConfig

MOST_STEPS = 10**9 - 1  # of a run: checkpoints are numbered with nine digits; the paper's have 10^6 steps
POSITIVE = ("size", "channels", "batch_size", "epochs", "steps_per_epoch", "strata", "accumulation_steps",
            "keep_checkpoints", "log_every")  # fmt: skip
NOT_NEGATIVE = ("K", "warm_start_epochs", "ema_from_epoch", "warmup_steps", "limit", "val_images", "validate_every",
                "compile_workers", "max_minutes", "weight_decay", "checkpoint_every", "checkpoint_minutes")  # fmt: skip
# Far beyond what is useful, and still small enough to fail with a sentence instead of filling the memory.
MOST = {"size": 16384, "channels": 1024, "K": 1000, "batch_size": 10**6, "strata": 10**6, "keep_checkpoints": 10**6}


def check(c: TrainConfig) -> None:
    """Refuse impossible values and combinations with a `ConfigError`."""
    try:
        _check_values(c)
        _check_images(c)
        objective = objective_class(c.objective)
        _check_network(c, objective)
        for key, why in unused(c).items():
            require(getattr(c, key) == getattr(type(c), key), why)
        if objective.measures:
            _check_tasks(c, objective)
    except ConfigError:
        raise
    except ValueError as error:  # of `require`, the user's code, the tasks
        hint = did_you_mean(c.objective, NAMED) if str(error).startswith("no objective") else ""
        raise ConfigError(f"{error}{hint}") from error


def unused(c: TrainConfig) -> dict[str, str]:
    """Name the settings that the objective does not look at, and why; a custom objective may look at any."""
    if is_custom(c.objective):
        return {}
    found = {}
    if c.objective != "prior":
        found["pairing"] = "pairing=optimal belongs to objective=prior: no other one looks at it"
    if c.objective not in ("paper", "balanced"):
        for key in ("output", "reduction"):
            about = f"{key}={getattr(c, key)} belongs to objective=paper and balanced, which train FIRM"
            found[key] = f"{about}: objective={c.objective} does not look at it"
    if not objective_class(c.objective).measures:
        for key in ("task", "mixture", "mask"):
            about = f"{key} is for objectives with measurements: objective={c.objective} learns from the images alone"
            found[key] = f"{about}; leave it out"
    return found


def _check_values(c: TrainConfig) -> None:
    for key in POSITIVE:
        require(getattr(c, key) >= 1, f"{key} must be at least 1, got {getattr(c, key)}")
    for key in NOT_NEGATIVE:
        require(getattr(c, key) >= 0, f"{key} must not be negative, got {getattr(c, key)}")
    for key, most in MOST.items():
        require(getattr(c, key) <= most, f"{key} must be at most {most}, got {getattr(c, key)}")
    for key in ("rho", "lr", "clip_grad_norm", "tau_min"):
        require(getattr(c, key) > 0, f"{key} must be positive, got {getattr(c, key)}")
    require(c.total_steps <= MOST_STEPS, f"epochs x steps_per_epoch must be at most {MOST_STEPS}, got {c.total_steps}")
    require(abs(c.seed) < 2**63, f"seed must have less than 64 bits, got {c.seed}")
    require(
        len(c.betas) == 2 and all(0 <= b < 1 for b in c.betas),
        f"betas must be two numbers in [0, 1), got {list(c.betas)}",
    )
    require(0 <= c.ema_decay < 1, f"ema_decay must be in [0, 1), got {c.ema_decay}")
    require(0 <= c.beta <= 1, f"beta must be in [0, 1], got {c.beta}")
    require(0 <= c.t_min < c.t_max < 1, f"need 0 <= t_min < t_max < 1, got {c.t_min} and {c.t_max}")
    require(0 <= c.lr_end <= c.lr, f"lr_end ({c.lr_end}) must lie between 0 and lr ({c.lr})")
    warm = c.warm_start_epochs
    require(warm <= c.epochs, f"warm_start_epochs ({warm}) is more than epochs ({c.epochs})")
    require(
        c.batch_size % c.accumulation_steps == 0,
        f"batch_size ({c.batch_size}) must be a multiple of accumulation_steps ({c.accumulation_steps})",
    )
    require(c.val_steps and min(c.val_steps) >= 1, f"val_steps must hold numbers of at least 1, got {c.val_steps}")
    require(not c.deterministic or not c.compile, "deterministic=true needs compile=false")
    require(
        c.recompute != "pointwise" or c.compile,
        "recompute=pointwise is for compiled blocks: set compile=true, or recompute=calls, which works without",
    )


def _check_images(c: TrainConfig) -> None:
    for key in ("scale", "value_range"):
        pair = getattr(c, key)
        ok = not pair or (len(pair) == 2 and pair[0] <= pair[1])
        require(ok, f"{key} must be a range [low, high], got {list(pair)}")
    require(not c.scale or c.scale[0] > 0, f"scale must be positive, got {list(c.scale)}")
    require(not c.scale or c.crop == "random", "scale needs crop=random")
    require(c.read_size == 0 or c.read_size >= c.size, f"read_size ({c.read_size}) is smaller than size ({c.size})")
    beyond = c.read_size not in (0, c.size)
    require(
        not beyond or c.crop == "random",
        "read_size beyond size is for crop=random: centered images are read at `size`",
    )
    arrays, cached = c.dataset == "arrays", bool(c.cache)
    require(not c.memory_map or arrays or cached, "memory_map=true needs cache=FOLDER for the decoded pictures")
    named = c.dataset in ("celeba", "afhq")
    require(
        not c.val_data or not named,
        f"val_data is for dataset=folder and arrays; {c.dataset} has a val split of its own, in data=",
    )
    require(
        not c.key or not named,
        f"key names an array in files that hold several; dataset={c.dataset} has pictures",
    )
    require(arrays or not c.value_range, "value_range is for dataset=arrays; pictures have their own range")


def _check_network(c: TrainConfig, objective: type[Objective]) -> None:
    usual, fits = objective.network_class, objective.fits
    if isinstance(c.network, str) and not is_custom(c.network):
        require(c.network not in NETWORKS, f"network: write {{class: {c.network}}}, with its arguments")
        require(c.network in PRESETS, f"network: no preset {c.network!r}{did_you_mean(c.network, PRESETS)}")
        settings = ", ".join(inspect.signature(usual).parameters)
        require(issubclass(usual, UNet), f"network: {c.network!r} is a U-Net; {usual.__name__} takes {settings}")
    name, arguments = c.network_arguments()
    ours = name is None or is_custom(name) or name in NETWORKS
    require(ours, f"network: no class {name!r} (your own is file.py:Class){did_you_mean(str(name), NETWORKS)}")
    kind = c.network_class()
    if name is not None and name not in NETWORKS:
        return  # its class knows its arguments
    if name is not None and not is_custom(c.objective):
        require(name in fits, f"network: objective={c.objective} trains {' or '.join(fits)}, not {name}")
    known = list(inspect.signature(kind).parameters)
    for key in arguments:
        require(key in known, f"network: {kind.__name__} has no argument {key!r}{did_you_mean(str(key), known)}")
    try:
        with torch.device("meta"):  # without memory for its weights: the network checks its own settings
            net: nn.Module = kind(**arguments)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"network: {error}") from error
    channels = arguments.get("channels", c.channels)
    message = f"network: channels ({channels}) must be those of the images, channels={c.channels}"
    require(channels == c.channels, message)
    stride = int(getattr(net, "stride", 1))
    require(c.size % stride == 0, f"size ({c.size}) must be a multiple of the network's stride, {stride}")


def _check_tasks(c: TrainConfig, objective: type[Objective]) -> None:
    for entry in c.tasks():
        require(all(isinstance(key, str) for key in entry), f"mixture: settings have names, got {entry}")
        require("name" in entry, f"mixture: every task needs a name, got {entry}")
        weight: Any = entry["weight"]
        number = isinstance(weight, int | float) and not isinstance(weight, bool) and math.isfinite(weight)
        require(number and weight > 0, f"mixture: weight must be positive, got {weight}")
    tasks = c.make_tasks()
    for task in tasks:
        drawn = [key for key in task.ranges if key != "sigma"]
        for key, value in task.settings().items():
            sensible = not isinstance(value, int) or value <= MOST["size"]
            require(sensible, f"{task.name}: {key} must be at most {MOST['size']}, got {value}")
        shared = takes_mask(type(task)) and task.settings()["mask"] == "shared"
        require(not (shared and drawn), f"{task.name}: a range of {', '.join(drawn)} needs mask: fresh")
    n = len(tasks)  # every part of a batch holds all of them
    enough = c.batch_size // c.accumulation_steps >= n
    require(enough, f"batch_size / accumulation_steps must be at least the number of tasks, {n}")
    if any("sigma" in task.ranges for task in tasks) and not objective.takes_sigma:
        kind = objective.network_class
        known = c.network_arguments()[0] is not None or "noise_level" in inspect.signature(kind).parameters
        require(known, f"{kind.__name__} takes no noise level: give sigma one value, not a range")
        require(c.noise_level, "a range of noise levels needs a network with noise_level: true among its arguments")
