"""Pictures with damaged bytes and hostile names, and arguments that make no sense."""

from __future__ import annotations

import json
import random
import resource
from pathlib import Path

import numpy as np
from commands import Result, firm_command, pictures, tiny_model
from damage import damaged
from PIL import Image


def fuzzed_pictures(folder: Path, rng: random.Random, count: int = 600) -> Result:
    """Pictures of many formats with damaged bytes and hostile names, restored folder by folder."""
    model = tiny_model(folder / "tiny.safetensors")
    odd = ["[bold]", "a b", "äöü", "x" * 200, "line\u2028break", "new\nline", "'quote\"", "-dash", "%s{}", "a.b.c",
           "CON"]  # fmt: skip
    wrong, held = [], 0
    for part in range(count // 100):
        place = folder / f"pictures{part}"
        place.mkdir()
        for i in range(100):
            suffix = rng.choice(["png", "jpg", "gif", "tiff", "bmp", "webp"])
            size = (rng.randrange(1, 48), rng.randrange(1, 48))
            picture = Image.fromarray(np.frombuffer(rng.randbytes(48), np.uint8).reshape(4, 4, 3)).resize(size)
            name = f"{rng.choice(odd) if rng.random() < 0.3 else 'p'}{i // 2 if rng.random() < 0.3 else i}.{suffix}"
            path = place / name
            picture.convert(rng.choice(["RGB", "L", "RGB"])).save(path)
            if rng.random() < 0.5:
                path.write_bytes(damaged(path.read_bytes(), rng.choice(["cut", "flip", "foreign"]), rng))
        names = sorted(p.name for p in place.iterdir())
        out = folder / f"restored{part}"
        done = firm_command("restore", place, "--task", "denoising", "--sigma", 0.1, "--model", model, "--out", out)
        text = done.stdout + done.stderr
        if "Traceback" in text:
            wrong.append(f"folder {part}: {text[-400:]}")
            continue
        report = json.loads((out / "restore.json").read_text())
        told = json.dumps(report)
        for name in names:
            if json.dumps(name)[1:-1] not in told:
                wrong.append(f"folder {part}: nothing is said of {name!r}")
            else:
                held += 1
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    if peak > 1:
        wrong.append(f"a command took {peak:.2f} GB")
    return held, held + len(wrong), wrong


def arguments(folder: Path, rng: random.Random, count: int = 500) -> Result:
    """Random arguments for every command, in this process; whatever is not a clean exit is wrong."""
    from typer.testing import CliRunner

    from firm.cli import app

    data = pictures(folder / "data", 2, 20, rng)
    nonsense = ["", "-1", "0", "nan", "inf", "1e99", "abc", "[1,2", "{}", "../x", str(folder), str(data), "a,b",
                "\u2028"]  # fmt: skip
    commands = {
        "restore": [[str(data / "000.png"), "--simulate", "denoising"], ["--task", "--sigma", "--steps", "--samples",
                    "--scale", "--blur", "--mask", "--model", "--tile", "--seed", "--format", "--filter"]],
        "evaluate": [["degraded", "--data", str(data), "--size", "16", "--tasks", "denoising"], ["--tasks", "--set",
                     "--steps", "--limit", "--size", "--convention", "--mask", "--batch-size", "--seed", "--methods",
                     "--weights", "--dataset", "--value-range", "--network"]],
        "train": [[str(folder / "none.yaml"), "--dry-run"], []],
        "plot": [[str(data)], ["--out"]],
        "info": [[str(data / "000.png")], []],
        "models": [[], []],
        "reproduce": [["portrait"], ["--model", "--steps", "--samples", "--seed"]],
        "bench": [["sample"], ["--steps", "--task", "--precision", "--seconds"]],
    }  # fmt: skip
    keys = ["K", "rho", "network", "task", "mixture", "batch", "size", "rate", "objective", "t_min", "scale", "data"]
    wrong = []
    for i in range(count):
        name = rng.choice(list(commands))
        usual, options = commands[name]
        chosen = [name, *(usual if rng.random() < 0.7 else rng.sample(nonsense, min(2, len(nonsense))))]
        if name in ("reproduce", "bench"):  # would compute for long with good arguments: always a bad one
            chosen += [rng.choice(options), rng.choice(["abc", "-1", "nan", ""])]
        for _ in range(rng.randrange(3)):
            if name == "train":
                chosen.append(f"{rng.choice(keys)}={rng.choice(nonsense)}")
            elif options:
                chosen += [rng.choice(options), rng.choice(nonsense)]
        if name in ("restore", "evaluate"):
            chosen += ["--out", str(folder / f"out{i}")]
        result = CliRunner().invoke(app, chosen)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            wrong.append(f"firm {chosen}: {type(result.exception).__name__}: {result.exception}")
    return count - len(wrong), count, wrong
