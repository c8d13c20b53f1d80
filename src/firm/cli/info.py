"""``firm models`` and ``firm info``: what there is, and what a file or folder holds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firm._util.checks import require
from firm._util.terminal import printable
from firm.cli.options import Key, MaxMegapixels, model_names, user_errors

if TYPE_CHECKING:
    from rich.table import Table
    from torch import Tensor

Facts = dict[str, Any]


RAW = {".h5": ("mri", "ct"), ".hdf5": ("mri", "ct"), ".cfl": ("mri",), ".mat": ("ct",), ".npz": ("ct",)}  # may be scans


@user_errors()
def models() -> None:
    """List the bundled models and, in a checkout, the baselines' networks: tasks, parameters, data."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.padding import Padding
    from rich.table import Table

    from firm._model import bundled, find
    from firm._model_file import read_facts
    from firm.baselines.weights import FOLDER

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)  # fits 80 columns
    for column in ("name", "for", "parameters", "data"):
        table.add_column(column, justify="right" if column == "parameters" else "left", no_wrap=True)
    terms: dict[str, list[str]] = {}  # whom they concern
    for path in [find(name) for name in bundled()] + sorted(FOLDER.glob("*.safetensors")):
        facts = read_facts(path)
        card = facts["card"]
        trained = card.get("trained_for", [])
        tasks = [_text(trained)] if isinstance(trained, str) else dict.fromkeys(_text(e.get("name")) for e in trained)
        data = re.split(r",| \(", _text(card.get("data", "")))[0]
        purpose = "\n".join(tasks) or _text(card.get("objective", ""))
        table.add_row(*map(escape, (_text(path.stem), purpose, f"{facts['parameters'] / 1e6:.2f} M", data)))
        for said in (_text(card[key]) for key in ("notice", "license") if card.get(key)):
            terms.setdefault(f"{said[:1].upper()}{said[1:].rstrip('.')}.", []).append(_text(path.stem))
    console = Console()
    console.print(table, "")
    for said, names in terms.items():
        console.print(escape(f"{', '.join(names)}:"), Padding(escape(said), (0, 0, 0, 4)))
    console.print("firm info NAME shows everything that is known about one of them.")


@user_errors()
def info(
    what: Annotated[
        str,
        typer.Argument(
            metavar="PICTURE|MODEL|RUN",
            help="A picture, an array or an instrument's file, a model or a baseline's network (name or file), or the "
            "folder of a training run, an evaluation or restored pictures.",
            autocompletion=model_names,
        ),
    ],
    key: Key = None,
    max_megapixels: MaxMegapixels = 64,
) -> None:
    """Show what is known about a picture, a model, or the folder that another command wrote."""
    from rich.console import Console

    from firm._model import find
    from firm._model_file import read_facts
    from firm.cli.models import listed
    from firm.data.array_file import is_array_file

    path = Path(what)
    scan = _scan_facts(path) if key is None and path.exists() else None
    fits = key is None or is_array_file(path)
    require(fits, f"--key names an array in a file that holds several, and {what} is no such file")
    if scan is not None:
        facts = scan
    elif path.is_dir():
        facts = _folder_facts(path)
    elif path.suffix == ".safetensors" or not path.exists():
        facts = read_facts(find(listed(what)))
        if "calibrations" in facts["card"]:
            facts["card"] |= {"calibrations": _calibrations(facts["card"]["calibrations"])}
    else:
        facts = _picture_facts(path, max_megapixels, key)
    Console().print(_table(facts))


def _scan_facts(path: Path) -> Facts | None:
    """What an instrument's file holds, and the task that restores it; None for pictures, arrays and folders."""
    from firm.instruments import scan_for
    from firm.restoration import ProblemError

    for task in RAW.get(path.suffix.lower(), ("denoising",)):
        kind = scan_for(task, path)
        if kind is None:
            continue
        if path.suffix.lower() not in RAW:
            task = "microscopy" if path.suffix.lower() in (".tif", ".tiff", ".zarr") else task
            return {"volume": str(path), "read": kind.open(path).about, "firm restore": f"--task {task}"}
        with suppress(ProblemError):  # an array of something else
            return {"scan": str(path), "read": kind.open(path).about, "firm restore": f"--task {task}"}
    return None


def _calibrations(entries: Any) -> list[str]:
    """One line for each pair of steps and iterations that a model carries scales for: those of its tasks."""
    from firm.restoration.calibration import in_words, parsed

    try:
        found = parsed(entries, "what the card has")
    except ValueError as error:
        return [str(error)]
    return [
        f"N = {c.steps}, K = {c.iterations}, {c.samples} samples: "
        + ", ".join(f"{name} {in_words(task.scale)}" for name, task in c.tasks.items())
        for c in found
    ]


def _picture_facts(path: Path, max_megapixels: float, key: str | None = None) -> Facts:
    """Format, size and depth of a picture, how noisy, blurred and compressed it looks; of an array, what it holds.

    `key` names the array in a file that holds several.
    """
    from firm.data.array_file import is_array_file
    from firm.data.opening import frames, has_alpha, header, is_deep, top
    from firm.restoration.estimates import has_blocks, jpeg_quality
    from firm.restoration.look import look
    from firm.restoration.reading import is_saved_picture, read

    if is_array_file(path) and (key is not None or not is_saved_picture(path)):
        return _array_facts(path, max_megapixels, key)
    image = read(path, max_megapixels=max_megapixels).image
    facts: Facts = {"picture": str(path), "width": image.shape[-1], "height": image.shape[-2]}
    if is_array_file(path):
        return {**facts, "format": "floats in [0, 1], as --format npy writes them", **_seen(image)}
    with header(path) as picture:
        facts |= {"format": picture.format, "mode": picture.mode, "frames": frames(path, picture)[0]}
        if is_deep(picture):
            white = top(picture.mode)
            low, high = (white * (float(end) + 1) / 2 for end in (image.min(), image.max()))
            facts["values"] = f"{low:.6g} to {high:.6g}; black is 0, white {white:g}, or as --value-range says"
        if has_alpha(picture):
            facts["transparency"] = "kept by firm restore"
    quality = jpeg_quality(path)
    if quality is not None:
        facts["compression"] = f"JPEG of quality {quality}"
    elif has_blocks(image):
        facts["compression"] = "was a JPEG once: blocks of 8x8 pixels show"
    facts |= _seen(image)
    with suppress(ValueError):  # too small for a look
        facts["firm restore"] = str(look(path, image))
    return facts


def _seen(image: Tensor) -> Facts:
    """Noise and blur of a picture (1, 3, H, W), as they look."""
    from firm.restoration import estimate_blur
    from firm.restoration.grain import estimate_grain

    facts: Facts = {}
    try:
        sigma = estimate_grain(image).level
        facts["noise"] = f"about {sigma:.3f} for pixels in [-1, 1], {127.5 * sigma:.1f} of 255"
    except ValueError as error:
        facts["noise"] = f"not known: {error}"
    try:
        facts["blur"] = f"{estimate_blur(image)} pixels (standard deviation), what the lens blurred included"
    except ValueError as error:
        facts["blur"] = f"not known: {error}"
    return facts


def _array_facts(path: Path, max_megapixels: float, key: str | None = None) -> Facts:
    """Shape, type and values of an array; of a stack, those of the whole of it."""
    import numpy as np

    from firm.data.array_file import open_array
    from firm.data.arrays import check_size

    with open_array(path, key) as array:
        H, W = (1, 1, *array.shape)[-2:]
        check_size(path, 1, H, W, max_megapixels)
        values = np.abs(array[...]) if array.dtype.kind == "c" else np.asarray(array[...])
        what = "magnitudes" if array.dtype.kind == "c" else "values"
        return {
            "array": str(path), "shape": " x ".join(map(str, array.shape)), "type": str(array.dtype),
            what: f"{float(values.min()):.4g} to {float(values.max()):.4g}, mean {float(values.mean()):.4g}",
        }  # fmt: skip


def _folder_facts(path: Path) -> Facts:
    """Return the facts of a training run, an evaluation or restored pictures, by the files that are there."""
    import yaml

    kinds = {"config.yaml": _run_facts, "config.json": _evaluation_facts, "restore.json": _restored_facts}
    kind = next((kinds[name] for name in kinds if (path / name).is_file()), None)
    if kind is None:
        raise ValueError(f"{path} holds no training run, evaluation or restored pictures ({', '.join(kinds)})")
    try:
        return kind(path)
    except (TypeError, AttributeError, LookupError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: its files are damaged, or of another program ({error})") from error


def _run_facts(path: Path) -> Facts:
    """Return the settings of a training run that matter, the last numbers of its log, and its files."""
    import yaml

    from firm.training.log import read_log

    config, rows = dict(yaml.safe_load((path / "config.yaml").read_text())), read_log(path)[::-1]
    task = "mixture" if config.get("mixture") else "task"  # which has no effect beside a mixture
    keys = ("objective", task, "dataset", "data", "size", "network", "K", "batch_size", "max_minutes")
    steps = sorted(p.stem for p in (path / "checkpoints").glob("step_*.pt"))
    files = sorted(p.name for p in path.glob("*.safetensors"))
    return {
        "training run": str(path), **{key: config[key] for key in keys if config.get(key)},
        "last record": next((row for row in rows if "loss" in row), {}),
        "validation": next((row for row in rows if any("psnr" in key for key in row)), {}),
        "checkpoints": ", ".join(steps) or "none", "models": ", ".join(files) or "none",
    }  # fmt: skip


def _evaluation_facts(path: Path) -> Facts:
    """Return images, tasks and methods of an evaluation, and what its numbers should be read with."""
    config, found = json.loads((path / "config.json").read_bytes()), path / "results.json"
    results = json.loads(found.read_text()) if found.is_file() else {}
    return {
        "evaluation": str(path), "images": len(config["files"]), "tasks": config["tasks"],
        "convention": config.get("convention"), "seed": config.get("seed"),
        "methods": ", ".join(results.get("methods", {})) or "not finished",
        **({"notes": results["notes"]} if results.get("notes") else {}),
    }  # fmt: skip


def _restored_facts(path: Path) -> Facts:
    """Return what `firm restore` did in a folder, by its restore.json."""
    from firm._util.checks import in_both_units
    from firm.restoration.earlier import BEGUN, read_rows

    rows = read_rows(path / "restore.json")
    done = [row for row in rows if "error" not in row]
    facts: Facts = {"restored pictures": str(path), "pictures": len(done), "failed": len(rows) - len(done)}
    for key in ("task", "N", "samples"):
        facts[key] = ", ".join(dict.fromkeys(str(row[key]) for row in done if key in row))
    levels, scores = ([row[key] for row in done if isinstance(row.get(key), int | float)] for key in ("sigma", "psnr"))
    if levels:
        facts["noise"] = in_both_units(min(levels), max(levels))
    if scores:
        facts["mean PSNR"] = f"{sum(scores) / len(scores):.2f} dB"
    if (path / BEGUN).is_file():
        facts["state"] = "not finished: the same command goes on"
    return facts


def _table(facts: Facts) -> Table:
    """Return a table of two columns; what is nested is indented."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in facts.items():
        nested = value if isinstance(value, dict) else {}
        table.add_row(Text(_text(key), "bold"), "" if isinstance(value, dict) else Text(_text(value)))
        for inner, content in nested.items():
            table.add_row(Text(f"  {_text(inner)}"), Text(_text(content)))
    return table


def _text(value: Any) -> str:
    """Return a value as a person reads it: numbers short, and no characters of a file that command a terminal."""
    if isinstance(value, dict):
        return "\n".join(_lines(value))
    if isinstance(value, list) and any(isinstance(v, dict | str) for v in value):
        return "\n".join(_text(v) for v in value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else printable(str(value))


def _lines(nested: Facts, above: str = "") -> Iterator[str]:
    """Yield one line for every innermost set of values, after the names that lead to it."""
    plain = [f"{_text(key)} {_text(value)}" for key, value in nested.items() if not isinstance(value, dict)]
    if plain:
        yield f"{above}: " * bool(above) + ", ".join(plain)
    for key, value in nested.items():
        if isinstance(value, dict):
            yield from _lines(value, f"{above}, {_text(key)}" if above else _text(key))
