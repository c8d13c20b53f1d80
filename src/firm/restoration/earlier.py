"""What earlier runs left in a folder: what is done is not done again, and nothing is replaced unasked.

`restore.json` has a row for every finished picture, with a hash of all that its results depend on. A picture that a run
began is also listed in `.firm-restore.json`, until the run ends: results that a killed run left half-written are known
to be its own.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firm._util.files import write_atomically

Row = dict[str, Any]
BEGUN = ".firm-restore.json"
SUFFIXES = (".png", ".npy")  # of results


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
        cls,
        out: Path,
        pictures: Mapping[str, Path],
        settings: Mapping[str, Any],
        inputs: Mapping[str, Sequence[Path]],
        force: bool,
    ) -> Earlier:
        """Compare the results that a run will write with what is in `out`, and note there what the run begins.

        Parameters
        ----------
        out
            The folder of the results.
        pictures
            By the name of their results.
        settings
            All that tells the run from another.
        inputs
            The files whose contents the results of each name depend on.
        force
            Do everything again, and replace what is there.
        """
        reports = [out / "restore.json", *sorted(out.glob("restore.[0-9]*.json"))]  # the others: of a killed run
        rows = {str(row.get("name")): row for file in reports for row in read_rows(file)}
        others = [row for name, row in rows.items() if name not in pictures]
        begun, mine = _begun(out), fingerprint(settings, [])
        done: dict[str, Row] = {}
        clashes: list[tuple[Path, Path, Row]] = []
        asked: Mapping[str, Path] = {} if force else pictures
        for name, path in asked.items():
            row = rows.get(name, {"error": "no row"})
            there = [p for p in _results(out, name, row) if p.exists()]
            if "error" not in row and row.get("run") == fingerprint(settings, inputs[name]):
                if sum(p.stat().st_size > 0 for p in there) == len(row["written"]):  # a crash may leave an empty file
                    done[name] = row
            elif there and begun.get(name) != [mine, str(path)]:
                clashes.append((there[0], path, row))
        if clashes:
            return cls(out, clash=_sentence(clashes))
        replaced = {name: row for name, row in rows.items() if force and name in pictures}
        if reports[1:]:
            write_report(reports[0], [*others, *done.values()])
            for file in reports[1:]:
                file.unlink(missing_ok=True)
        begins = {name: [mine, str(path)] for name, path in pictures.items() if name not in done}
        if begins:
            write_atomically(out / BEGUN, json.dumps({**begun, **begins}))
        return cls(out, done, replaced, others)

    def end(self, names: Sequence[str]) -> None:
        """Note that the run has ended: all that it wrote is in restore.json."""
        left = {name: about for name, about in _begun(self.out).items() if name not in set(names)}
        if left:
            write_atomically(self.out / BEGUN, json.dumps(left))
        else:
            (self.out / BEGUN).unlink(missing_ok=True)

    def remove_replaced(self, now: Row) -> None:
        """Delete what the earlier run of a picture wrote and this one did not: another format, more samples."""
        if now["name"] not in self.replaced or "error" in now:
            return
        place = (self.out / f"{now['name']}_").resolve()
        was, is_now = (
            {Path(str(text)).name for text in row.get("written", [])} for row in (self.replaced[now["name"]], now)
        )
        for name in was - is_now:
            path = place.parent / name
            # A file may say anything: only what is called like a result of this picture, in this folder, is deleted.
            if name.startswith(place.name) and path.suffix in SUFFIXES:
                path.unlink(missing_ok=True)


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


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a restore.json; none if there is no such file, or it is damaged."""
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text())
        if isinstance(found, list):
            return [row for row in found if isinstance(row, dict) and isinstance(row.get("written", []), list)]
    return []


def write_report(path: Path, rows: Sequence[Row]) -> None:
    """Write the rows of a restore.json; if all of them failed, the report of another time is left."""
    if any("error" not in row for row in rows):
        write_atomically(path, json.dumps(rows, indent=1))


def fingerprint(settings: Mapping[str, Any], inputs: Sequence[Path]) -> str:
    """Return a hash of a run's settings and of the contents of files; one that cannot be read counts as empty."""
    text = json.dumps(settings, sort_keys=True, default=str).encode()
    total = hashlib.sha256(hashlib.sha256(text).hexdigest()[:16].encode())
    for path in inputs:
        total.update(str(path.suffix).encode(errors="surrogatepass"))  # parts the files, and tells their kinds
        with (
            suppress(OSError),
            open(path if path.is_file() else os.devnull, "rb") as file,
        ):  # a pipe would be waited for
            while block := file.read(2**20):
                total.update(block)
    return total.hexdigest()[:16]


def _begun(out: Path) -> dict[str, list[str]]:
    with suppress(OSError, ValueError):
        found = json.loads((out / BEGUN).read_text())
        return found if isinstance(found, dict) else {}
    return {}
