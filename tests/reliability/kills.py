"""SIGKILL in the middle: training, restoring and evaluating, then the same command again."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from commands import Result, begin, environment, firm_command, pictures, tiny_config, tiny_model
from outcome import Outcome, broken, difference, evaluated, restored


def training(folder: Path, rng: random.Random, count: int = 40) -> Result:
    """SIGKILL at random moments of training, one in four between the last checkpoint and the model."""
    import safetensors.torch

    config = tiny_config(folder, rng)
    start = time.monotonic()
    assert firm_command("train", config, f"out={folder / 'whole'}").returncode == 0
    whole, seconds = (folder / "whole" / "model.safetensors").read_bytes(), time.monotonic() - start
    wanted = safetensors.torch.load(whole)
    before_model = (  # dies when the model is about to be written after the last checkpoint
        "import os, signal, sys; from firm.training.trainer import Trainer; save = Trainer.save\n"
        "def deadly(self, path):\n"
        "    if self.progress >= 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    save(self, path)\n"
        "Trainer.save = deadly\n"
        "from firm.cli import app; sys.argv = ['firm', 'train', *sys.argv[1:]]; app()"
    )
    wrong = []
    for i in range(count):
        out = folder / f"run{i}"
        if i % 4 == 0:
            command = [sys.executable, "-c", before_model, str(config), f"out={out}"]
            subprocess.run(command, capture_output=True, env=environment(), timeout=300)
        else:
            process = begin(["train", config, f"out={out}"])
            time.sleep(rng.uniform(0.4, 1.0) * seconds)
            process.send_signal(signal.SIGKILL)
            process.wait()
        done = firm_command("train", config, f"out={out}")
        model = out / "model.safetensors"
        if done.returncode or not model.is_file():
            wrong.append(f"run {i} did not go on: {done.stderr[-200:]}")
            continue
        found = safetensors.torch.load(model.read_bytes())
        if found.keys() != wanted.keys() or not all(torch.equal(found[k], wanted[k]) for k in wanted):
            wrong.append(f"run {i} ends with another model")
        if list(out.rglob("*.tmp")):
            wrong.append(f"run {i} leaves temporary files")
        shutil.rmtree(out)
    return count - len(wrong), count, wrong


def restoring(folder: Path, rng: random.Random, count: int = 20) -> Result:
    """SIGKILL at random moments of `firm restore` on a folder, with samples."""
    model, data = tiny_model(folder / "tiny.safetensors"), pictures(folder / "data", 5, 24, rng)
    options = ["--task", "denoising", "--sigma", 0.1, "--samples", 3, "--model", model]
    return _series(folder, lambda out: ["restore", data, *options, "--out", out], restored, rng, count)


def evaluating(folder: Path, rng: random.Random, count: int = 20) -> Result:
    """SIGKILL at random moments of `firm evaluate`: what it had is not computed again, and no line is there twice."""
    model, data = tiny_model(folder / "tiny.safetensors"), pictures(folder / "data", 12, 20, rng)
    options = ["--data", data, "--size", 16, "--tasks", "denoising,deblurring", "--steps", "1,2", "--images", 2]
    return _series(folder, lambda out: ["evaluate", model, *options, "--out", out], evaluated, rng, count)


def _series(
    folder: Path, command: Callable[[Path], list[object]], outcome: Callable[[Path], Outcome], rng: random.Random,
    count: int,
) -> Result:  # fmt: skip
    """Kill a command while it works, one run in four twice; then let it end, and compare with one that was not."""
    whole = folder / "whole"
    process = begin(command(whole))
    start = _at_work(process, whole)
    assert process.wait() == 0
    seconds, wanted = time.monotonic() - start, outcome(whole)
    wrong, held = [], 0
    for i in range(count):
        out, before = folder / f"run{i}", len(wrong)
        for _ in range(1 + (i % 4 == 0)):
            process = begin(command(out))
            _at_work(process, out)
            time.sleep(rng.uniform(0, 1) * seconds)
            process.send_signal(signal.SIGKILL)
            process.wait()
            wrong += [f"run {i}, killed, leaves {name} half" for name in broken(out)]
        wrong += [f"run {i} {problem}" for problem in _ending(command(out), out, outcome, wanted)]
        held += len(wrong) == before
        shutil.rmtree(out)
    return held, count, wrong


def _ending(command: list[object], out: Path, outcome: Callable[[Path], Outcome], wanted: Outcome) -> Iterator[str]:
    """What is wrong when the command is given once more."""
    done = firm_command(*command)
    if done.returncode:
        yield f"did not go on: {(done.stdout + done.stderr)[-300:]}"
        return
    found = difference(wanted, outcome(out))
    if found:
        yield f"ends with another {found}"
    left = [path.name for path in out.rglob(".*")]
    if left:
        yield f"leaves {left}"


def _at_work(process: subprocess.Popen[bytes], out: Path) -> float:
    """Wait until a command holds its folder; the time when it does."""
    lock = out / ".firm-lock.json"
    while process.poll() is None:
        with contextlib.suppress(OSError, ValueError):  # not there yet, or half written
            if json.loads(lock.read_text())["pid"] == process.pid:  # and not that of the one killed before
                break
        time.sleep(0.005)
    return time.monotonic()
