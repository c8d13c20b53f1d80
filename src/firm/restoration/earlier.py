"""What earlier runs left in a folder: what is done is not done again, and nothing is replaced unasked.

`restore.json` has a row for every finished picture, with a hash of all that its results depend on. A picture that a run
began is also listed in `.firm-restore.json`, until the run ends: results that a killed run left half-written are known
to be its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firm._util.files import write_atomically

Row = dict[str, Any]
BEGUN = ".firm-restore.json"
SUFFIXES = (".png", ".npy")  # of results


class EarlierResultsError(ValueError):
    """Results of another run lie where these would go; the message says which, and what to do."""


@dataclass(frozen=True)
class Plan:
    """What is left to do in a folder."""

    done: dict[str, Row] = field(default_factory=dict)  # by the name of the results
    replaced: dict[str, Row] = field(default_factory=dict)  # what was there, where all is done again
    others: list[Row] = field(default_factory=list)  # rows of pictures that this run does not have


def plan(
    out: Path, pictures: Mapping[str, Path], settings: str, inputs: Mapping[str, Sequence[Path]], force: bool
) -> Plan:
    """Compare the results that a run will write with what is in `out`.

    Parameters
    ----------
    out
        The folder of the results.
    pictures
        By the name of their results.
    settings
        A hash of the run's settings.
    inputs
        The files whose contents the results of each name depend on.
    force
        Do everything again, and replace what is there.

    Raises
    ------
    EarlierResultsError
        Results of another run lie where these would go.
    """
    rows = {str(row.get("name")): row for file in reports(out) for row in read_rows(file)}
    others = [row for name, row in rows.items() if name not in pictures]
    if force:
        return Plan(replaced={name: row for name, row in rows.items() if name in pictures}, others=others)
    begun, done, clashes = _begun(out), {}, []
    for name, path in pictures.items():
        row = rows.get(name, {"error": "no row"})
        there = [p for p in _results(out, name, row) if p.exists()]
        if "error" not in row and row.get("run") == fingerprint(settings, inputs[name]):
            if sum(p.stat().st_size > 0 for p in there) == len(row["written"]):  # a crash may leave an empty file
                done[name] = row
        elif there and begun.get(name) != [settings, str(path)]:
            clashes.append((there[0], path, row))
    if clashes:
        raise EarlierResultsError(_sentence(clashes))
    return Plan(done, others=others)


def _results(out: Path, name: str, row: Row) -> list[Path]:
    """The files that a run wrote, by its row; without one, those that every run writes."""
    if "error" not in row:
        folder = (out / name).parent  # wherever the folder was, and the command was given, at that time
        return [folder / Path(str(p)).name for p in row.get("written", [])]
    return [out / f"{name}_{what}" for what in ("restored.png", "restored.npy", "compare.png")]


def _sentence(clashes: Sequence[tuple[Path, Path, Row]]) -> str:
    first, path, row = clashes[0]
    more = f", and those of {len(clashes) - 1} more pictures" if len(clashes) > 1 else ""
    made, task = row.get("picture"), str(row.get("task", ""))
    other = f"other settings, or with {task} as it was before an edit" if ":" in task else "other settings"
    why = f"made from {made}" if made and made != str(path) else f"of a run with {other}"
    return (
        f"{first} is a result {why}{more}: nothing was done. Choose another folder with --out, or give --force to "
        "replace what is there"
    )


def reports(out: Path) -> list[Path]:
    """restore.json, and those that the other processes of a run left when it was killed."""
    return [out / "restore.json", *sorted(out.glob("restore.[0-9]*.json"))]


def read_rows(path: Path) -> list[Row]:
    """The rows of a restore.json; none if there is no such file, or it is damaged."""
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text())
        if isinstance(found, list):
            return [row for row in found if isinstance(row, dict) and isinstance(row.get("written", []), list)]
    return []


def fingerprint(settings: str, inputs: Sequence[Path]) -> str:
    """A hash of the settings and of the contents of files; one that cannot be read counts as empty."""
    total = hashlib.sha256(settings.encode())
    for path in inputs:
        total.update(str(path.suffix).encode(errors="surrogatepass"))  # parts the files, and tells their kinds
        with suppress(OSError), open(path, "rb") as file:
            while block := file.read(2**20):
                total.update(block)
    return total.hexdigest()[:16]


def hashed(settings: Mapping[str, Any]) -> str:
    """A hash of a run's settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:16]


def remove_replaced(out: Path, before: Row, now: Row) -> None:
    """Delete what the earlier run of a picture wrote and this one did not: another format, more samples."""
    if "error" in now:
        return
    place = (out / f"{now['name']}_").resolve()
    was, is_now = ({Path(str(text)).name for text in row.get("written", [])} for row in (before, now))
    for name in was - is_now:
        path = place.parent / name
        # A file may say anything: only what is called like a result of this picture, in this folder, is deleted.
        if name.startswith(place.name) and path.suffix in SUFFIXES:
            path.unlink(missing_ok=True)


def begin(out: Path, pictures: Mapping[str, Path], settings: str) -> None:
    """Note which pictures a run is about to restore."""
    if pictures:
        _write_begun(out, {**_begun(out), **{name: [settings, str(path)] for name, path in pictures.items()}})


def end(out: Path, names: Sequence[str]) -> None:
    """The run has ended: all that it wrote is in restore.json."""
    _write_begun(out, {name: about for name, about in _begun(out).items() if name not in set(names)})


def _begun(out: Path) -> dict[str, list[str]]:
    with suppress(OSError, ValueError):
        found = json.loads((out / BEGUN).read_text())
        return found if isinstance(found, dict) else {}
    return {}


def _write_begun(out: Path, begun: dict[str, list[str]]) -> None:
    if begun:
        write_atomically(out / BEGUN, json.dumps(begun))
    else:
        (out / BEGUN).unlink(missing_ok=True)
