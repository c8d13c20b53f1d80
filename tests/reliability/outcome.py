"""What a command leaves in its folder, as far as it must be the same every time."""

from __future__ import annotations

import csv
import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

from PIL import Image

Outcome = dict[str, Any]  # a name, and what must be the same


def trained(out: Path) -> Outcome:
    """Of `firm train`: the weights, to the bit."""
    import safetensors.torch

    weights = safetensors.torch.load((out / "model.safetensors").read_bytes())
    return {key: value.numpy().tobytes() for key, value in weights.items()}


def restored(out: Path) -> Outcome:
    """Of `firm restore`: every file to the bit, and the report but for its times and places."""
    found: Outcome = {str(path.relative_to(out)): _hash(path) for path in _files(out) if path.suffix != ".json"}
    for row in json.loads((out / "restore.json").read_text()):
        written = [str(Path(name).relative_to(out)) for name in row.pop("written")]
        row.pop("seconds")
        found[f"row {row['name']}"] = {**row, "written": written}
    return found


def evaluated(out: Path) -> Outcome:
    """Of `firm evaluate`: the rows and the summary but for times and memory, and the pictures to the bit."""
    found: Outcome = {path.name: _hash(path) for path in _files(out) if path.suffix == ".png"}
    with open(out / "images.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        key = "row " + " ".join(row[name] for name in ("task", "method", "fingerprint", "index"))
        assert key not in found, f"{key} is there twice"
        found[key] = {name: value for name, value in row.items() if name not in ("seconds", "peak_mb")}
    for task, methods in json.loads((out / "results.json").read_text())["summary"].items():
        for method, values in methods.items():
            kept = {name: value for name, value in values.items() if name not in ("seconds", "peak_mb")}
            # Means are taken in the order of the rows, which is another one after a kill: but for the last bits.
            found[f"summary {task} {method}"] = {
                name: round(value, 9) if isinstance(value, float) else value for name, value in kept.items()
            }
    return found


def difference(wanted: Outcome, found: Outcome) -> str:
    """The name of the first thing that is not the same; empty if all is."""
    names = [*wanted, *(name for name in found if name not in wanted)]
    return next((name for name in names if wanted.get(name) != found.get(name)), "")


def broken(out: Path) -> list[str]:
    """Files that are there under their own name, and are not whole."""
    bad = []
    for path in _files(out):
        try:
            if path.suffix == ".png":
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    Image.open(path).load()
            elif path.suffix == ".json":
                json.loads(path.read_text())
        except Exception:
            bad.append(path.name)
    return bad


def _files(out: Path) -> list[Path]:
    """Without temporary ones, and the lock."""
    return sorted(path for path in out.rglob("*") if path.is_file() and not path.name.startswith("."))


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
