"""The folder of an evaluation: what it is for, and which rows it has already. Damage is named, not passed over."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firm._util.checks import require
from firm._util.custom import code_digest
from firm._util.files import remove_leftovers, write_atomically

if TYPE_CHECKING:
    from firm.evaluation.run import Evaluation

COLUMNS = ("task", "method", "fingerprint", "index", "file", "psnr", "ssim", "lpips", "nfe", "seconds", "peak_mb")
Row = dict[str, Any]


def claim(out: Path, evaluation: Evaluation) -> None:
    """Write what `out` is for, or check that it is for this evaluation; clear away what a killed run left half.

    The rows of a task depend on its settings and, for a task of the user's own, on its file, too.
    """
    remove_leftovers([out])
    config: dict[str, Any] = {
        "files": list(evaluation.files),
        "size": list(evaluation.images.shape),
        "convention": evaluation.convention,
        "seed": evaluation.seed,
        **evaluation.about,
        "pixels": evaluation.images.digest(),
    }
    tasks: dict[str, Any] = {}
    for task in evaluation.tasks:
        tasks[task.name] = {"size": list(task.shape), **task.settings()}
        if code := code_digest(type(task)):
            tasks[task.name]["code"] = code
    path = out / "config.json"
    if path.exists():
        before = read_config(path)
        differing = [key for key in config if before.get(key) != config[key]]
        differing += [name for name in tasks if before["tasks"].get(name, tasks[name]) != tasks[name]]
        require(
            not differing,
            f"{out} holds another evaluation (different {', '.join(differing)}): "
            "choose another folder, or delete it to start again",
        )
        tasks = {**before["tasks"], **tasks}
    write_atomically(path, json.dumps({**config, "tasks": tasks}, indent=1))


def read_config(path: Path) -> dict[str, Any]:
    """Read the config.json of an evaluation."""
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, IsADirectoryError, RecursionError):
        found = None
    require(
        isinstance(found, dict) and isinstance(found.get("tasks"), dict),
        f"{path} is damaged, so there is no telling what {path.parent} is for: "
        "choose another folder, or delete it to start again",
    )
    config: dict[str, Any] = found
    return config


def read_rows(table: Path, files: Sequence[str]) -> list[Row]:
    """Read the complete rows of the CSV file; a last line cut short by a crash is removed from it.

    `files` are the names of the images. Of lines that are there twice, the first counts.
    """
    require(not table.is_dir(), f"{table} is a folder, not a table: choose another folder, --out")
    if not table.exists():
        return []
    data, header = table.read_bytes(), ",".join(COLUMNS).encode()
    complete = data[: data.rfind(b"\n") + 1]
    first = complete.partition(b"\n")[0].rstrip(b"\r") or header[: len(data.rstrip())]
    known = first == header if complete else data.rstrip() == first
    require(known, f"{table} is not a table of an evaluation by this version of firm: choose another folder, --out")
    # Names of files may hold line separators, or bytes that are no text.
    lines = csv.DictReader(io.StringIO(complete.decode(errors="surrogateescape"), newline=""), strict=True)
    rows: dict[tuple[Any, ...], Row] = {}
    try:
        for line in lines:
            row = _row(line, files)
            rows.setdefault((row["task"], row["method"], row["fingerprint"], row["index"]), row)
    except (ValueError, TypeError, csv.Error) as error:
        raise ValueError(
            f"{table}: line {lines.line_num} is damaged. Delete this line, and its image is computed again; "
            "or choose another folder, --out"
        ) from error
    if complete != data:
        write_atomically(table, complete)
    return list(rows.values())


def _row(line: dict[Any, Any], files: Sequence[str]) -> Row:
    """One line of the table, checked."""
    require(None not in line and None not in line.values(), "too many or too few values")
    present = [key for key in ("psnr", "ssim", "lpips", "seconds", "peak_mb") if line[key]]  # some are not defined
    numbers = {key: float(line[key]) for key in present}
    index, nfe = int(line["index"]), int(line["nfe"]) if line["nfe"] else None
    require({"psnr", "seconds", "peak_mb"} <= numbers.keys(), "a number is missing")
    require(not any(map(math.isnan, numbers.values())) and (nfe or 0) >= 0, "a number is not valid")
    here = line["task"] and line["method"] and 0 <= index < len(files) and files[index] == line["file"]
    require(here, "no image of this evaluation")
    words = {key: line[key] for key in ("task", "method", "fingerprint", "file")}
    return {**words, **numbers, "index": index, "nfe": nfe}
