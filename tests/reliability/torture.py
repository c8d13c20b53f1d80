"""``make torture``: attack the library on purpose, and count. Under 30 minutes on 2 cores.

    python tests/reliability/torture.py [kills|files|pictures|arguments|operators|sharing ...] [--out torture.json]

Every attack is drawn from a seed, so that a failure can be repeated. Prints a table and what went wrong; ends with 1 if
anything did.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from damage import damaged, damaged_model
from PIL import Image

CONFIG = """
dataset: folder
size: 16
network: {ch: 8, mult: [1, 2], blocks: 1, attention: [], groups: 4, time_scale: 100}
K: 2
batch: 8
epochs: 3
steps_per_epoch: 20
warm_epochs: 1
ema_from_epoch: 1
rate: 2e-3
rate_end: 1e-5
val_images: 2
bf16: false
validate_every: 0
checkpoint_every: 5
log_every: 5
seed: 7
"""
Result = tuple[int, int, list[str]]  # how many held, of how many, what went wrong


def firm_command(*arguments: object, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run ``firm`` as a user does."""
    command = [sys.executable, "-m", "firm", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout, env=environment)


def pictures(folder: Path, count: int, side: int, rng: random.Random) -> Path:
    """Smooth random pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        coarse = np.frombuffer(rng.randbytes(48), np.uint8).reshape(4, 4, 3)
        Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC).save(folder / f"{i:03d}.png")
    return folder


def kills(folder: Path, rng: random.Random, count: int = 40) -> Result:
    """SIGKILL at random moments of training, one in four between the last checkpoint and the model."""
    import safetensors.torch

    data = pictures(folder / "data", 16, 20, rng)
    config = folder / "tiny.yaml"
    config.write_text(CONFIG + f"data: {data}\n")
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
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        if i % 4 == 0:
            command = [sys.executable, "-c", before_model, str(config), f"out={out}"]
            subprocess.run(command, capture_output=True, env=environment, timeout=300)
        else:
            command = [sys.executable, "-m", "firm", "train", str(config), f"out={out}"]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
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


def files(folder: Path, rng: random.Random, count: int = 200) -> Result:
    """Damaged models and checkpoints: cut short, flipped, foreign, hostile metadata. None may be taken for whole."""
    import firm
    from firm.training.checkpoint import Checkpoints

    data = pictures(folder / "data", 16, 20, rng)
    config = folder / "tiny.yaml"
    config.write_text(CONFIG + f"data: {data}\nkeep: 2\n")
    run = folder / "run"
    assert firm_command("train", config, f"out={run}").returncode == 0
    about = firm_config(config)
    model = (run / "model.safetensors").read_bytes()
    saved = sorted((run / "checkpoints").glob("step_*.pt"))
    newest, older = saved[-1].read_bytes(), saved[-2]
    reference = firm.load(run / "model.safetensors")
    wrong = []
    for i in range(count):
        kind = ("cut", "flip", "foreign", "metadata")[i % 4]
        if i % 2 or kind == "metadata":
            target = folder / "model.safetensors"
            target.write_bytes(damaged_model(model, kind, rng))
            try:
                loaded = firm.load(target)
            except (ValueError, OSError):
                continue
            except BaseException as error:
                wrong.append(f"model {i} ({kind}): {type(error).__name__}: {error}")
                continue
            if loaded.fingerprint() != reference.fingerprint() or loaded.card != reference.card:
                wrong.append(f"model {i} ({kind}) was taken for whole")
        else:
            place = folder / "checkpoints"
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            shutil.copy(older, place / older.name)
            (place / saved[-1].name).write_bytes(damaged(newest, kind, rng))
            taken: list[dict[str, object]] = []
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the one that is passed over
                step = Checkpoints(place, about, keep=2).latest(taken.append)
            if step != int(older.stem.split("_")[1]):
                wrong.append(f"checkpoint {i} ({kind}): step {step} was taken")
    return count - len(wrong), count, wrong


def firm_config(path: Path) -> dict[str, object]:
    """What checkpoints say of the network of a configuration."""
    from firm.training.config import load_config

    return load_config(path).network_about()


def fuzzed_pictures(folder: Path, rng: random.Random, count: int = 600) -> Result:
    """Pictures of many formats with damaged bytes and hostile names, restored folder by folder."""
    import firm
    from firm.networks import UNet

    model = folder / "tiny.safetensors"
    net = UNet(3, side=16, ch=8, mult=(1, 2), blocks=1, attention=(), groups=4, noise_level=True)
    card = {"channels": 3, "size": 16, "trained_for": [{"name": "denoising", "sigma": [0.0, 1.0]}]}
    firm.Firm(net, firm.Solver(K=1), card).save(model)
    odd = [
        "[bold]",
        "a b",
        "äöü",
        "x" * 200,
        "line\u2028break",
        "new\nline",
        "'quote\"",
        "-dash",
        "%s{}",
        "a.b.c",
        "CON",
    ]
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
    nonsense = [
        "",
        "-1",
        "0",
        "nan",
        "inf",
        "1e99",
        "abc",
        "[1,2",
        "{}",
        "../x",
        str(folder),
        str(data),
        "a,b",
        "\u2028",
    ]
    commands = {
        "restore": [[str(data / "000.png"), "--simulate", "denoising"], ["--task", "--sigma", "--steps", "--samples",
                    "--scale", "--blur", "--mask", "--model", "--tile", "--seed", "--format", "--filter"]],
        "evaluate": [["degraded", "--data", str(data), "--size", "16", "--tasks", "denoising"], ["--tasks", "--set",
                     "--steps", "--limit", "--size", "--convention", "--mask", "--batch", "--seed", "--methods",
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


def operators(folder: Path, rng: random.Random, count: int = 50) -> Result:
    """Wrong operators, from 16 to 1024 pixels: each must be refused."""
    from firm.operators import Blur, dot_test, from_functions, gaussian_kernel

    blur = Blur(gaussian_kernel(9, 1.5))
    skewed = Blur(torch.rand(5, 5, generator=torch.Generator().manual_seed(0)))
    faults: dict[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]] = {
        "factor 2": (blur.A, lambda y: 2 * blur.A_adjoint(y)),
        "sign": (blur.A, lambda y: -blur.A_adjoint(y)),
        "not transposed": (skewed.A, skewed.A),
        "affine": (lambda x: blur.A(x) + 0.1, blur.A_adjoint),
        "non-linear": (lambda x: blur.A(x).abs(), blur.A_adjoint),
        "NaN": (lambda x: blur.A(x) * float("nan"), blur.A_adjoint),
        "shape": (blur.A, lambda y: blur.A_adjoint(y)[..., :-1]),
        "shifted": (blur.A, lambda y: blur.A_adjoint(y).roll(1, -1)),
        "zero": (blur.A, lambda y: 0 * y),
        "one pixel": (blur.A, lambda y: _one_off(blur.A_adjoint(y))),
    }
    wrong = []
    for i in range(count):
        name, (A, adjoint) = list(faults.items())[i % len(faults)]
        side = (16, 64, 128, 512, 1024)[i // len(faults) % 5]
        torch.manual_seed(rng.randrange(2**31))
        try:
            dot_test(from_functions(A, adjoint), (1, 1, side, side))
        except ValueError:
            continue
        except BaseException as error:
            wrong.append(f"{name} at {side}: {type(error).__name__}: {error}")
            continue
        wrong.append(f"{name} at {side} passed")
    return count - len(wrong), count, wrong


def _one_off(x: torch.Tensor) -> torch.Tensor:
    """The image with its first row doubled."""
    x = x.clone()
    x[..., 0, :] *= 2
    return x


def sharing(folder: Path, rng: random.Random, count: int = 16) -> Result:
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


ATTACKS: dict[str, Callable[[Path, random.Random], Result]] = {
    "kills": kills, "files": files, "pictures": fuzzed_pictures, "arguments": arguments, "operators": operators,
    "sharing": sharing,
}  # fmt: skip


def main(words: list[str]) -> int:
    """Run the attacks that are named, or all."""
    out = Path(words[words.index("--out") + 1]) if "--out" in words else None
    names = [word for word in words if word in ATTACKS] or list(ATTACKS)
    results, failed = {}, False
    for name in names:
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            held, of, wrong = ATTACKS[name](Path(folder), random.Random(0))
        results[name] = {"held": held, "of": of, "seconds": round(time.monotonic() - start), "wrong": wrong}
        failed |= bool(wrong)
        print(f"{name:10s} {held} of {of} held, {results[name]['seconds']} s", flush=True)
        for line in wrong[:10]:
            print(f"    {line[:400]}")
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(results, indent=1))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
