"""Settings that are changed on the command line: ``rate=1e-3``, or a part of one, ``network.ch=96``."""

from __future__ import annotations

from typing import Any

import yaml

from firm._util.checks import RepeatedKeyError, read_yaml
from firm.networks import PRESETS
from firm.training.errors import ConfigError

# What other programs call a setting.
ALIASES = {
    "lr": "rate", "learning_rate": "rate", "lr_end": "rate_end", "min_lr": "rate_end", "warmup_steps": "rate_warmup",
    "batch_size": "batch", "bs": "batch", "optimizer": "optimizer", "wd": "weight_decay", "grad_clip": "clip",
    "num_epochs": "epochs", "image_size": "size", "img_size": "size", "data_dir": "data", "out_dir": "out",
    "output_dir": "out", "ema": "ema_decay", "amp": "bf16", "gradient_accumulation": "accumulate",
}  # fmt: skip


def override(values: dict[str, Any], text: str, default_network: str) -> None:
    """Change one of the settings `values` by ``key=value``; the value is YAML, so ``val_steps=[1,2]`` works."""
    key, separator, written = text.partition("=")
    key = key.strip()
    if not separator:
        raise ConfigError(f"{text!r}: an override has the form key=value")
    try:
        value = read_yaml(written) if written else ""
    except yaml.YAMLError as error:
        raise ConfigError(f"{text!r}: not valid YAML after the = sign") from error
    except RepeatedKeyError as error:
        raise ConfigError(f"{text!r}: {error}") from error
    whole, dot, part = key.partition(".")
    if dot:
        parts = _parts(whole, values, default_network)
        values[whole] = {part: value} if part == "class" else {**parts, part: value}  # another class, other arguments
        return
    values[key] = value
    if key == "task":
        values.pop("mixture", None)  # task= picks one task out of a mixture's config


def _parts(key: str, values: dict[str, Any], default_network: str) -> dict[str, Any]:
    """The parts of a setting that has some: the arguments of the network, a preset's spelled out."""
    if key != "network":
        raise ConfigError(f"{key!r} has no parts: only those of network can be changed one by one, as network.ch=96")
    known = values.get("network", default_network)
    if isinstance(known, dict):
        return known
    return dict(PRESETS[known]) if known in PRESETS else {"class": known}
