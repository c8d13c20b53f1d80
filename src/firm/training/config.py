"""The training configuration: a frozen dataclass, read from YAML with ``key=value`` overrides, and checked."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import inspect
import math
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal

import yaml
from torch import nn

from firm._util.checks import did_you_mean, require, short
from firm._util.custom import custom_code, is_custom, load_class
from firm._util.settings_file import MOST_CHARACTERS, read_yaml
from firm.networks import NETWORKS, PRESETS
from firm.tasks import BaseTask, task_class
from firm.training.config_checks import check
from firm.training.objectives import ConfigError as ConfigError
from firm.training.objectives import Objective

OBJECTIVES = {  # "paper" and "balanced" differ in how the errors are weighted and reduced
    "paper": "firm.training.step:Velocity",
    "balanced": "firm.training.step:Velocity",
    "prior": "firm.training.prior:Prior",
    "denoiser": "firm.training.denoiser:Denoiser",
    "unrolled": "firm.training.denoiser:Unrolled",
    "bridge": "firm.training.bridge:Bridge",
}


@dataclass(frozen=True)
class TrainConfig:
    """Everything that defines a training run. Defaults are the paper's (CelebA column of its Table 7).

    Most settings are explained beside their default. These need more than a line:

    Parameters
    ----------
    network
        A preset; or the arguments of `firm.UNet`; or ``{class: NAME, arguments ...}`` with a class of `firm.networks`,
        or with your own, ``file.py:Class`` (without arguments also by itself).
    K, rho, beta, output
        Algorithm 3: its iterations, the weight of its data-consistency step, its relaxation, and whether the network
        returns the image ("direct") or what it adds to the data-consistent iterate ("correction").
    objective
        "paper" or "balanced" train FIRM; "prior" an unconditional flow; "denoiser" (PnP-GS, PnP-HQS), "unrolled"
        (ISTA-Net+) and "bridge" (I2SB) the networks of the baselines; or your own, ``file.py:Class``.
    reduction
        How FIRM's error takes the pixels of an image together. "auto" is the paper's sum for ``objective: paper``, else
        the mean, so that clipping does not depend on the size of the images.
    iterate_weights
        How much each iterate z^1 ... z^K counts, K numbers: every sample supervises one, drawn with these
        probabilities, and the number of iterations can be chosen when restoring. Empty: the last alone, through all K,
        as in the paper.
    t_min, t_max, tau_min, strata
        Times are drawn from [t_min, t_max], evenly over so many strata; tau_min is the floor of tau_t = 1 - t.
    max_minutes
        Train for this long instead of so many steps, the schedule stretched over it. Compiling and recording a CUDA
        graph do not count.
    recompute
        For less memory, compute again in the backward pass: what follows from the convolutions by pointwise operations
        (compiled only), or whole network calls (gradient checkpointing over the K iterations; slower, no CUDA graph).
    accumulation_steps
        Split each process's batch into this many parts: less memory, the same result (but for ``pairing: optimal``,
        which pairs within a part). With ``objective: balanced`` it costs one more forward pass.
    """

    # What is learned
    task: str = "random-inpainting"  # a task's name, or your own, file.py:Class; the paper trains one model per task
    mixture: tuple[dict[str, Any], ...] = ()  # instead: several tasks, each {name, weight, sigma, missing, ...}
    mask: Literal["fresh", "shared"] = "fresh"  # random masks: new for every sample, or the protocol's one
    # Data
    dataset: Literal["celeba", "afhq", "folder", "arrays", "volumes", "shards"] = "folder"  # see docs/data.md
    data: str = ""  # folder of the data set, or a file of arrays
    val_data: str = ""  # validation images, for all but celeba and afhq, which have a val split
    key: str = ""  # arrays: the name of the images in files that hold several arrays, for data and val_data
    shuffle: int = 10_000  # shards: images are this many places from where they lie, in shards of a random order
    size: int = 128
    channels: int = 3  # complex images: two for each complex channel
    value_range: tuple[float, ...] = ()  # of arrays and deep pictures: [low, high] becomes [-1, 1]; see docs/data.md
    read_size: int = 0  # side of the pictures as they are kept; 0 = size; random crops need more
    crop: Literal["center", "random"] = "center"  # random: a new square of `size` pixels out of the picture every time
    scale: tuple[float, ...] = ()  # random crops: enlarge by a factor of [low, high], such as [0.7, 1.0]
    flips: bool = False  # random mirror images; the paper has no augmentation
    limit: int = 0  # use the first pictures only; 0 = all
    cache: str = ""  # folder for the decoded pictures, so that the next start is quick
    memory_map: bool = False  # leave the images in their file (pictures: in the cache) and read them as they are needed
    # Network and solver (Algorithm 3)
    network: str | dict[str, Any] = "celeba"
    K: int = 5
    rho: float = 0.01
    beta: float = 0.5
    output: Literal["direct", "correction"] = "direct"
    # Loss (Algorithm 1)
    objective: str = "paper"
    reduction: Literal["auto", "mean", "sum"] = "auto"
    iterate_weights: tuple[float, ...] = ()
    pairing: Literal["independent", "optimal"] = "independent"  # prior: noise and images, by optimal transport
    t_min: float = 1e-3
    t_max: float = 0.995
    tau_min: float = 0.1
    strata: int = 64
    # Optimization
    batch_size: int = 32  # in all, split over processes and accumulation steps
    epochs: int = 500
    steps_per_epoch: int = 2000
    warm_start_epochs: int = 20  # a single call on [A'y, x_t] before the solver is switched on
    optimizer: Literal["adamw", "muon"] = "adamw"  # muon: for the weight matrices, with AdamW for the rest
    lr: float = 1e-4
    lr_end: float = 1e-6  # cosine
    warmup_steps: int = 0  # steps of linear increase
    betas: tuple[float, ...] = (0.9, 0.999)  # of AdamW
    weight_decay: float = 1e-4
    clip_grad_norm: float = 1.0
    ema_decay: float = 0.999
    ema_from_epoch: int = 20
    seed: int = 42
    max_minutes: float = 0.0
    init_from: str = ""  # a saved model whose weights to start from
    # Speed and memory; each may be switched off
    bf16: bool = True  # autocast; the data-consistency step stays float32 (the paper uses no mixed precision)
    channels_last: bool = True
    compile: bool = True  # torch.compile of the residual blocks (GPU only)
    compile_workers: int = 6  # processes that compile the blocks before training starts; 0 = compile as they come
    cuda_graph: bool = True  # replay forward and backward pass as one graph (one GPU only)
    fused: bool = True  # AdamW as one kernel
    shard: bool = False  # split weights and optimizer among several processes (FSDP2), for networks that do not fit
    recompute: Literal["nothing", "pointwise", "calls"] = "nothing"
    accumulation_steps: int = 1
    deterministic: bool = False  # bit-identical repeats on a GPU, slower
    # The run
    out: str = "outputs/train"
    checkpoint_every: int = 2000  # steps
    checkpoint_minutes: float = 5.0  # and this often
    keep_checkpoints: int = 2  # how many, apart from the best model
    validate_every: int = 10_000  # steps; 0 = at the end only
    val_images: int = 32
    val_steps: tuple[int, ...] = (2,)  # N; the first decides which checkpoint is best
    log_every: int = 50  # steps

    def __post_init__(self) -> None:
        check(self)

    @property
    def total_steps(self) -> int:
        """Count the optimizer steps of the whole run (with max_minutes, only what the schedule is scaled by)."""
        return self.epochs * self.steps_per_epoch

    @cached_property
    def objective_class(self) -> type[Objective]:
        """The class of the objective; a custom one's file is run."""
        if is_custom(self.objective):
            return load_class(self.objective, Objective, "objective")
        if self.objective not in OBJECTIVES:
            known = f"there are {', '.join(OBJECTIVES)}, and file.py:Class for your own"
            raise ConfigError(f"no objective {self.objective!r}; {known}{did_you_mean(self.objective, OBJECTIVES)}")
        found: type[Objective] = resolve_name(OBJECTIVES[self.objective])
        return found

    def tasks(self) -> list[dict[str, Any]]:
        """Return the tasks of the mixture, or the one task, as dictionaries with name and weight."""
        return [{"weight": 1.0, **entry} for entry in self.mixture] or [{"name": self.task, "weight": 1.0}]

    def make_tasks(self, mask: str = "") -> list[BaseTask]:
        """Make the tasks; `mask`, "shared" or "fresh", takes the place of what the entries say of random masks."""
        made = []
        for entry in self.tasks():
            kind = task_class(str(entry["name"]))
            settings = {key: value for key, value in entry.items() if key not in ("name", "weight")}
            if kind.takes_mask():
                settings["mask"] = mask or settings.get("mask", self.mask)
            with custom_code(task=kind):
                made.append(kind(self.size, **settings))
        return made

    def network_arguments(self) -> tuple[str | None, dict[str, Any]]:
        """Return the name of the network's class, None for the objective's usual one, and its arguments."""
        if isinstance(self.network, str):
            if is_custom(self.network):
                return self.network, {}
            return None, {**PRESETS[self.network], "channels": self.channels}
        name, given = self.network.get("class"), {k: v for k, v in self.network.items() if k != "class"}
        kind = self.objective_class.network_class if name is None else NETWORKS.get(str(name))
        if kind is None:  # a custom one knows its arguments
            return str(name), given
        known = inspect.signature(kind).parameters
        usual = {key: value for key, value in (("side", self.size), ("channels", self.channels)) if key in known}
        return None if name is None else str(name), {**usual, **given}

    def network_class(self) -> type[nn.Module]:
        """Find the network's class: the objective's usual one, one of `firm.networks`, or a custom one (run here)."""
        name, _ = self.network_arguments()
        if name is None:
            return self.objective_class.network_class
        return NETWORKS[name] if name in NETWORKS else load_class(name, nn.Module, "network")

    def network_about(self) -> dict[str, Any]:
        """Return what checkpoints say of the network, so that none is taken for another's."""
        name, arguments = self.network_arguments()
        return arguments if name is None else {"class": name, **arguments}

    @property
    def noise_level(self) -> bool:
        """Tell whether the network takes the noise level."""
        return bool(self.network_arguments()[1].get("noise_level", False))


def load_config(path: str | Path | None, overrides: Sequence[str] = ()) -> TrainConfig:
    """Read a training configuration.

    Parameters
    ----------
    path
        A YAML file of settings, one ``key: value`` a line; None for the defaults.
    overrides
        Settings to change: ``lr=1e-3``, of the network also ``network.ch=96``. The value is YAML, so that
        ``val_steps=[1,2]`` works.

    Returns
    -------
    The configuration, checked. A `ConfigError` says which setting is wrong, and what would do.
    """
    values: dict[str, Any] = {}
    if path is not None:
        if not Path(path).exists():
            raise ConfigError(f"{path}: no such configuration file")
        values |= read_settings(Path(path), str(path))
    for text in overrides:
        _override(values, text)
    hints = typing.get_type_hints(TrainConfig)
    for key, value in values.items():
        if key not in hints:
            raise ConfigError(f"no setting {key!r}{_meant(key, hints)}")
        values[key] = _coerced(key, value, hints[key])
    return TrainConfig(**values)


def dump_config(config: TrainConfig) -> str:
    """Write the configuration as YAML, with every setting."""
    values = {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(config).items()}
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def read_settings(path: Path, about: str) -> dict[str, Any]:
    """Read a YAML or JSON file of settings; a `ConfigError` that begins with `about` says what is wrong with it."""
    values = _parsed(path, about)
    if not isinstance(values, dict):
        empty = "the file is empty, or all comments"
        raise ConfigError(f"{about}: {empty if values is None else 'expected settings, one key: value a line'}")
    return {str(key): value for key, value in values.items()}


def _parsed(source: Path | str, about: str) -> Any:
    """Parse a file, or text, as YAML."""
    try:
        if isinstance(source, str):
            return read_yaml(source)
        with source.open() as file:  # no more of it than what is refused
            return read_yaml(file.read(MOST_CHARACTERS + 1))
    except (OSError, ValueError, yaml.YAMLError) as error:
        why = f"not a file of settings that can be read ({error})" if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{about}: {'not valid YAML: ' * isinstance(error, yaml.YAMLError)}{why}") from error


def _override(values: dict[str, Any], text: str) -> None:
    """Change one of the settings `values` by ``key=value``, or a part of one by ``network.key=value``."""
    key, separator, written = text.partition("=")
    key, dot, part = key.strip().partition(".")
    require(separator, f"{text!r}: an override has the form key=value", ConfigError)
    value = _parsed(written, repr(text)) if written else ""
    if dot:
        message = f"{key!r} has no parts: only those of network can be changed one by one, as network.ch=96"
        require(key == "network", message, ConfigError)
        known = values.get(key, TrainConfig.network)
        if not isinstance(known, dict):
            known = PRESETS.get(known, {"class": known})
        value = {part: value} if part == "class" else {**known, part: value}  # another class, other arguments
    values[key] = value
    if key == "task":
        values.pop("mixture", None)  # task= picks one task out of a mixture's config


def _meant(key: str, known: Iterable[str]) -> str:
    """End the message on an unknown setting with the one of the same initials (bs), words (grad_clip) or letters."""

    def alike(name: str) -> bool:
        words, others = key.split("_"), name.split("_")
        initials = (len(others) > 1 and key == "".join(w[0] for w in others)) or name == "".join(w[:1] for w in words)
        return initials or set(words) <= set(others) or (len(others) == 1 and name in words)

    misspelled = difflib.get_close_matches(key, list(known), 1, 0.8)
    found = next((name for name in [*misspelled, *known] if name in misspelled or alike(name)), None)
    return f"; did you mean {found!r}?" if found else did_you_mean(key, known)


def _coerced(key: str, value: Any, kind: Any) -> Any:
    """Bring the YAML value of setting `key` to its type (1e-4 is a string to YAML), or raise a `ConfigError`."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    fits = True
    if origin is Literal:
        fits, what = value in arguments, f"one of {', '.join(arguments)}{did_you_mean(str(value), arguments)}"
    elif origin is types.UnionType:
        fits, what = isinstance(value, str | dict), "a preset's name or a set of arguments"
    elif origin is tuple and arguments[0] in (int, float):
        items = value if isinstance(value, list | tuple) else [value]
        return tuple(_coerced(key, item, arguments[0]) for item in items)
    elif origin is tuple:
        fits = isinstance(value, list | tuple) and all(isinstance(item, dict) for item in value)
        value, what = tuple(value) if fits else value, "a list of tasks such as [{name: denoising, sigma: 0.1}]"
    elif kind is str:
        fits, what = not isinstance(value, list | dict), "text (a task with settings goes into mixture: [{name: ...}])"
        value = "" if value is None else str(value) if fits else value
    elif kind is bool:
        fits, what = isinstance(value, bool), "true or false"
    else:
        number, what = math.nan, "a number" if kind is float else "a whole number"
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            number = math.nan if isinstance(value, bool) else float(value)
        fits = math.isfinite(number) and (kind is float or number.is_integer())
        value = kind(number) if fits else value
    if not fits:
        raise ConfigError(f"{key} must be {what}, got {short(value)}")
    return value
