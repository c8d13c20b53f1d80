"""A disk that fills up while a command writes: one sentence, and the same command goes on when there is room.

The disk is a file system in memory (tmpfs) of a few kilobytes, which root may mount. Elsewhere no file may grow beyond
a few kilobytes (RLIMIT_FSIZE), which fails in the middle of a file too, but not for want of room.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from commands import Result, command_line, environment, pictures, tiny_config, tiny_model
from outcome import Outcome, broken, difference, evaluated, restored, trained


def full_disk(folder: Path, rng: random.Random, count: int = 4) -> Result:
    """Each command, on `count` disks that are too small."""
    model, data = tiny_model(folder / "tiny.safetensors"), pictures(folder / "data", 4, 24, rng)
    config = tiny_config(folder / "training", rng)
    evaluation = ["--data", data, "--size", 16, "--tasks", "denoising", "--steps", 1, "--images", 2]
    restoration = ["--task", "denoising", "--sigma", 0.1, "--model", model, "--samples", 2]
    commands: dict[str, tuple[Callable[[Path], list[object]], Callable[[Path], Outcome]]] = {
        "train": (lambda out: ["train", config, f"out={out}"], trained),
        "evaluate": (lambda out: ["evaluate", model, *evaluation, "--out", out], evaluated),
        "restore": (lambda out: ["restore", data, *restoration, "--out", out], restored),
    }
    print(f"    full disks are {'a tmpfs' if _may_mount(folder) else 'a limit on the size of files'}", flush=True)
    wrong: list[str] = []
    for name, (command, outcome) in commands.items():
        whole = folder / f"{name}-whole"
        assert _run(command(whole)).returncode == 0
        used = _used(whole)
        for i in range(count):
            # The first has no room for anything, the others for some of it.
            kilobytes = 0 if i == 0 else int(rng.uniform(0.1, 0.9) * used / 1024)
            problem = _on_a_small_disk(folder / f"{name}-{i}", kilobytes, command, outcome, outcome(whole))
            if problem:
                wrong.append(f"{name} with {kilobytes} kB of {used // 1024}: {problem}")
    return 3 * count - len(wrong), 3 * count, wrong


def _on_a_small_disk(
    disk: Path, kilobytes: int, command: Callable[[Path], list[object]], outcome: Callable[[Path], Outcome],
    wanted: Outcome,
) -> str:  # fmt: skip
    """Run the command with too little room, then with enough; what went wrong, if anything."""
    out, mounts = disk / "out", _may_mount(disk.parent)
    with _small_disk(disk, kilobytes) if mounts else contextlib.nullcontext(disk.mkdir()):
        done = _run(command(out), None if mounts else 1024 * kilobytes)
        text = done.stdout + done.stderr
        told = "".join(text.replace("│", "").split()).lower()
        if done.returncode in (0, -1) or "traceback" in told:
            return f"it ended with {done.returncode}: {text[-400:]}"
        if not any(word in told for word in ("spaceleft", "noroom", "filetoolarge")) or "samecommand" not in told:
            return f"it does not say what to do: {text[-400:]}"
        # firm restore notes what it has begun, to go on from there; the note is whole JSON, and gone in the end.
        half = broken(out) + [path.name for path in out.rglob(".*") if path.name != ".firm-restore.json"]
        if half:
            return f"it leaves {', '.join(half)}"
        before = sorted(path.name for path in (out / "checkpoints").glob("*.pt"))
        if mounts:
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        done = _run(command(out))
        if done.returncode:
            return f"with room, it ended with {done.returncode}: {(done.stdout + done.stderr)[-400:]}"
        if (out / ".firm-restore.json").exists():
            return "with room, it leaves its note of what it had begun"
        if before and "passed over" in done.stderr:
            return f"its last checkpoint {before[-1]} was no good"
        found = difference(wanted, outcome(out))
    shutil.rmtree(disk, ignore_errors=True)
    return f"with room, another {found}" if found else ""


def _run(command: list[object], largest: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``firm``; no file may grow beyond `largest` bytes."""

    def limit() -> None:
        if largest is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    return subprocess.run(
        command_line(*command), capture_output=True, text=True, timeout=300, env=environment(), preexec_fn=limit
    )


@contextlib.contextmanager
def _small_disk(place: Path, kilobytes: int) -> Iterator[None]:
    """A file system of its own at `place`; 4 kB more than asked for, because 0 is no limit."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes + 4}k", "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def _may_mount(folder: Path) -> bool:
    """Whether this user may make file systems here."""
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    place = folder / "trial"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode == 0:
        subprocess.run(["umount", str(place)], check=True)
    place.rmdir()
    return mounted.returncode == 0


def _used(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
