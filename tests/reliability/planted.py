"""Links, pipes and sockets where a command is about to write: nothing outside of its folder is touched, and it ends."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from commands import Result, pictures, tiny_config, tiny_model, watched

BESIDE = (".firm-lock", ".firm-lock.json", ".firm-0123456789abcdef.tmp")  # what a command has in its folder meanwhile
KINDS: dict[str, Callable[[Path, Path], None]] = {
    "a link to nothing": lambda path, outside: path.symlink_to(outside / "new"),
    "a link to a file": lambda path, outside: path.symlink_to(outside / "kept"),
    "a pipe": lambda path, outside: os.mkfifo(path),
    "a socket": lambda path, outside: os.mknod(path, stat.S_IFSOCK | 0o600),
}


def planted(folder: Path, rng: random.Random) -> Result:
    """Links to nothing and pipes at every place that each command writes to; links to files and sockets at some."""
    model, data = tiny_model(folder / "tiny.safetensors"), pictures(folder / "data", 2, 20, rng)
    config, outside = tiny_config(folder / "training", rng), folder / "outside"
    asked = ["--data", data, "--size", 16, "--tasks", "denoising"]
    training = ["train", config, "epochs=1", "steps_per_epoch=2", "checkpoint_every=1", "warm_start_epochs=0"]
    commands: dict[str, Callable[[Path], list[object]]] = {
        "restore": lambda out: ["restore", data, "--task", "denoising", "--sigma", 0.1, "--model", model, "--out", out],
        "evaluate": lambda out: ["evaluate", model, *asked, "--steps", 1, "--images", 2, "--out", out],
        "train": lambda out: [*training, f"out={out}"],
        "cache": lambda out: [*training, f"out={folder / 'run'}", f"cache={out}"],
        "calibrate": lambda out: ["calibrate", model, *asked, "--samples", 2, "--limit", 2, "--out", out / "c.json"],
    }
    wrong, count = list[str](), 0
    for name, command in commands.items():
        whole = folder / name
        assert watched(*command(whole)).code == 0
        places = [*BESIDE, *(str(path.relative_to(whole)) for path in sorted(whole.rglob("*")) if path.is_file())]
        places += [".firm-restore.json", "restore.1.json"] if name == "restore" else []
        for place, (kind, plant) in itertools.product(places, KINDS.items()):
            if kind in ("a link to a file", "a socket") and places.index(place) % 3:
                continue
            for there in (outside, folder / "run"):
                shutil.rmtree(there, ignore_errors=True)
            outside.mkdir()
            (outside / "kept").write_text("{}")
            before = _state(outside)
            path = folder / f"out{count}" / place
            path.parent.mkdir(parents=True)
            plant(path, outside)
            done = watched(*command(folder / f"out{count}"), seconds=20)
            problem = done.problem() or ("" if _state(outside) == before else "something outside was touched")
            wrong += [f"{name}, {kind} at {place}: {problem}"] if problem else []
            count += 1
    return count - len(wrong), count, wrong


def _state(folder: Path) -> list[tuple[str, str, int]]:
    """Names, contents and times of the files in a folder."""
    return [(path.name, path.read_text(errors="replace"), path.stat().st_mtime_ns) for path in sorted(folder.iterdir())]
