"""Threads that share a model, and commands that want the same folder."""

from __future__ import annotations

import random
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from commands import Result, begin, firm_command, pictures, tiny_config, tiny_model
from outcome import Outcome, difference, evaluated, restored, trained


def threads(folder: Path, rng: random.Random, count: int = 16) -> Result:
    """Threads that share a model: bit-equal to one alone."""
    import firm
    import firm.data

    model = firm.fast(firm.load("face-128"), "float32")
    task = firm.Task("random-inpainting")
    op, y = task.measure(firm.data.portrait())
    alone = firm.restore(model, op, y, 1, seed=3, sigma=task.sigma).image
    found: list[torch.Tensor] = []

    def restore() -> None:
        found.append(firm.restore(model, op, y, 1, seed=3, sigma=task.sigma).image)

    for _ in range(count // 8):
        threads = [threading.Thread(target=restore) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    wrong = [f"thread {i} differs" for i, x in enumerate(found) if not torch.equal(x, alone)]
    wrong += ["a thread died"] * (count - len(found))
    return count - len(wrong), count, wrong


def two_commands(folder: Path, rng: random.Random, count: int = 4) -> Result:
    """A second command in the folder of one that runs is refused in words, and the first loses nothing.

    Of each command: the second one comes while the first is stopped in the middle; then `count` - 1 times, both start
    at once, and a later one may find the first done.
    """
    model, data = tiny_model(folder / "tiny.safetensors"), pictures(folder / "data", 5, 24, rng)
    config = tiny_config(folder / "training", rng)
    evaluation = ["--data", data, "--size", 16, "--tasks", "denoising", "--steps", 1]
    restoration = ["--task", "denoising", "--sigma", 0.1, "--model", model]
    commands: dict[str, tuple[Callable[[Path], list[object]], Callable[[Path], Outcome]]] = {
        "train": (lambda out: ["train", config, f"out={out}"], trained),
        "evaluate": (lambda out: ["evaluate", model, *evaluation, "--out", out], evaluated),
        "restore": (lambda out: ["restore", data, *restoration, "--out", out], restored),
    }
    wrong: list[str] = []
    for name, (command, outcome) in commands.items():
        whole = folder / f"{name}-whole"
        assert firm_command(*command(whole)).returncode == 0
        for i in range(count):
            out = folder / f"{name}-{i}"
            problem = (_while_stopped if i == 0 else _at_once)(command(out), out)
            problem = problem or difference(outcome(whole), outcome(out))
            if problem:
                wrong.append(f"{name} {i}: {problem}")
            shutil.rmtree(out)
    return 3 * count - len(wrong), 3 * count, wrong


def _while_stopped(command: list[object], out: Path) -> str:
    """What went wrong where the second came while the first was at work."""
    first = begin(command)
    holder = out / ".firm-lock.json"
    while first.poll() is None and not (holder.exists() and holder.stat().st_size):
        time.sleep(0.005)
    first.send_signal(signal.SIGSTOP)
    try:
        second = firm_command(*command)
    finally:
        first.send_signal(signal.SIGCONT)
    told = "".join((second.stdout + second.stderr).replace("│", "").split())
    if second.returncode != 2 or "isinusebyfirm" not in told or "Traceback" in told:
        return f"the second ended with {second.returncode}: {(second.stdout + second.stderr)[-300:]}"
    return f"the first ended with {first.returncode}" if first.wait() else ""


def _at_once(command: list[object], out: Path) -> str:
    """What went wrong where both started together."""
    first, second = begin(command), begin(command)
    codes = sorted([first.wait(), second.wait()])
    return "" if codes in ([0, 0], [0, 2]) else f"they ended with {codes}"
