"""The folder of an evaluation: what it is for, and which rows it has already. Damage is named, not passed over."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firm._util.custom import code_digest
from firm._util.files import remove_leftovers, write_atomically

if TYPE_CHECKING:
    from firm.evaluation.run import Evaluation

COLUMNS = ("task", "method", "fingerprint", "index", "file", "psnr", "ssim", "lpips", "nfe", "seconds", "peak_mb")
Row = dict[str, Any]


def open_folder(out: Path, evaluation: Evaluation) -> list[Row]:
    """Write what the folder `out` is for, or check that it is for this evaluation; return the rows that it has.

    The rows of a task depend on its settings and, for a task of the user's own, on its file, too. What a killed run
    left half-written is cleared away.
    """
    remove_leftovers([out])
    config: dict[str, Any] = {
        "files": list(evaluation.images.names),
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
    path, table, before = out / "config.json", out / "images.csv", None
    for file in (path, table):
        if file.is_symlink() or (file.exists() and not file.is_file()):  # which leads elsewhere, or would be waited for
            raise ValueError(f"{file} is no plain file: choose another folder, or delete it")
    if table.exists() and table.stat().st_size and not path.exists():
        why = f"{path} is gone, which says what the rows of {table} are of"
        raise ValueError(f"{why}: choose another folder, or delete {out} to start again")
    if path.exists():
        with suppress(ValueError, RecursionError):
            before = json.loads(path.read_bytes())
        if not isinstance(before, dict) or not isinstance(before.get("tasks"), dict):
            raise ValueError(f"{path} is damaged: choose another folder, or delete {out} to start again")
        differing = [key for key in config if before.get(key) != config[key]]
        differing += [name for name in tasks if before["tasks"].get(name, tasks[name]) != tasks[name]]
        if differing:
            what = f"{out} holds another evaluation (different {', '.join(differing)})"
            raise ValueError(f"{what}: choose another folder, or delete it to start again")
        tasks = {**before["tasks"], **tasks}
    write_atomically(path, json.dumps({**config, "tasks": tasks}, indent=1))
    return _read_rows(table, evaluation.images.names)


def _read_rows(table: Path, files: Sequence[str]) -> list[Row]:
    """Read the complete rows of the CSV file; a last line cut short by a crash is removed from it.

    `files` are the names of the images. Of lines that are there twice, the first counts.
    """
    if not table.exists():
        return []
    data, header = table.read_bytes(), ",".join(COLUMNS).encode()
    complete = data[: data.rfind(b"\n") + 1]
    first = complete.partition(b"\n")[0].rstrip(b"\r")
    if first != header if complete else not header.startswith(data.rstrip()):  # the header may have been cut short
        raise ValueError(f"{table} is not a table of an evaluation by this version of firm: choose another folder")
    # Names of files may hold line separators, or bytes that are no text.
    lines = csv.DictReader(io.StringIO(complete.decode(errors="surrogateescape"), newline=""), strict=True)
    rows: dict[tuple[Any, ...], Row] = {}
    try:
        for line in lines:
            row = _row(line, files)
            rows.setdefault((row["task"], row["method"], row["fingerprint"], row["index"]), row)
    except (ValueError, TypeError, csv.Error) as error:
        where = f"{table}: line {lines.line_num} is damaged"
        raise ValueError(
            f"{where}. Delete this line, and its image is computed again; or choose another folder"
        ) from error
    if complete != data:
        write_atomically(table, complete)
    return list(rows.values())


def _row(line: dict[Any, Any], files: Sequence[str]) -> Row:
    """Return one line of the table; ValueError or TypeError where it cannot be of this evaluation."""
    present = [key for key in ("psnr", "ssim", "lpips", "seconds", "peak_mb") if line[key]]  # some are not defined
    numbers = {key: float(line[key]) for key in present}
    index, nfe = int(line["index"]), int(line["nfe"]) if line["nfe"] else None
    words = {key: line[key] for key in ("task", "method", "fingerprint", "file")}
    whole = None not in line and None not in line.values() and {"psnr", "seconds", "peak_mb"} <= numbers.keys()
    valid = not any(map(math.isnan, numbers.values())) and (nfe or 0) >= 0
    here = line["task"] and line["method"] and 0 <= index < len(files) and files[index] == line["file"]
    if not (whole and valid and here):
        raise ValueError("no row of this evaluation")
    return {**words, **numbers, "index": index, "nfe": nfe}
