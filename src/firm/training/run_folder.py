"""The folder of a run: its settings, which images and custom code it trains with, and checkpoints that survive a crash.

A checkpoint is what torch.save writes, a zip archive, sealed: the archive's comment holds the SHA-256 of all before it.
It is written aside and renamed; the last few are kept, and a damaged one is passed over.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import io
import json
import math
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from firm._util.checks import finite, require
from firm._util.custom import code_digest, is_custom
from firm._util.files import remove_leftovers, write_atomically
from firm._util.machine import lacks_memory
from firm.tasks import task_class
from firm.training.config import ConfigError, TrainConfig, dump_config, read_settings
from firm.training.config_checks import MOST_STEPS, unused
from firm.training.objectives import objective_class

SETTINGS, IMAGES = "config.yaml", "images.json"
CODE = "code.json"  # only where a run trains with custom code
FREE = (  # settings that may differ when a run goes on
    "max_minutes", "out", "keep_checkpoints", "checkpoint_every", "checkpoint_minutes", "validate_every", "log_every",
    "epochs", "val_steps", "compile", "compile_workers", "cuda_graph", "recompute", "accumulation_steps", "cache",
    "data", "val_data",
)  # fmt: skip
FORMAT = 1
_MARK = b"firm sha256 "
_COMMENT = len(_MARK) + 64  # bytes of the archive's comment
State = dict[str, Any]


def refuse_another_run(out: Path, config: TrainConfig) -> None:
    """Refuse to go on in a folder whose run has other settings, or was trained with custom code that was edited.

    Parameters
    ----------
    out
        The folder of a run that has checkpoints.
    config
        What is to be trained now. Settings in `FREE`, and those that the objective does not look at, may differ.
    """
    now = yaml.safe_load(dump_config(config))
    kept = _read(out / SETTINGS, "settings") or now
    changed = sorted(k for k in {*kept, *now} - {*FREE, *unused(config)} if kept.get(k) != now.get(k))
    if changed:
        message = f"{out} holds a run with other settings ({', '.join(changed)})"
        raise ConfigError(f"{message}: choose another out=, or start from its weights with init_from=")
    digests = _read(out / CODE, "custom code")
    for name, kind in _classes(config).items():
        if name in digests and digests[name] != code_digest(kind):
            raise ConfigError(
                f"{inspect.getfile(kind)} has been edited since the run in {out} was trained with its {kind.__name__}: "
                f"undo the edit to go on, or {ways_on(out)}"
            )


def refuse_other_images(out: Path, config: TrainConfig, data: dict[str, Any]) -> None:
    """Refuse to go on with other images: those for validation could be among those that were trained with.

    Parameters
    ----------
    out, config
        The folder of a run that has checkpoints, and what is to be trained now.
    data
        What `firm.training.feed.describe_sets` says of the images that were found now.
    """
    kept = _read(out / IMAGES, "images")
    if kept and kept != data:
        was, found = (f"{about.get('training')} + {about.get('validation')}" for about in (kept, data))
        raise ConfigError(
            f"{config.data} does not hold the images that the run in {out} was trained with (other names, sizes or "
            f"order of files; for training + validation {was} images then, {found} now): put them back to go on; or "
            f"start from its weights with init_from={out / 'model.safetensors'} and another out=; or, to go on with "
            f"these all the same, delete {out / IMAGES} and give the same command again"
        )


def put_in_order(out: Path, config: TrainConfig, data: dict[str, Any], finished: bool) -> None:
    """Remove leftovers of killed processes, and write what `refuse_another_run` and `refuse_other_images` compare.

    Parameters
    ----------
    out, config, data
        The folder, the settings, and what `firm.training.feed.describe_sets` says of the images.
    finished
        Whether the run has ended: then the folder keeps what it was trained with.
    """
    remove_leftovers([out, out / "checkpoints", out / "validation"])
    digests = {name: digest for name, kind in _classes(config).items() if (digest := code_digest(kind))}
    files = {SETTINGS: dump_config(config), IMAGES: json.dumps(data, indent=1)}
    if digests:
        files[CODE] = json.dumps(digests, indent=1)
    for name, text in files.items():
        if not finished or not (out / name).is_file():
            write_atomically(out / name, text)


def identity(config: TrainConfig) -> str:
    """Return what processes that train together must have in common, as text: settings and custom code.

    Where the images are may differ, as on the disks of several machines.
    """
    here = {key: value for key, value in dataclasses.asdict(config).items() if key not in ("data", "val_data", "cache")}
    return repr([here, {name: code_digest(kind) for name, kind in _classes(config).items()}])


def ways_on(out: Path) -> str:
    """Say what to do with the training in a folder once its code has been mended.

    The state of a run knows its steps and weights, not its code: without the digests it goes on with that of now.
    """
    return (
        f"start from its weights with init_from={out / 'model.safetensors'} and another out=; or, if the edit does not "
        "change what is trained, as in a validation that is mended, "
        f"delete {out / CODE} and give the same command again"
    )


def _read(path: Path, what: str) -> dict[str, Any]:
    """Read the names and values in a small file of the folder; none where there is no file."""
    way = f"choose another out=, or delete that file if you are sure that your {what} did not change"
    about = f"{path}, which holds the {what} of the run in this folder, cannot be read: {way}"
    return read_settings(path, about) if path.is_file() else {}


def _classes(config: TrainConfig) -> dict[str, type]:
    """Find the classes of the objective, the network and the tasks, by their names in the configuration."""
    objective, (network, _) = objective_class(config.objective), config.network_arguments()
    tasks = [str(entry["name"]) for entry in config.tasks()] if objective.measures else []
    custom = {network: config.network_class()} if network is not None and is_custom(network) else {}
    return {config.objective: objective, **custom, **{name: task_class(name) for name in tasks}}


class Checkpoints:
    """The checkpoints in a folder, ``step_NNN.pt``, of which the last `keep` good ones are kept.

    Parameters
    ----------
    folder
        Where they are; it need not exist yet.
    network
        What the run says of its network: checkpoints of another are refused.
    keep
        How many good ones to keep.
    """

    def __init__(self, folder: Path, network: dict[str, Any], keep: int) -> None:
        self.folder, self.network, self.keep = folder, network, keep
        self._bad: set[Path] = set()  # passed over: they do not count among those to keep

    def path(self, step: int) -> Path:
        """Return the file of a step."""
        return self.folder / f"step_{step:09d}.pt"

    def steps(self) -> list[int]:
        """List the steps that have a file, good or not, in order."""
        found = [re.fullmatch(r"step_(\d{9,18})\.pt", path.name) for path in self.folder.glob("step_*.pt")]
        return sorted({int(match[1]) for match in found if match})

    def save(self, state: State) -> Path:
        """Write the state; then remove what is older than it, but for the last good ones."""
        path = self.path(state["step"])
        write_atomically(path, _sealed({"format": FORMAT, **state}))
        self._bad.discard(path)
        older = [self.path(step) for step in self.steps() if step < state["step"]]
        good = [p for p in older if p not in self._bad]
        for old in {*older} - {*good[max(0, len(good) - self.keep + 1) :]}:
            old.unlink(missing_ok=True)
        return path

    def latest(self, take: Callable[[State], None]) -> int | None:
        """Hand the newest good checkpoint to `take`, which refuses by raising; its step, or None. Warns of the bad."""
        for step in reversed(self.steps()):
            try:
                take(self.read(step))
                return step
            except Exception as error:  # torch.load raises many kinds on damaged files
                if lacks_memory(error):
                    raise  # says nothing about the file
                about = str(error).strip().split("\n")[0]
                warnings.warn(f"{self.path(step)} is passed over: {type(error).__name__}: {about}", stacklevel=2)
                self._bad.add(self.path(step))
        return None

    def read(self, step: int) -> State:
        """Read the state of a step; ValueError if it is damaged or of another network."""
        data = self.path(step).read_bytes()
        digest = hashlib.sha256(memoryview(data)[:-_COMMENT]).hexdigest()
        message = "it is damaged: its contents do not have the digest they were saved with, or it was cut short"
        require(data[-_COMMENT:] == _MARK + digest.encode(), message)
        state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        known = isinstance(state, dict) and state.get("format") == FORMAT
        require(known, f"it is not a checkpoint of format {FORMAT}")
        require(_plain(state.get("network")) == _plain(self.network), "it is of another network")
        require(state.get("step") == step, f"its name does not fit its step, {state.get('step')}")
        return dict(state)


def _plain(settings: Any) -> Any:
    """Return settings as JSON has them: a list of a YAML file and the tuple that it was written from are the same."""
    return json.loads(json.dumps(settings, default=str))


def _sealed(state: State) -> bytes:
    """Make what torch.save writes, with its digest as the archive's comment; torch.load reads it all the same."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(-2, io.SEEK_END)  # an archive without a comment ends with the comment's length
    buffer.write(_COMMENT.to_bytes(2, "little"))
    digest = hashlib.sha256(buffer.getbuffer()).hexdigest()
    buffer.write(_MARK + digest.encode())
    return buffer.getvalue()


def check_state(state: State, now: State, optimizers: Sequence[Optimizer]) -> None:
    """Raise ValueError if the state read from a checkpoint cannot be that of a run whose state is `now`."""
    missing = sorted(now.keys() - state.keys())
    require(not missing, f"it lacks {', '.join(missing)}")
    step, elapsed, best, saved = (state[key] for key in ("step", "elapsed", "best", "optimizers"))
    require(type(step) is int and 0 <= step <= MOST_STEPS, f"it claims to be of step {step}")
    sound = 0 <= elapsed < math.inf and not math.isnan(best)
    require(sound, f"it claims to be {elapsed} seconds old, with a score of {best}")
    for key in ("net", "average", "balance"):
        require(_shapes(state[key]) == _shapes(now[key]), f"the tensors of its {key} are not those of this run")
    fit = len(saved) == len(optimizers) and all(map(_fits, optimizers, saved))
    require(fit, "its optimizers are not those of this run")
    broken = [v for key in ("optimizers", "balance") for v in _tensors(state[key]) if not finite(v)]
    for key in ("net", "average"):  # a network may have infinite constants, as a mask, from the beginning
        broken += [v for name, v in state[key].items() if not finite(v) and finite(now[key][name])]
    require(not broken, "it holds numbers that are NaN or infinite")


def _fits(optimizer: Optimizer, saved: Any) -> bool:
    """Tell whether a saved state is that of an optimizer; torch takes over moments of any shape, and fails later."""
    groups = [group["params"] for group in saved["param_groups"]]
    params = [p for group in optimizer.param_groups for p in group["params"]]
    return list(map(len, groups)) == [len(group["params"]) for group in optimizer.param_groups] and all(
        v.ndim == 0 or v.shape == param.shape
        for index, param in zip([i for group in groups for i in group], params, strict=True)
        for v in _tensors(saved["state"].get(index, {}))
    )


def _shapes(tensors: Any) -> Any:
    if not isinstance(tensors, dict):
        return None
    return {key: (v.shape, v.dtype) if isinstance(v, Tensor) else None for key, v in tensors.items()}


def _tensors(state: Any) -> list[Tensor]:
    """List all tensors of nested dictionaries and lists."""
    return [value for value in tree_leaves(state) if isinstance(value, Tensor)]
