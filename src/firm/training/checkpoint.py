"""Checkpoints that survive a crash: written aside and renamed, the last few kept, a damaged one passed over.

A checkpoint is what torch.save writes, a zip archive, sealed: the archive's comment holds the SHA-256 of all before it.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from tqdm import tqdm

from firm._util.checks import finite
from firm._util.files import write_atomically
from firm.training.checks import MOST_STEPS

FORMAT = 1
_MARK = b"firm sha256 "
_COMMENT = len(_MARK) + 64  # bytes of the archive's comment
_END = b"PK\x05\x06"  # a zip archive without a comment has its last record, of 22 bytes, begin so
State = dict[str, Any]


class Checkpoints:
    """Those in a folder, ``step_NNN.pt``; the last `keep` good ones are kept."""

    def __init__(self, folder: Path, network: dict[str, Any], keep: int) -> None:
        self.folder, self.network, self.keep = folder, network, keep
        self._bad: set[Path] = set()  # passed over: they do not count among those to keep

    def path(self, step: int) -> Path:
        """The file of a step."""
        return self.folder / f"step_{step:09d}.pt"

    def steps(self) -> list[int]:
        """Of the files that are there, good or not, in order."""
        found = [re.fullmatch(r"step_(\d{9,18})\.pt", path.name) for path in self.folder.glob("step_*.pt")]
        return sorted({int(match[1]) for match in found if match})

    def save(self, state: State) -> Path:
        """Write the state; then remove what is older than it, but for the last good ones."""
        path = self.path(state["step"])
        write_atomically(path, sealed({"format": FORMAT, **state}))
        self._bad.discard(path)
        older = [self.path(step) for step in self.steps() if step < state["step"]]
        good = [p for p in older if p not in self._bad]
        kept = good[len(good) - self.keep + 1 :] if len(good) >= self.keep else good
        for old in older:
            if old not in kept:
                old.unlink(missing_ok=True)
        return path

    def latest(self, take: Callable[[State], None]) -> int | None:
        """Hand the newest good checkpoint to `take`, which refuses by raising; its step, or None. Warns of the bad."""
        for step in reversed(self.steps()):
            try:
                take(self.read(step))
                return step
            except (MemoryError, torch.OutOfMemoryError):
                raise  # says nothing about the file
            except Exception as error:  # torch.load raises many kinds on damaged files
                about = str(error).strip().split("\n")[0]
                warnings.warn(f"{self.path(step)} is passed over: {type(error).__name__}: {about}", stacklevel=2)
                self._bad.add(self.path(step))
        return None

    def read(self, step: int) -> State:
        """The state of a step, undamaged and of this network."""
        path = self.path(step)
        data = path.read_bytes()
        if not seal_holds(data):
            tqdm.write(f"{path} is of an older version, without a digest: it is taken as it is", file=sys.stderr)
        state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        if not isinstance(state, dict) or state.get("format") != FORMAT:
            raise ValueError(f"it is not a checkpoint of format {FORMAT}")
        if _plain(state.get("network")) != _plain(self.network):
            raise ValueError("it is of another network")
        if state.get("step") != step:
            raise ValueError(f"its name does not fit its step, {state.get('step')}")
        return state


def _plain(settings: Any) -> Any:
    """Settings as JSON has them: a list of a YAML file and the tuple that it was written from are the same."""
    return json.loads(json.dumps(settings, default=str))


def sealed(state: State) -> bytes:
    """What torch.save writes, with its digest as the archive's comment; torch.load reads it all the same."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(-2, io.SEEK_END)  # an archive without a comment ends with the comment's length
    buffer.write(_COMMENT.to_bytes(2, "little"))
    digest = hashlib.sha256(buffer.getbuffer()).hexdigest()
    buffer.write(_MARK + digest.encode())
    return buffer.getvalue()


def seal_holds(data: bytes) -> bool:
    """Whether an archive has a digest; ValueError if it is not that of the contents."""
    body, comment = memoryview(data)[:-_COMMENT], data[-_COMMENT:]
    if data[-22:-18] == _END:
        return False
    if comment != _MARK + hashlib.sha256(body).hexdigest().encode():
        raise ValueError("it is damaged: its contents do not have the digest they were saved with, or it was cut short")
    return True


def check_state(state: State, own: State, optimizers: Sequence[Optimizer]) -> None:
    """Raise ValueError if the state read from a checkpoint cannot be that of a run whose state is now `own`."""
    missing = sorted(own.keys() - state.keys())
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")
    step, elapsed, best = state["step"], state["elapsed"], state["best"]
    if type(step) is not int or not 0 <= step <= MOST_STEPS:
        raise ValueError(f"it claims to be of step {step}")
    if not isinstance(elapsed, int | float) or not (math.isfinite(elapsed) and elapsed >= 0):
        raise ValueError(f"it claims to be {elapsed} seconds old")
    if not isinstance(best, int | float) or math.isnan(best):
        raise ValueError(f"its best score is {best}")
    for key in ("net", "average", "balance"):
        if key == "balance" and not state[key]:
            continue
        if _shapes(state[key]) != _shapes(own[key]):
            raise ValueError(f"the tensors of its {key} are not those of this run")
    if not isinstance(state["optimizers"], list) or len(state["optimizers"]) != len(optimizers):
        raise ValueError("its optimizers are not those of this run")
    for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
        _check_optimizer(optimizer, saved)
    broken = [v for key in ("optimizers", "balance") for v in _tensors(state[key]) if not finite(v)]
    for key in ("net", "average"):  # a network may have infinite constants, as a mask, from the beginning
        broken += [v for name, v in state[key].items() if not finite(v) and finite(own[key][name])]
    if broken:
        raise ValueError("it holds numbers that are NaN or infinite")


def _check_optimizer(optimizer: Optimizer, saved: Any) -> None:
    """torch takes over moments of any shape, and fails in the next step."""
    try:
        groups = [len(group["params"]) for group in saved["param_groups"]]
        indices = [i for group in saved["param_groups"] for i in group["params"]]
        moments = dict(saved["state"])
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError("its optimizers are not those of this run") from error
    params = [p for group in optimizer.param_groups for p in group["params"]]
    fits = groups == [len(group["params"]) for group in optimizer.param_groups] and moments.keys() <= set(indices)
    for index, param in zip(indices, params, strict=False):
        fits = fits and all(v.ndim == 0 or v.shape == param.shape for v in _tensors(moments.get(index, {})))
    if not fits:
        raise ValueError("its optimizers are not those of this run")


def _shapes(tensors: Any) -> Any:
    if not isinstance(tensors, dict):
        return None
    return {key: (v.shape, v.dtype) if isinstance(v, Tensor) else None for key, v in tensors.items()}


def _tensors(state: Any) -> Iterator[Tensor]:
    """All tensors of nested dictionaries and lists."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for value in state.values() if isinstance(state, dict) else state:
            yield from _tensors(value)
