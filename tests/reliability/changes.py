"""What changes between two runs of a command, or while one runs: the second is refused, or ends as in an empty folder.

Where a command goes on, all that it leaves is compared with what the same command writes to another, empty folder.
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

from commands import Result, command_line, environment, pictures, tiny_config, tiny_model, watched
from outcome import Outcome, evaluated, restored, trained
from PIL import Image

# A verb and its words, as in CHANGES; paths are below the folder of the case. `with` adds to the second command.
CASES: dict[tuple[str, str], str] = {
    ("restore", "refused"): """paint data/000.png; cut data/000.png 50; cut data/001.png 0;
        swap data/000.png data/001.png; jpeg data/000.png; rename data/000.png data/000.jpg;
        cut out/000_restored.png 50; paint out/000_restored.png; swap out/000_restored.png out/001_restored.png;
        remove out/restore.json; cut out/restore.json 50; deep out/restore.json;
        swap tiny.safetensors other.safetensors; cut tiny.safetensors 90; with --steps 3; with --sigma 0.3;
        with --seed 4; with --samples 2; with --format npy""",
    ("restore", "goes on"): """remove data/001.png; paint data/007.png; touch data/000.png;
        rename data/001.png data/009.png; remove out/000_restored.png; remove out/001_compare.png;
        cut out/000_restored.png 0; with --steps 3 --force; deep out/.firm-restore.json; deep out/restore.1.json""",
    ("masks", "refused"): "paint masks/000.png; remove masks/000.png; swap masks/000.png masks/001.png",
    ("custom", "refused"): "edit task.py 0.5 0.6; with --set power=2",
    ("custom", "goes on"): "touch task.py",
    ("while", "refused"): "touch data/000.png",
    ("evaluate", "refused"): """paint data/000.png; paint data/007.png; remove data/001.png;
        rename data/001.png data/009.png; edit out/images.csv 001.png nan; remove out/config.json;
        deep out/config.json; with --seed 9""",
    ("evaluate", "goes on"): """swap tiny.safetensors other.safetensors; cut out/images.csv 95;
        remove out/images.csv; remove out/results.json; cut out/results.json 50""",
    ("train", "refused"): """paint data/077.png; remove data/003.png; rename data/003.png data/300.png;
        paint data/003.png; with data=else; with val_data=else; with lr=1e-3; with batch_size=4;
        edit tiny.yaml 'K: 2' 'K: 1'; edit tiny.yaml 'seed: 7' 'seed: 8'; edit tiny.yaml 'ch: 8' 'ch: 16';
        cut out/config.yaml 50; edit out/config.yaml 'K: 2' 'K: 5'; deep out/images.json;
        edit out/images.json 14 15""",
    ("train", "goes on"): """touch data/003.png; with data=same; with log_every=1; remove out/config.yaml;
        remove out/model.safetensors; cut out/model.safetensors 50; flip out/model.safetensors;
        cut out/metrics.jsonl 90; flip out/checkpoints/step_000000040.pt; cut out/checkpoints/step_000000040.pt 0;
        remove out/checkpoints; swap out/checkpoints/step_000000040.pt out/checkpoints/step_000000035.pt;
        rename out/checkpoints/step_000000040.pt out/checkpoints/step_000000055.pt""",
}  # fmt: skip
TASK = """from firm.operators import from_functions
from firm.tasks import BaseTask, Parameter

class Mine(BaseTask):
    power = Parameter(int, "of the factor", 1, low=1, high=4)

    def build(self, values):
        return from_functions(lambda x: 0.5 * x, lambda y: 0.5 * y)
"""
READING = """from firm.cli import app
from firm.restoration import Problem
read = Problem.from_file
def reading(path, *arguments, **settings):
    found = read(path, *arguments, **settings)
    path.write_bytes(path.with_name("001.png").read_bytes())
    return found
Problem.from_file = reading
app()"""  # in which every picture is saved again once it was read


def changes(folder: Path, rng: random.Random) -> Result:
    """Changes of pictures, masks, code, weights, settings, results and what is noted of them; and ranks that differ."""
    place, whole, wrong, count = folder / "place", folder / "whole", list[str](), 3
    masks, data = pictures(place / "masks", 3, 24, rng), pictures(place / "data", 3, 24, rng)
    model, _ = tiny_model(place / "tiny.safetensors"), tiny_model(place / "other.safetensors")
    (place / "task.py").write_text(TASK)
    restore = ["restore", data, "--sigma", 0.1, "--model", model, "--out"]
    evaluation = ["--data", data, "--size", 16, "--tasks", "denoising", "--steps", 1, "--out"]
    kinds: dict[str, tuple[list[object], Callable[[Path], Outcome]]] = {
        "restore": ([*restore, place / "out", "--task", "denoising"], restored),
        "masks": ([*restore, place / "out", "--task", "inpainting", "--mask", masks], restored),
        "custom": ([*restore, place / "out", "--simulate", f"{place / 'task.py'}:Mine"], restored),
        "while": ([*restore, place / "out", "--task", "denoising"], restored),
        "evaluate": (["evaluate", model, *evaluation, place / "out"], evaluated),
        "train": (["train", place / "tiny.yaml", f"out={place / 'out'}", "--device", "cpu"], trained),
    }
    for kind, (command, outcome) in kinds.items():
        if kind == "train":
            shutil.rmtree(data)
            tiny_config(place, rng, "keep_checkpoints: 9\n")
            pictures(place / "else", 16, 20, rng)
            shutil.copytree(data, place / "same")
        watched(*(["-c", READING] if kind == "while" else []), *command)
        for step in (45, 50, 55, 60) if kind == "train" else ():  # as if it had been killed before
            (place / f"out/checkpoints/step_{step:09d}.pt").unlink()
        shutil.copytree(place, whole)
        cases = [(case, expected) for (of, expected), text in CASES.items() if of == kind for case in text.split(";")]
        for case, expected in cases:
            problem = _case(command, place, case, expected, outcome)
            wrong += [f"{kind}, {case.strip()}: {problem}"] if problem else []
            shutil.rmtree(place)
            shutil.copytree(whole, place)
        count += len(cases)
        shutil.rmtree(whole)
        shutil.rmtree(place / "out")
    for words, expected in (("lr=2e-3", "goes on"), ("lr=1e-3", "refused"), (f"data={place / 'else'}", "refused")):
        codes = _ranks([*kinds["train"][0], "epochs=1"], words)
        if codes != [0, 0] if expected == "goes on" else 0 in codes:
            wrong.append(f"ranks, one with {words}: they ended with {codes}")
        shutil.rmtree(place / "out", ignore_errors=True)
    return count - len(wrong), count, wrong


def _case(command: list[object], place: Path, case: str, expected: str, outcome: Callable[[Path], Outcome]) -> str:
    """Make the change and run the command again; what was wrong, if anything."""
    verb, *words = shlex.split(case)
    if verb == "with":
        more = [f"{word.split('=')[0]}={place / word.split('=')[1]}" if "data=" in word else word for word in words]
    else:
        more = []
        VERBS[verb](place / words[0], *words[1:])
    done = watched(*command, *more)
    found = "refused" if done.code else "goes on"
    if done.problem() or found != expected:
        return done.problem() or f"it {found}: {done.text[-300:]}"
    if found == "refused":
        return ""
    elsewhere = [str(word).replace(str(place / "out"), str(place / "fresh")) for word in command]
    fresh = watched(*elsewhere, *more)
    if fresh.code:
        return f"in an empty folder: {fresh.problem() or fresh.text[-300:]}"
    wanted, there = outcome(place / "fresh"), outcome(place / "out")
    return next((f"{name} is stale" for name in wanted if there.get(name) != wanted[name]), "")


def _ranks(command: list[object], words: str) -> list[int]:
    """Train with two processes, of which the second gets other words; how they ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    both = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    processes = [
        subprocess.Popen(
            command_line(*command, *([words] if rank else [])), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**environment(), **both, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]  # fmt: skip
    return [process.wait(timeout=120) for process in processes]


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _swap(path: Path, other: str) -> None:
    beside, third = path.with_name(Path(other).name), path.with_name("third")
    path.rename(third)
    beside.rename(path)
    third.rename(beside)


def _edit(path: Path, old: str, new: str) -> None:
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


VERBS: dict[str, Callable[..., object]] = {
    "paint": lambda path: Image.new("L", (24, 24), 255).save(path),
    "jpeg": lambda path: Image.open(path).convert("RGB").save(path, "JPEG"),
    "cut": lambda path, percent: os.truncate(path, path.stat().st_size * int(percent) // 100),
    "remove": lambda path: shutil.rmtree(path) if path.is_dir() else path.unlink(),
    "rename": lambda path, other: path.rename(path.with_name(Path(other).name)),
    "touch": lambda path: path.touch(),
    "deep": lambda path: path.write_text("[" * 10**5),
    "flip": _flip, "swap": _swap, "edit": _edit,
}  # fmt: skip
