"""What a training configuration must fulfill: values, their combinations, the network, the tasks."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any

import torch

from firm._util.checks import did_you_mean, require_seed
from firm._util.custom import is_custom
from firm.networks import NETWORKS, PRESETS, UNet, build
from firm.training.objectives import ConfigError, Objective

if TYPE_CHECKING:
    from firm.training.config import TrainConfig

MOST_STEPS = 10**9 - 1  # of a run: checkpoints are numbered with nine digits; the paper's have 10^6 steps
POSITIVE = ("size", "channels", "batch_size", "epochs", "steps_per_epoch", "strata", "accumulation_steps",
            "keep_checkpoints", "log_every")  # fmt: skip
NOT_NEGATIVE = ("K", "warm_start_epochs", "ema_from_epoch", "warmup_steps", "limit", "val_images", "validate_every",
                "compile_workers", "max_minutes", "weight_decay", "checkpoint_every", "checkpoint_minutes",
                "shuffle")  # fmt: skip
ABOVE_ZERO = ("rho", "lr", "clip_grad_norm", "tau_min")
# Far beyond what is useful, and still small enough to fail with a sentence instead of filling the memory.
MOST = {"size": 16384, "channels": 1024, "K": 1000, "batch_size": 10**6, "strata": 10**6, "keep_checkpoints": 10**6}


def check(c: TrainConfig) -> None:
    """Refuse impossible values and combinations with a `ConfigError`.

    Every configuration passes here when it is made, so that what works with it can trust it.
    """
    try:
        _check_values(c)
        require_seed(c.seed)
        objective = c.objective_class
        _check_network(c, objective)
        _need(*((getattr(c, key) == getattr(type(c), key), why) for key, why in unused(c).items()))
        if objective.measures:
            _check_tasks(c, objective)
    except (ValueError, TypeError) as error:  # of `require`, the network, the tasks, the user's code
        raise ConfigError(str(error)) from error


def unused(c: TrainConfig) -> dict[str, str]:
    """Name the settings that the objective does not look at, and why; a custom objective may look at any."""
    if is_custom(c.objective):
        return {}
    found = {}
    if c.objective != "prior":
        found["pairing"] = "pairing=optimal belongs to objective=prior: no other one looks at it"
    if c.objective not in ("paper", "balanced"):
        for key in ("output", "reduction", "iterate_weights"):
            found[key] = f"{key}={getattr(c, key)} belongs to objective=paper and balanced, not to {c.objective}"
    if not c.objective_class.measures:
        for key in ("task", "mixture", "mask"):
            found[key] = f"{key} is for objectives with measurements: objective={c.objective} learns from images alone"
    return found


def _check_values(c: TrainConfig) -> None:
    """Check each setting by itself, then those that depend on each other."""
    warm, parts, named = c.warm_start_epochs, c.accumulation_steps, c.dataset in ("celeba", "afhq")
    ranges, weights = {key: getattr(c, key) for key in ("scale", "value_range")}, c.iterate_weights
    _need(
        *((getattr(c, key) >= 1, f"{key} must be at least 1, got {getattr(c, key)}") for key in POSITIVE),
        *((getattr(c, key) >= 0, f"{key} must not be negative, got {getattr(c, key)}") for key in NOT_NEGATIVE),
        *((getattr(c, key) <= n, f"{key} must be at most {n}, got {getattr(c, key)}") for key, n in MOST.items()),
        *((getattr(c, key) > 0, f"{key} must be positive, got {getattr(c, key)}") for key in ABOVE_ZERO),
    )
    _need(
        (c.out, f"out must name a folder for the run, such as {type(c).out}; it is empty"),  # the current folder
        (c.total_steps <= MOST_STEPS, f"epochs x steps_per_epoch must be at most {MOST_STEPS}, got {c.total_steps}"),
        (len(c.betas) == 2 and 0 <= min(c.betas) <= max(c.betas) < 1,
         f"betas must be two numbers in [0, 1), got {list(c.betas)}"),
        (0 <= c.ema_decay < 1, f"ema_decay must be in [0, 1), got {c.ema_decay}"),
        (0 <= c.beta <= 1, f"beta must be in [0, 1], got {c.beta}"),
        (not weights or (len(weights) == c.K and min(weights) >= 0 < weights[-1]),
         f"iterate_weights must be K = {c.K} numbers, none negative and the last positive, got {list(weights)}"),
        (0 <= c.t_min < c.t_max < 1, f"need 0 <= t_min < t_max < 1, got {c.t_min} and {c.t_max}"),
        (0 <= c.lr_end <= c.lr, f"lr_end ({c.lr_end}) must lie between 0 and lr ({c.lr})"),
        (warm <= c.epochs, f"warm_start_epochs ({warm}) is more than epochs ({c.epochs})"),
        (c.batch_size % parts == 0, f"batch_size ({c.batch_size}) must be a multiple of accumulation_steps ({parts})"),
        (c.val_steps and min(c.val_steps) >= 1, f"val_steps must hold numbers of at least 1, got {c.val_steps}"),
        (not c.shard or c.optimizer == "adamw",
         "shard=true needs optimizer=adamw: Muon works on whole matrices"),
        (not c.deterministic or not c.compile, "deterministic=true needs compile=false"),
        (c.recompute != "pointwise" or c.compile,
         "recompute=pointwise is for compiled blocks: set compile=true, or recompute=calls, which works without"),
        *((not pair or (len(pair) == 2 and pair[0] <= pair[1]), f"{key} must be a range [low, high], got {list(pair)}")
          for key, pair in ranges.items()),
        (not c.scale or c.scale[0] > 0, f"scale must be positive, got {list(c.scale)}"),
        (not c.scale or c.crop == "random", "scale needs crop=random"),
        (c.read_size == 0 or c.read_size >= c.size, f"read_size ({c.read_size}) is smaller than size ({c.size})"),
        (c.read_size in (0, c.size) or c.crop == "random",
         "read_size beyond size is for crop=random: centered images are read at `size`"),
        (not c.memory_map or c.dataset == "arrays" or c.cache,
         "memory_map=true needs cache=FOLDER for the decoded pictures"),
        (not c.val_data or not named,
         f"val_data is for dataset=folder, arrays and shards; {c.dataset} has a val split of its own, in data="),
        (not c.key or not named, f"key names an array in files that hold several; dataset={c.dataset} has pictures"),
        (not c.value_range or not named,
         f"value_range is for arrays and pictures of more than 8 bits; those of dataset={c.dataset} have 8"),
        (c.dataset == "shards" or c.shuffle == type(c).shuffle, "shuffle is for dataset=shards: others are drawn from"),
        (c.dataset != "shards" or not c.memory_map, "memory_map is not for dataset=shards, which is streamed anyway"),
    )  # fmt: skip


def _need(*rules: tuple[object, str]) -> None:
    """Refuse with the message of the first condition that does not hold."""
    for condition, message in rules:
        if not condition:
            raise ConfigError(message)


def _check_network(c: TrainConfig, objective: type[Objective]) -> None:
    """Check the network's class and arguments, and let it check their values without memory for its weights."""
    usual, fits = objective.network_class, objective.fits
    if isinstance(c.network, str) and not is_custom(c.network):
        settings = ", ".join(inspect.signature(usual).parameters)
        _need(
            (c.network not in NETWORKS, f"network: write {{class: {c.network}}}, with its arguments"),
            (c.network in PRESETS, f"network: no preset {c.network!r}{did_you_mean(c.network, PRESETS)}"),
            (issubclass(usual, UNet), f"network: {c.network!r} is a U-Net; {usual.__name__} takes {settings}"),
        )
    name, arguments = c.network_arguments()
    if name is not None and name not in NETWORKS and not is_custom(name):
        raise ConfigError(f"network: no class {name!r} (your own is file.py:Class){did_you_mean(name, NETWORKS)}")
    kind = c.network_class()
    if name is not None and name not in NETWORKS:  # a custom class knows its arguments
        return
    if name not in (None, *fits) and not is_custom(c.objective):
        raise ConfigError(f"network: objective={c.objective} trains {' or '.join(fits)}, not {name}")
    known = inspect.signature(kind).parameters
    wrong = next((str(key) for key in arguments if key not in known), None)
    if wrong is not None:
        raise ConfigError(f"network: {kind.__name__} has no argument {wrong!r}{did_you_mean(wrong, known)}")
    with torch.device("meta"):
        net = build(kind, arguments)
    channels, stride = arguments.get("channels", c.channels), int(getattr(net, "stride", 1))
    _need(
        (channels == c.channels, f"network: channels ({channels}) must be those of the images, channels={c.channels}"),
        (c.size % stride == 0, f"size ({c.size}) must be a multiple of the network's stride, {stride}"),
    )


def _check_tasks(c: TrainConfig, objective: type[Objective]) -> None:
    """Check the entries of the mixture, the tasks that they make, and that the network can know their noise level."""
    for entry in c.tasks():
        weight: Any = entry["weight"]
        number = isinstance(weight, int | float) and not isinstance(weight, bool) and 0 < weight < math.inf
        _need(
            (all(isinstance(key, str) for key in entry), f"mixture: settings have names, got {entry}"),
            ("name" in entry, f"mixture: every task needs a name, got {entry}"),
            (number, f"mixture: weight must be positive, got {weight}"),
        )
    tasks, most = c.make_tasks(), MOST["size"]
    for task in tasks:
        drawn, settings = [key for key in task.ranges if key not in task.noise_settings], task.settings()
        shared = task.takes_mask() and settings["mask"] == "shared"
        _need(
            *((not isinstance(value, int) or value <= most, f"{task.name}: {key} must be at most {most}, got {value}")
              for key, value in settings.items()),
            (not (shared and drawn), f"{task.name}: a range of {', '.join(drawn)} needs mask: fresh"),
        )  # fmt: skip
    n = len(tasks)  # every part of a batch holds all of them
    fits = c.batch_size // c.accumulation_steps >= n
    _need((fits, f"batch_size / accumulation_steps must be at least the number of tasks, {n}"))
    if any(task.ranges.keys() & {*task.noise_settings} for task in tasks) and not objective.takes_sigma:
        kind, (name, arguments) = objective.network_class, c.network_arguments()
        known = name is not None or "noise_level" in inspect.signature(kind).parameters
        _need(
            (known, f"{kind.__name__} takes no noise level: give sigma one value, not a range"),
            (arguments.get("noise_level"),
             "a range of noise levels needs a network with noise_level: true among its arguments"),
        )  # fmt: skip
