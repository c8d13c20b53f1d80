"""The folder of an evaluation: what it is for, and which rows it has already. Damage is named, not passed over."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firm._util.custom import code_digest
from firm._util.files import remove_leftovers, write_atomically
from firm.tasks import BaseTask

if TYPE_CHECKING:
    from firm.evaluation.run import Evaluation

COLUMNS = ("task", "method", "fingerprint", "index", "file", "psnr", "ssim", "lpips", "nfe", "seconds", "peak_mb")
Row = dict[str, Any]


def claim(out: Path, evaluation: Evaluation) -> None:
    """Write what `out` is for, or check that it is for this evaluation; clear away what a killed run left half."""
    remove_leftovers([out])
    config = {
        "files": list(evaluation.files),
        "size": list(evaluation.images.shape),
        "convention": evaluation.convention,
        "seed": evaluation.seed,
        **evaluation.about,
        "pixels": evaluation.images.digest(),
    }
    tasks = {task.name: _about(task) for task in evaluation.tasks}
    path = out / "config.json"
    if path.exists():
        before = _read_config(path)
        tasks_before = before.pop("tasks")
        before.setdefault("pixels", config["pixels"])  # of an earlier version, which did not look at them
        differing = [key for key in config if before.get(key) != config[key]]
        differing += [name for name in tasks if name in tasks_before and tasks_before[name] != tasks[name]]
        if differing:
            raise ValueError(
                f"{out} holds another evaluation (different {', '.join(differing)}): "
                "choose another folder, or delete it to start again"
            )
        tasks = {**tasks_before, **tasks}
    write_atomically(path, json.dumps({**config, "tasks": tasks}, indent=1))


def _about(task: BaseTask) -> dict[str, Any]:
    """What a task's rows depend on; of a task of the user's own, its file too."""
    code = code_digest(type(task))
    return {"size": list(task.shape), **task.settings(), **({"code": code} if code else {})}


def _read_config(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, IsADirectoryError, RecursionError) as error:
        found = error
    wanted = {"files", "size", "convention", "seed", "tasks"}
    if not isinstance(found, dict) or not wanted <= found.keys() or not isinstance(found["tasks"], dict):
        raise ValueError(
            f"{path} is damaged, so there is no telling what {path.parent} is for: "
            "choose another folder, or delete it to start again"
        )
    return found


def read_rows(table: Path, files: Sequence[str]) -> list[Row]:
    """The complete rows of the CSV file; a last line cut short by a crash is removed from it.

    `files` are the names of the images. Of lines that are there twice, the first counts.
    """
    if table.is_dir():
        raise ValueError(f"{table} is a folder, not a table: choose another folder, --out")
    if not table.exists():
        return []
    data = table.read_bytes()
    complete = data[: data.rfind(b"\n") + 1]
    if not complete and not ",".join(COLUMNS).encode().startswith(data.rstrip()):
        raise ValueError(f"{table} is not a table of an evaluation: choose another folder, --out")
    # Names of files may hold line separators, or bytes that are no text.
    lines = csv.DictReader(io.StringIO(complete.decode(errors="surrogateescape"), newline=""), strict=True)
    try:
        names = lines.fieldnames
    except csv.Error as error:
        raise ValueError(f"{table} is not a table of an evaluation: choose another folder, --out") from error
    if names is not None and tuple(names) != COLUMNS:
        raise ValueError(f"{table} was written by another version of firm: choose another folder, --out")
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
    if None in line or None in line.values():
        raise ValueError("too many or too few values")
    present = [key for key in ("psnr", "ssim", "lpips", "seconds", "peak_mb") if line[key]]  # some are not defined
    numbers = {key: float(line[key]) for key in present}
    index, nfe = int(line["index"]), int(line["nfe"]) if line["nfe"] else None
    if not {"psnr", "seconds", "peak_mb"} <= numbers.keys() or any(map(math.isnan, numbers.values())):
        raise ValueError("a number is missing")
    named = line["task"] and line["method"] and (nfe or 0) >= 0
    if not named or not 0 <= index < len(files) or files[index] != line["file"]:
        raise ValueError("no image of this evaluation")
    words = {key: line[key] for key in ("task", "method", "fingerprint", "file")}
    return {**words, **numbers, "index": index, "nfe": nfe}
