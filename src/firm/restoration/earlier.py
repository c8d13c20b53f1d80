"""What earlier runs left: it is not done again, not replaced unasked, and not taken for pictures to restore.

`restore.json` has a row for every finished picture, with a hash of all that its results depend on. A picture that a run
began is also listed in `.firm-restore.json`, until the run ends: results that a killed run left half-written are known
to be its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from firm._util.checks import counted
from firm._util.files import remove_leftovers, write_atomically
from firm.data.array_file import ARRAY_EXTENSIONS, is_array_file
from firm.data.origin import ENDINGS
from firm.data.sets import EXTENSIONS, files_below

Row = dict[str, Any]
BEGUN = ".firm-restore.json"
SUFFIXES = (*ENDINGS.values(), ".npy")  # of results


@dataclass(frozen=True)
class Earlier:
    """What lies in the folder of the results, compared with what a run will write; make one with `find`."""

    out: Path
    done: dict[str, Row] = field(default_factory=dict)  # by the name of the results
    replaced: dict[str, Row] = field(default_factory=dict)  # what was there, where all is done again
    others: list[Row] = field(default_factory=list)  # rows of pictures that this run does not have
    clash: str = ""  # in words: results of another run that lie where these would go

    @classmethod
    def find(
        cls, out: Path, pictures: Mapping[str, Path], settings: Mapping[str, Any],
        inputs: Mapping[Path, Sequence[Path]], force: bool,
    ) -> Earlier:  # fmt: skip
        """Compare the results that a run will write with what is in `out`, and note there what the run begins.

        Pictures are given by the name of their results; `inputs` are the files whose contents a picture's results
        depend on, where that is not the picture alone. If `clash` says that the run may not replace what is there,
        nothing was changed in `out`. With `force` everything is done again.
        """
        reports = [out / "restore.json", *sorted(out.glob("restore.[0-9]*.json"))]  # the others: of a killed run
        rows = {str(row.get("name")): row for file in reports for row in read_rows(file)}
        others = [row for name, row in rows.items() if name not in pictures]
        begun, mine = _begun(out), fingerprint(settings, [])
        done: dict[str, Row] = {}
        clashes: list[tuple[Path, Path, Row]] = []
        for name, path in pictures.items() if not force else ():
            row = rows.get(name, {"error": "no row"})
            there = {p: digest(p) for p in _results(out, name, row) if p.exists()}
            same = "error" not in row and row.get("run") == fingerprint(settings, inputs.get(path, [path]))
            whole = same and len(there) == len(row["written"]) and all(p.stat().st_size for p in there)
            if whole and list(there.values()) == row.get("digests"):
                done[name] = row
            elif there and (whole or not same) and begun.get(name) != [mine, str(path)]:
                clashes.append((next(iter(there)), path, row | {"changed": same}))  # not what a crash has emptied
        if clashes:
            return cls(out, clash=_sentence(clashes))
        replaced = {name: row for name, row in rows.items() if force and name in pictures}
        if reports[1:]:
            _write_rows(reports[0], [*others, *done.values()])
            for file in reports[1:]:
                file.unlink(missing_ok=True)
        begins = {name: [mine, str(path)] for name, path in pictures.items() if name not in done}
        remove_leftovers({(out / name).parent for name in pictures})
        if begins:
            write_atomically(out / BEGUN, json.dumps({**begun, **begins}))
        return cls(out, done, replaced, others)


class Report:
    """restore.json: one row a picture, written as they finish, so that a run that is killed leaves what it had.

    Of several processes every one writes a file of its own, until `finish` joins them.
    """

    def __init__(self, before: Earlier, rank: int = 0) -> None:
        self.before, self.main = before, rank == 0
        self.path = before.out / ("restore.json" if self.main else f"restore.{rank}.json")
        self.rows = [*before.others, *before.done.values()] if self.main else []
        self.next = 0.0  # when to write again

    def __enter__(self) -> Report:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # interrupted
            self._write()

    def add(self, row: Row) -> None:
        """Add a picture; written at most once a second, and for a small part of the time, however many there are."""
        self.rows.append(row)
        start = time.monotonic()
        if start >= self.next:
            self._write()
            self.next = time.monotonic() + max(1.0, 20 * (time.monotonic() - start))
        if row["name"] in self.before.replaced and "error" not in row:
            _remove_replaced(self.before.out, self.before.replaced[row["name"]], row)

    def finish(self, names: Sequence[str], results: Mapping[str, Row]) -> None:
        """End the run: the main process writes the rows of all its results, by name, and notes that none is left."""
        if not self.main:
            self.path.unlink(missing_ok=True)  # the main process has them
            return
        _write_rows(self.path, [*self.before.others, *(results[name] for name in names)])
        begun, mine = self.before.out / BEGUN, set(names)
        left = {name: about for name, about in _begun(self.before.out).items() if name not in mine}
        if left:
            write_atomically(begun, json.dumps(left))
        else:
            begun.unlink(missing_ok=True)

    def _write(self) -> None:
        with suppress(OSError):  # a full disk may have room again; the last write tells
            _write_rows(self.path, self.rows)


def _remove_replaced(out: Path, was: Row, now: Row) -> None:
    """Delete what the earlier run of a picture wrote and this one did not: another format, more samples."""
    place = (out / f"{now['name']}_").resolve()
    then, today = ({Path(str(text)).name for text in row.get("written", [])} for row in (was, now))
    for name in then - today:
        path = place.parent / name
        # A file may say anything: only what is called like a result of this picture, in this folder, is deleted.
        if name.startswith(place.name) and path.suffix in SUFFIXES:
            path.unlink(missing_ok=True)


def _results(out: Path, name: str, row: Row) -> list[Path]:
    """Return the files that a run wrote, by its row; without one, those that every run writes."""
    if "error" not in row:
        folder = (out / name).parent  # wherever the folder was, and the command was given, at that time
        return [folder / Path(str(p)).name for p in row.get("written", [])]
    return [out / f"{name}_{what}" for what in (*(f"restored{ending}" for ending in SUFFIXES), "compare.png")]


def _sentence(clashes: Sequence[tuple[Path, Path, Row]]) -> str:
    first, path, row = clashes[0]
    more = f", and those of {len(clashes) - 1} more pictures" if len(clashes) > 1 else ""
    made, task = row.get("picture"), str(row.get("task", ""))
    other = f"other settings, or with {task} as it was before an edit" if ":" in task else "other settings"
    why = f"made from {made}" if made and made != str(path) else f"of a run with {other}"
    why = "that was changed after it was written, or one beside it was" if row["changed"] else why
    return (
        f"{first} is a result {why}{more}: nothing was done. Choose another folder with --out, or give --force to "
        "replace what is there"
    )


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a restore.json; none if there is no such file, or it is damaged."""
    found = _read_json(path)
    rows = found if isinstance(found, list) else []
    return [row for row in rows if isinstance(row, dict) and isinstance(row.get("written", []), list)]


def _write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write the rows of a restore.json; if all of them failed, the report of another time is left."""
    if any("error" not in row for row in rows):
        write_atomically(path, json.dumps(rows, indent=1))


def fingerprint(settings: Mapping[str, Any], inputs: Sequence[Path]) -> str:
    """Return a hash of a run's settings and of the contents of files; one that cannot be read counts as empty.

    What was restored is done where the hash of its row in restore.json is that of today's run.
    """
    text = json.dumps(settings, sort_keys=True, default=str).encode()
    total = hashlib.sha256(hashlib.sha256(text).hexdigest()[:16].encode())
    for path in inputs:
        total.update(str(path.suffix).encode(errors="surrogatepass"))  # parts the files, and tells their kinds
        readable = path if path.is_file() else os.devnull  # a pipe would be waited for
        with suppress(OSError), open(readable, "rb") as file:
            while block := file.read(2**20):
                total.update(block)
    return total.hexdigest()[:16]


def digest(path: Path) -> str:
    """Return a hash of the contents of a file."""
    return fingerprint({}, [path])


def _begun(out: Path) -> dict[str, list[str]]:
    found = _read_json(out / BEGUN)
    return found if isinstance(found, dict) else {}


def _read_json(path: Path) -> Any:
    """Return what a file says; None where it is missing, damaged, or no plain file: reading a pipe would wait."""
    with suppress(OSError, ValueError, RecursionError):
        return json.loads(path.read_text()) if path.is_file() else None
    return None


# Pictures among earlier results


def find_pictures(named: Sequence[Path], out: Path, *given: Path | None) -> tuple[list[Path], Path, list[str]]:
    """Find all pictures (or arrays, of folders without pictures) that are named, or lie below folders that are.

    Results of another time are left out: those below `out`, and sub-folders that hold a restore.json. So are the files
    and sub-folders `given` for the pictures, masks and kernels, which are none themselves.

    Returns
    -------
    The files, each once; the folder that all of them lie below; and notes for the user on what was left out.
    """
    aside = [place for place in given if place is not None]
    for place in [*named, *aside]:  # reading what is neither a file nor a folder may wait forever, and works only once
        if place.exists() and not place.is_file() and not place.is_dir():
            kind = "a pipe" if place.is_fifo() else "a socket" if place.is_socket() else "a device"
            raise ValueError(f"{place} is {kind}, not a file: save what comes out of it to a file, and name that")
    files: dict[str, Path] = {}
    skipped: set[Path] = set()
    for place in named:
        found, results = _below(place, out) if place.is_dir() else ([place], set[Path]())
        skipped |= results
        for file in found:
            if not any(_belongs(file, other, place) for other in aside):
                files.setdefault(os.path.abspath(file), file)
    if not files:
        others = [*map(str, aside), "results of earlier runs"]
        raise FileNotFoundError(f"{named[0]}: no pictures in it but {' and '.join(others)}")
    above = [os.path.abspath(place if place.is_dir() else place.parent) for place in named]
    skipped -= {place.resolve() for place in named}
    notes = []
    if skipped:
        what = counted(len(skipped), "sub-folder")
        notes = [f"skipped {what} with earlier results (restore.json); to restore those, name the folder"]
    return list(files.values()), Path(os.path.commonpath(above)), notes


def _belongs(file: Path, other: Path, place: Path) -> bool:
    """Whether a file, found in the `place` that was named, is the mask or kernel `other`, or lies in its sub-folder."""
    file, other, place = file.resolve(), other.resolve(), place.resolve()
    return file == other or (other in file.parents and place in other.parents)


def _below(folder: Path, out: Path) -> tuple[list[Path], set[Path]]:
    """Find the pictures of a folder, or its arrays, if it has no pictures; and its sub-folders with earlier results."""
    top, results = folder.resolve(), out.resolve()
    if results == top:
        raise ValueError("--out is the folder of the pictures: choose another, so that nothing is overwritten")
    has_report = cache(lambda place: (place / "restore.json").is_file())
    kept, skipped = list[Path](), set[Path]()
    files = files_below(folder, EXTENSIONS | ARRAY_EXTENSIONS, "pictures")
    files.sort(key=is_array_file)  # arrays last: they are taken where there are no pictures
    for file in files:
        if kept and is_array_file(file) and not is_array_file(kept[0]):
            break
        above = file.resolve().parents
        with_results = [place for place in above if top in place.parents and has_report(place)]
        if results in above:
            continue  # its own: nothing to say
        if with_results:
            skipped.add(with_results[-1])  # the outermost
        else:
            kept.append(file)
    return kept, skipped
