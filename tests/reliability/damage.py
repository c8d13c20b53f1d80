"""Models and checkpoints that are damaged, and the ways to hurt a file."""

from __future__ import annotations

import json
import random
import shutil
import warnings
from pathlib import Path

from commands import Result, firm_command, tiny_config


def damaged(whole: bytes, kind: str, rng: random.Random) -> bytes:
    """The bytes of a file, hurt."""
    if kind == "cut":
        return whole[: rng.randrange(len(whole))]
    if kind == "foreign":
        return rng.choice([b"", b"PK\x03\x04", rng.randbytes(5000), b"{}", whole[::-1]])
    hurt = bytearray(whole)
    for _ in range(rng.choice([1, 1, 8])):
        hurt[rng.randrange(len(hurt))] ^= 1 << rng.randrange(8)
    return bytes(hurt)


def damaged_model(whole: bytes, kind: str, rng: random.Random) -> bytes:
    """The same for a safetensors file, whose metadata can also be made to lie."""
    if kind != "metadata":
        return damaged(whole, kind, rng)
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    about = json.loads(header["__metadata__"]["firm"])
    key = rng.choice(list(about))
    odd = [None, [], {}, "x", -1, 10**9, 1.5, True, ["a"], {"K": 10**9}, {"blocks": 10**7}, "../../etc/passwd"]
    value = rng.choice(odd)
    if isinstance(about[key], dict) and about[key] and rng.random() < 0.6:
        inner = rng.choice(list(about[key]))
        if about[key][inner] == value or key == "card":
            value = {"card": "lies"}
            about["estimator"] = 7
        else:
            about[key][inner] = value
    elif about[key] == value or key == "card":
        about["solver"] = value if about.get("solver") != value else []
    else:
        about[key] = value
    header["__metadata__"]["firm"] = json.dumps(about)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + whole[8 + length :]


def damaged_files(folder: Path, rng: random.Random, count: int = 200) -> Result:
    """Damaged models and checkpoints: cut short, flipped, foreign, hostile metadata. None may be taken for whole."""
    import firm
    from firm.training.run_folder import Checkpoints

    config = tiny_config(folder, rng, "keep_checkpoints: 2\n")
    run = folder / "run"
    assert firm_command("train", config, f"out={run}").returncode == 0
    about = _network(config)
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


def _network(path: Path) -> dict[str, object]:
    """What checkpoints say of the network of a configuration."""
    from firm.training.config import load_config

    return load_config(path).network_about()
