"""The training configuration: a frozen dataclass, read from YAML with ``key=value`` overrides, and checked."""

from __future__ import annotations

import dataclasses
import inspect
import math
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from torch import nn

from firm._util.checks import RepeatedKeyError, read_yaml
from firm._util.custom import is_custom, load_class
from firm._util.text import did_you_mean
from firm.networks import NETWORKS, PRESETS
from firm.tasks import BaseTask
from firm.training.checks import check
from firm.training.errors import ConfigError as ConfigError
from firm.training.measurements import make_task
from firm.training.objectives import objective_class
from firm.training.overrides import ALIASES, override


@dataclass(frozen=True)
class TrainConfig:
    """Everything that defines a training run. Defaults are the paper's (CelebA column of its Table 7)."""

    # What is learned
    task: str = "random-inpainting"  # a task's name, or your own, file.py:Class; the paper trains one model per task
    mixture: tuple[dict[str, Any], ...] = ()  # instead: several tasks, each {name, weight, sigma, missing, ...}
    mask: Literal["fresh", "shared"] = "fresh"  # random masks: new for every sample, or the protocol's one
    # Data
    dataset: Literal["celeba", "afhq", "folder", "arrays"] = "folder"
    data: str = ""  # folder of the data set, or a file of arrays
    val_data: str = ""  # validation images, for dataset=folder and arrays (celeba and afhq have a val split)
    key: str = ""  # arrays: the name of the images in files that hold several arrays, for data and val_data
    size: int = 128
    channels: int = 3  # complex images: two for each complex channel
    value_range: tuple[
        float, ...
    ] = ()  # arrays: [low, high] is mapped to [-1, 1]; without it, floats are used unchanged
    read_size: int = 0  # side of the pictures as they are kept; 0 = size; random crops need more
    crop: Literal["center", "random"] = "center"  # random: a new square of `size` pixels out of the picture every time
    scale: tuple[float, ...] = ()  # random crops: enlarge by a factor of [low, high], such as [0.7, 1.0]
    flips: bool = False  # random mirror images; the paper has no augmentation
    limit: int = 0  # use the first pictures only; 0 = all
    cache: str = ""  # folder for the decoded pictures, so that the next start is quick
    mapped: bool = False  # leave the images in their file (pictures: in the cache) and read them as they are needed
    # Network and solver (Algorithm 3)
    # A preset; or the arguments of firm.UNet; or {class: NAME, arguments ...} with a class of firm.networks, or with
    # your own, file.py:Class (without arguments also by itself).
    network: str | dict[str, Any] = "celeba"
    K: int = 5
    rho: float = 0.01
    beta: float = 0.5
    output: Literal["direct", "correction"] = "direct"
    coupling: Literal["constant", "noise"] = "constant"  # noise: rho grows with the noise level late in the flow
    # Loss (Algorithm 1)
    # paper or balanced: FIRM; prior: an unconditional flow; denoiser (PnP-GS, PnP-HQS), unrolled (ISTA-Net+) or bridge
    # (I2SB): networks of the baselines; or your own, file.py:Class.
    objective: str = "paper"
    pairing: Literal["independent", "optimal"] = (
        "independent"  # prior: noise and images, by minibatch optimal transport
    )
    t_min: float = 1e-3
    t_max: float = 0.995
    tau_min: float = 0.1
    strata: int = 64
    # Optimization
    batch: int = 32  # in all, split over ranks and accumulation
    epochs: int = 500
    steps_per_epoch: int = 2000
    warm_epochs: int = 20  # a single call on [A'y, x_t] before the solver is switched on
    optimizer: Literal["adamw", "muon"] = "adamw"  # muon: for the weight matrices, with AdamW for the rest
    rate: float = 1e-4
    rate_end: float = 1e-6  # cosine
    rate_warmup: int = 0  # steps of linear increase
    beta1: float = 0.9
    beta2: float = 0.999
    weight_decay: float = 1e-4
    clip: float = 1.0
    ema_decay: float = 0.999
    ema_from_epoch: int = 20
    seed: int = 42
    # Train for this long instead, the schedule stretched over it. Compiling and recording a CUDA graph do not count.
    max_minutes: float = 0.0
    init_from: str = ""  # a saved model whose weights to start from
    # Speed and memory; each may be switched off
    bf16: bool = True  # autocast; the data-consistency step stays float32 (the paper uses no mixed precision)
    channels_last: bool = True
    compile: bool = True  # torch.compile of the residual blocks (GPU only)
    compile_workers: int = 6  # processes that compile the blocks before training starts; 0 = compile as they come
    cuda_graph: bool = True  # replay forward and backward pass as one graph (one GPU only)
    fused: bool = True  # AdamW as one kernel
    # For less memory, compute again in the backward pass: what follows from the convolutions by pointwise operations
    # (compiled only), or whole network calls (gradient checkpointing over the K iterations; slower, no CUDA graph).
    recompute: Literal["nothing", "pointwise", "calls"] = "nothing"
    accumulate: int = 1  # split each rank's batch into this many parts: less memory, the same result but for pairings
    deterministic: bool = False  # bit-identical repeats on a GPU, slower
    # The run
    out: str = "outputs/train"
    checkpoint_every: int = 2000  # steps
    checkpoint_minutes: float = 5.0  # and this often
    keep: int = 2  # how many checkpoints to keep, apart from the best model
    validate_every: int = 10_000  # steps; 0 = at the end only
    val_images: int = 32
    val_steps: tuple[int, ...] = (2,)  # N; the first decides which checkpoint is best
    log_every: int = 50  # steps

    def __post_init__(self) -> None:
        check(self)

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run (with max_minutes, only what the schedule is scaled by)."""
        return self.epochs * self.steps_per_epoch

    def tasks(self) -> list[dict[str, Any]]:
        """The tasks of the mixture, or the one task, as dictionaries with name and weight."""
        return [{"weight": 1.0, **entry} for entry in self.mixture] or [{"name": self.task, "weight": 1.0}]

    def make_tasks(self, mask: str = "") -> list[BaseTask]:
        """The tasks themselves; `mask` replaces the setting of that name."""
        return [make_task(entry, self.size, self.mask, mask) for entry in self.tasks()]

    def network_arguments(self) -> tuple[str | None, dict[str, Any]]:
        """The name of its class, None for the objective's usual one, and its arguments."""
        if isinstance(self.network, str):
            if is_custom(self.network):
                return self.network, {}
            return None, {**PRESETS[self.network], "channels": self.channels}
        name, given = self.network.get("class"), {k: v for k, v in self.network.items() if k != "class"}
        kind = objective_class(self.objective).network_class if name is None else NETWORKS.get(str(name))
        if kind is None:  # the user's own knows its arguments
            return str(name), given
        known = inspect.signature(kind).parameters
        usual = {key: value for key, value in (("side", self.size), ("channels", self.channels)) if key in known}
        return None if name is None else str(name), {**usual, **given}

    def network_class(self) -> type[nn.Module]:
        """Its class: the objective's usual one, one of `firm.networks`, or the user's own, whose file is run."""
        name, _ = self.network_arguments()
        if name is None:
            return objective_class(self.objective).network_class
        return NETWORKS[name] if name in NETWORKS else load_class(name, nn.Module, "network")

    def network_about(self) -> dict[str, Any]:
        """What checkpoints say of the network, so that none is taken for another's."""
        own, arguments = self.network_arguments()
        return arguments if own is None else {"class": own, **arguments}

    @property
    def noise_level(self) -> bool:
        """Whether the network takes the noise level."""
        return bool(self.network_arguments()[1].get("noise_level", False))


def load_config(path: str | Path | None, overrides: Sequence[str] = ()) -> TrainConfig:
    """Read a YAML file and apply the overrides, ``key=value`` or ``network.key=value`` (see `override`)."""
    values: dict[str, Any] = {}
    if path is not None:
        try:
            read = read_yaml(Path(path).read_text())
        except FileNotFoundError as error:
            raise ConfigError(f"{path}: no such configuration file") from error
        except OSError as error:
            raise ConfigError(f"{path}: not a file of settings that can be read ({error.strerror})") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: not valid YAML: {error}") from error
        except RepeatedKeyError as error:
            raise ConfigError(f"{path}: {error}") from error
        if read is None:
            raise ConfigError(f"{path}: the file is empty, or all comments; expected settings, one 'key: value' a line")
        if not isinstance(read, dict):
            raise ConfigError(f"{path}: expected settings, one 'key: value' a line")
        values |= {str(key): value for key, value in read.items()}
    for text in overrides:
        override(values, text, str(TrainConfig.network))
    hints = typing.get_type_hints(TrainConfig)
    for key in values:
        if key not in hints:
            meant = f"; did you mean {ALIASES[key]!r}?" if key in ALIASES else did_you_mean(key, hints)
            raise ConfigError(f"no setting {key!r}{meant}")
    config = TrainConfig(**{key: _coerce(key, value, hints[key]) for key, value in values.items()})
    if not config.out:  # would be the current folder
        raise ConfigError(f"out must name a folder for the run, such as {TrainConfig.out}; it is empty")
    return config


def dump_config(config: TrainConfig) -> str:
    """The configuration as YAML, every setting written out."""
    values = {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(config).items()}
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def _coerce(key: str, value: Any, kind: Any) -> Any:
    """Bring a YAML value to the field's type: 1e-4 is a string to YAML, and a list must become a tuple."""
    origin = typing.get_origin(kind)
    if origin is Literal:
        if value not in typing.get_args(kind):
            choices = [str(c) for c in typing.get_args(kind)]
            raise ConfigError(
                f"{key} must be one of {', '.join(choices)}, got {value!r}{did_you_mean(str(value), choices)}"
            )
        return value
    if origin is types.UnionType or origin is typing.Union:
        if isinstance(value, str | dict):
            return value
        raise ConfigError(f"{key} must be a preset's name or a set of arguments, got {value!r}")
    if origin is tuple:
        element = typing.get_args(kind)[0]
        if element in (int, float):
            items = value if isinstance(value, list | tuple) else [value]
            return tuple(_coerce(key, item, element) for item in items)
        if not isinstance(value, list | tuple) or not all(isinstance(item, dict) for item in value):
            raise ConfigError(f"{key} must be a list of tasks such as [{{name: denoising, sigma: [0.1, 0.3]}}]")
        return tuple(value)
    if kind is str:
        if isinstance(value, list | dict):
            hint = "; a task with settings goes into mixture: [{name: ..., ...}]" if key == "task" else ""
            raise ConfigError(f"{key} must be text, got {value!r}{hint}")
        return "" if value is None else str(value)
    if kind is bool:
        if isinstance(value, bool):
            return value
        raise ConfigError(f"{key} must be true or false, got {value!r}")
    try:
        number = float(value)
        if isinstance(value, bool) or not math.isfinite(number) or (kind is int and number != int(number)):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{key} must be {'a whole number' if kind is int else 'a number'}, got {value!r}") from None
    return int(number) if kind is int else number
