"""What changes between two runs of a command, or while it runs: the second is refused, or ends as in an empty folder."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from commands import Result, command_line, environment, pictures, tiny_config, tiny_model
from outcome import evaluated, restored, trained
from PIL import Image
from warm import Done, Warm

Case = tuple[str, Callable[[Path], Any], str]  # what, how it is done, and what must come of it; words after it are more
TASK = "from firm.tasks import Task\n\n\nclass Mine(Task('denoising').__class__):\n    sigma = 0.1\n"
LATER = (  # the picture is saved again after it was read
    "from pathlib import Path\nfrom firm.restoration import Problem\nfrom firm.cli import app\nread = Problem.from_file\n"
    "def reading(path, *a, **k):\n    found = read(path, *a, **k)\n    data = path.read_bytes()\n"
    "    path.write_bytes(path.with_name('001.png').read_bytes()) if path.name == '000.png' else None\n    return found\n"
    "Problem.from_file = reading\napp()\n"
)


def cut(path: Path, share: float) -> None:
    """Leave the first part of a file."""
    os.truncate(path, int(share * path.stat().st_size))


def flip(path: Path) -> None:
    """Change a byte in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def say(path: Path, old: str, new: str) -> None:
    """Edit a text."""
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def swap(a: Path, b: Path) -> None:
    """Exchange two files."""
    third = a.rename(a.with_name("third"))
    b.rename(a)
    third.rename(b)


def gray(path: Path, side: int = 24) -> None:
    """Save a picture anew."""
    Image.new("RGB", (side, side), "gray").save(path)


# What must come: "kept" (nothing is computed again), "again", or "refused".
PICTURES: list[Case] = [
    ("edited", lambda f: gray(f / "data/000.png"), "refused"), ("cut short", lambda f: cut(f / "data/000.png", 0.5), "refused"),
    ("emptied", lambda f: cut(f / "data/001.png", 0), "refused"), ("gone", lambda f: (f / "data/001.png").unlink(), "kept"),
    ("one more", lambda f: gray(f / "data/007.png"), "again"), ("saved again", lambda f: (f / "data/000.png").touch(), "kept"),
    ("renamed", lambda f: (f / "data/001.png").rename(f / "data/009.png"), "again"),
    ("exchanged", lambda f: swap(f / "data/000.png", f / "data/001.png"), "refused"),
    ("another format", lambda f: Image.open(f / "data/000.png").save(f / "data/000.png", "JPEG"), "refused"),
    ("another ending", lambda f: (f / "data/000.png").rename(f / "data/000.jpg"), "refused"),
]  # fmt: skip
RESULTS: list[Case] = [
    ("a result gone", lambda f: (f / "out/000_restored.png").unlink(), "again"), ("a comparison gone", lambda f: (f / "out/001_compare.png").unlink(), "again"),
    ("a result emptied", lambda f: cut(f / "out/000_restored.png", 0), "again"), ("a result cut short", lambda f: cut(f / "out/000_restored.png", 0.5), "refused"),
    ("a result edited", lambda f: gray(f / "out/000_restored.png"), "refused"), ("results exchanged", lambda f: swap(f / "out/000_restored.png", f / "out/001_restored.png"), "refused"),
    ("the rows gone", lambda f: (f / "out/restore.json").unlink(), "refused"), ("the rows cut short", lambda f: cut(f / "out/restore.json", 0.5), "refused"),
    ("the rows deep", lambda f: (f / "out/restore.json").write_text("[" * 10**5), "refused"), ("a note of garbage", lambda f: (f / "out/.firm-restore.json").write_text("{{"), "kept"),
    ("a note that lies", lambda f: (f / "out/.firm-restore.json").write_text('{"000": 7, "001": ["x"]}'), "kept"),
    ("other weights", lambda f: swap(f / "tiny.safetensors", f / "other.safetensors"), "refused"), ("weights cut short", lambda f: cut(f / "tiny.safetensors", 0.9), "refused"),
    ("steps", lambda f: ["--steps", 3], "refused"), ("noise", lambda f: ["--sigma", 0.3], "refused"), ("seed", lambda f: ["--seed", 4], "refused"),
    ("format", lambda f: ["--format", "npy"], "refused"), ("forced", lambda f: ["--steps", 3, "--force"], "again"),
]  # fmt: skip
MASKS: list[Case] = [
    ("a mask edited", lambda f: Image.new("L", (24, 24), 255).save(f / "masks/000.png"), "refused"), ("a mask gone", lambda f: (f / "masks/000.png").unlink(), "refused"),
    ("masks exchanged", lambda f: swap(f / "masks/000.png", f / "masks/001.png"), "refused"), ("all is as it was", lambda f: None, "kept"),
]  # fmt: skip
TRAINING: list[Case] = [
    ("a picture more", lambda f: gray(f / "data/077.png"), "refused"), ("a picture less", lambda f: (f / "data/003.png").unlink(), "refused"),
    ("a picture renamed", lambda f: (f / "data/003.png").rename(f / "data/300.png"), "refused"), ("a picture edited", lambda f: gray(f / "data/003.png"), "refused"),
    ("another folder", lambda f: [f"data={pictures(f / 'else', 16, 20, random.Random(9))}"], "refused"), ("the folder moved", lambda f: [f"data={shutil.move(f / 'data', f / 'moved')}"], "again"),
    ("pictures for validation", lambda f: [f"val_data={pictures(f / 'else', 2, 20, random.Random(9))}"], "refused"), ("pictures saved again", lambda f: (f / "data/003.png").touch(), "again"),
    ("lr", lambda f: ["lr=1e-3"], "refused"), ("batch_size", lambda f: ["batch_size=4"], "refused"), ("K", lambda f: say(f / "tiny.yaml", "K: 2", "K: 1"), "refused"),
    ("seed", lambda f: say(f / "tiny.yaml", "seed: 7", "seed: 8"), "refused"), ("network", lambda f: say(f / "tiny.yaml", "ch: 8", "ch: 16"), "refused"),
    ("log_every", lambda f: ["log_every=1"], "again"), ("settings gone", lambda f: (f / "out/config.yaml").unlink(), "again"), ("settings cut short", lambda f: cut(f / "out/config.yaml", 0.5), "refused"),
    ("settings of another", lambda f: say(f / "out/config.yaml", "K: 2", "K: 5"), "refused"), ("the model gone", lambda f: (f / "out/model.safetensors").unlink(), "again"),
    ("the model cut short", lambda f: cut(f / "out/model.safetensors", 0.5), "again"), ("the model edited", lambda f: flip(f / "out/model.safetensors"), "again"),
    ("a checkpoint edited", lambda f: flip(f / "out/checkpoints/step_000000040.pt"), "again"), ("a checkpoint emptied", lambda f: cut(f / "out/checkpoints/step_000000040.pt", 0), "again"),
    ("a checkpoint under another name", lambda f: (f / "out/checkpoints/step_000000040.pt").rename(f / "out/checkpoints/step_000000055.pt"), "again"),
    ("checkpoints exchanged", lambda f: swap(f / "out/checkpoints/step_000000040.pt", f / "out/checkpoints/step_000000020.pt"), "refused"),
    ("all checkpoints cut short", lambda f: [cut(path, 0.5) for path in (f / "out/checkpoints").iterdir()][5:], "refused"), ("the log cut short", lambda f: cut(f / "out/metrics.jsonl", 0.9), "again"),
]  # fmt: skip
EVALUATION: list[Case] = [
    ("edited", lambda f: gray(f / "data/000.png"), "refused"), ("one more", lambda f: gray(f / "data/007.png"), "refused"), ("one less", lambda f: (f / "data/001.png").unlink(), "refused"),
    ("renamed", lambda f: (f / "data/001.png").rename(f / "data/009.png"), "refused"), ("other weights", lambda f: swap(f / "tiny.safetensors", f / "other.safetensors"), "again"),
    ("a row cut short", lambda f: cut(f / "out/images.csv", 0.95), "again"), ("a row edited", lambda f: say(f / "out/images.csv", "001.png", "nan"), "refused"),
    ("the rows gone", lambda f: (f / "out/images.csv").unlink(), "again"), ("the summary gone", lambda f: (f / "out/results.json").unlink(), "again"), ("the summary cut short", lambda f: cut(f / "out/results.json", 0.5), "again"),
    ("settings gone", lambda f: (f / "out/config.json").unlink(), "refused"), ("settings deep", lambda f: (f / "out/config.json").write_text("[" * 10**5), "refused"), ("seed", lambda f: ["--seed", 9], "refused"),
]  # fmt: skip


def changes(folder: Path, rng: random.Random) -> Result:
    """Changes of pictures, masks, weights, settings, results and what is noted of them."""
    place, whole = folder / "place", folder / "whole"
    pictures(place / "data", 3, 24, rng)
    for i in range(3):
        mask = Image.new("L", (24, 24))
        mask.paste(255, (i, 4, i + 9, 9))
        (place / "masks").mkdir(exist_ok=True)
        mask.save(place / "masks" / f"{i:03d}.png")
    tiny_model(place / "tiny.safetensors")
    tiny_model(place / "other.safetensors")
    restore = ["restore", place / "data", "--sigma", 0.1, "--model", place / "tiny.safetensors"]
    evaluate = ["evaluate", place / "tiny.safetensors", "--data", place / "data", "--size", 16, "--tasks", "denoising", "--steps", 1]
    train = ["train", place / "tiny.yaml", "--device", "cpu"]
    kinds: list[tuple[str, list[object], Callable[[Path], dict[str, Any]], list[Case]]] = [
        ("restore", [*restore, "--task", "denoising"], restored, PICTURES + RESULTS),
        ("restore with masks", [*restore, "--task", "inpainting", "--mask", place / "masks"], restored, MASKS),
        ("evaluate", evaluate, evaluated, EVALUATION), ("train", train, trained, TRAINING),
    ]  # fmt: skip
    wrong, count = [], 0
    with Warm() as firm:
        for kind, command, outcome, cases in kinds:
            if kind == "train":
                shutil.rmtree(place / "data")
                tiny_config(place, rng, "keep_checkpoints: 9\n").rename(place / "tiny.yaml")
            to = (lambda out: [f"out={out}"]) if kind == "train" else (lambda out: ["--out", out])
            first = firm(*command, *to(place / "out"))
            assert first.code == 0, first.text
            for step in (45, 50, 55, 60) if kind == "train" else ():  # as if it had been killed
                (place / f"out/checkpoints/step_{step:09d}.pt").unlink()
            shutil.copytree(place, whole)
            for name, change, expected in cases:
                more = change(place)
                before = _times(place / "out")
                done = firm(*command, *to(place / "out"), *(more if isinstance(more, list) else []))
                found = "refused" if done.code == 2 else "kept" if before.items() <= _times(place / "out").items() else "again"
                problem = done.problem or ("" if found == expected else f"{found}, not {expected}: {done.text[-300:]}")
                if found != "refused" and not problem:
                    fresh = firm(*command, *to(place / "fresh"), *(more if isinstance(more, list) else []))
                    wanted, there = outcome(place / "fresh"), outcome(place / "out")
                    problem = next((f"stale: {key}" for key in wanted if there.get(key) != wanted[key]), "") or fresh.problem
                wrong += [f"{kind}, {name}: {problem}"] if problem else []
                shutil.rmtree(place)
                shutil.copytree(whole, place)
            count += len(cases)
            shutil.rmtree(whole)
            shutil.rmtree(place / "out")
    return count - len(wrong), count, wrong


def _times(out: Path) -> dict[Path, int]:
    """When the results were written."""
    return {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.suffix in (".png", ".csv", ".pt")}
