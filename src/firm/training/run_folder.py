"""The folder of a run: its settings, which images and custom code it trains with, and checkpoints that survive a crash.

A checkpoint is what torch.save writes, a zip archive, sealed: the archive's comment holds the SHA-256 of all before it.
It is written aside and renamed; the last few are kept, and a damaged one is passed over.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
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
from firm.data.images import Images
from firm.data.stored import Stored
from firm.tasks import task_class
from firm.training.config import ConfigError, TrainConfig, dump_config, read_settings
from firm.training.config_checks import MOST_STEPS, unused

SETTINGS, IMAGES = "config.yaml", "images.json"
CODE = "code.json"  # only where a run trains with custom code
FREE = (  # settings that may differ when a run goes on
    "max_minutes", "out", "keep_checkpoints", "checkpoint_every", "checkpoint_minutes", "validate_every", "log_every",
    "epochs", "val_steps", "compile", "compile_workers", "cuda_graph", "recompute", "accumulation_steps", "cache",
    "data", "val_data", "shard",
)  # fmt: skip
FORMAT = 1
_MARK = b"firm sha256 "
_COMMENT = len(_MARK) + 64  # bytes of the archive's comment
State = dict[str, Any]


class RunFolder:
    """The folder of a run: its checkpoints, and its settings, images and custom code, so that only it goes on there."""

    def __init__(self, path: Path, config: TrainConfig) -> None:
        self.path, self.config, self.model = path, config, path / "model.safetensors"
        self.checkpoints = Checkpoints(path / "checkpoints", config.network_about(), config.keep_checkpoints)
        self.images: dict[str, Any] = {}  # what `found` says
        objective, (network, _) = config.objective_class, config.network_arguments()
        self._classes: dict[str, type] = {config.objective: objective}
        if network is not None and is_custom(network):
            self._classes[network] = config.network_class()
        for entry in config.tasks() if objective.measures else []:
            self._classes[str(entry["name"])] = task_class(str(entry["name"]))
        self._code = {name: digest for name, kind in self._classes.items() if (digest := code_digest(kind))}

    def found(self, train: Images, held_out: Images) -> None:
        """Note which images there are for training and validation: a resumed run, and all processes, have the same.

        Names count below the folder of the set, which may be moved, and sizes of files, not what is in them.
        """
        about: list[Any] = []
        for folder, images in ((self.config.data, train), (self.config.val_data or self.config.data, held_out)):
            root, names, sizes = Path(folder), images.names, []
            if isinstance(images.data, Stored):
                sizes = images.data.about
            elif self.config.dataset not in ("volumes", "shards"):  # whose images are no files
                names = names if root.is_dir() else [""] * min(1, len(images))  # "" is the one file of a stack
                sizes = [(root / name).stat().st_size for name in names]
            about += [names, sizes, len(images), str(images.data.dtype), list(images.shape)]
        digest = hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]
        self.images = {"training": len(train), "validation": len(held_out), "digest": digest}

    def same_settings(self) -> str:
        """Return, as text, the settings and custom code that all processes must share; not where their data are."""
        shared = {k: v for k, v in asdict(self.config).items() if k not in ("data", "val_data", "cache")}
        return repr([shared, self._code])

    def refuse_another_run(self) -> None:
        """Refuse to go on with other settings, but for those in `FREE`, or with custom code that was edited since."""
        now = yaml.safe_load(dump_config(self.config))
        kept = self._read(SETTINGS, "settings") or now
        changed = sorted(k for k in {*kept, *now} - {*FREE, *unused(self.config)} if kept.get(k) != now.get(k))
        if changed:
            message = f"{self.path} holds a run with other settings ({', '.join(changed)})"
            raise ConfigError(f"{message}: choose another out=, or start from its weights with init_from=")
        digests = self._read(CODE, "custom code")
        for name, kind in self._classes.items():
            if name in digests and digests[name] != self._code.get(name):
                raise ConfigError(
                    f"{inspect.getfile(kind)} has been edited since the run in {self.path} was trained with its "
                    f"{kind.__name__}: undo the edit to go on, or {self.ways_on()}"
                )

    def refuse_other_images(self) -> None:
        """Refuse to go on with other images: those for validation could be among those that were trained with."""
        kept = self._read(IMAGES, "images")
        if kept and kept != self.images:
            was, now = (f"{about.get('training')} + {about.get('validation')}" for about in (kept, self.images))
            raise ConfigError(
                f"{self.config.data} does not hold the images that the run in {self.path} was trained with (other "
                f"names, sizes or order of files; {was} images for training + validation then, {now} now): put them "
                f"back to go on; or start from its weights with init_from={self.model} and another out=; or, to go on "
                f"with these all the same, delete {self.path / IMAGES} and give the same command again"
            )

    def write(self, finished: bool) -> None:
        """Remove leftovers of killed processes, and note what a run that goes on is compared with.

        A folder whose run has `finished` keeps what it was trained with.
        """
        remove_leftovers([self.path, self.path / "checkpoints", self.path / "validation"])
        files = {SETTINGS: dump_config(self.config), IMAGES: json.dumps(self.images, indent=1)}
        if self._code:
            files[CODE] = json.dumps(self._code, indent=1)
        for name, text in files.items():
            if not finished or not (self.path / name).is_file():
                write_atomically(self.path / name, text)

    def ways_on(self) -> str:
        """Say what to do with the training in the folder once its code has been mended.

        The state of a run knows its steps and weights, not its code: without the digests it goes on with that of now.
        """
        return (
            f"start from its weights with init_from={self.model} and another out=; or, if the edit does not change "
            f"what is trained, as in a validation that is mended, delete {self.path / CODE} and give the same command "
            "again"
        )

    def _read(self, name: str, what: str) -> dict[str, Any]:
        """Read the names and values in a small file of the folder; none where there is no file."""
        path = self.path / name
        way = f"choose another out=, or delete that file if you are sure that your {what} did not change"
        about = f"{path}, which holds the {what} of the run in this folder, cannot be read: {way}"
        return read_settings(path, about) if path.is_file() else {}


class Checkpoints:
    """The checkpoints in a folder, ``step_NNN.pt``, of which the last `keep` good ones are kept.

    `network` is what the run says of its network: checkpoints of another are refused.
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
        require(self.path(step).is_file(), "it is no file")  # a pipe would be waited for
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
    sound = type(step) is int and 0 <= step <= MOST_STEPS and 0 <= elapsed < math.inf and not math.isnan(best)
    require(sound, f"it claims to be of step {step}, {elapsed} seconds old, with a score of {best}")
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
