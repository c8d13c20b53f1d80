"""The pictures that a command line names: files, folders, several of both."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Found:
    """The pictures to restore."""

    files: list[Path]  # each once
    root: Path  # the folder that all of them lie below
    skipped: int = 0  # sub-folders with results of other runs

    def notes(self) -> list[str]:
        """What the user should know of what was left out."""
        if not self.skipped:
            return []
        what = "1 sub-folder" if self.skipped == 1 else f"{self.skipped} sub-folders"
        return [f"skipped {what} with earlier results (restore.json); to restore those, name the folder"]


def find_pictures(named: Sequence[Path], out: Path, aside: Sequence[Path] = ()) -> Found:
    """All pictures (or arrays, of folders without pictures) that are named, or lie below folders that are.

    Results of another time are left out: those below `out`, and sub-folders that hold a restore.json. So are the files
    and sub-folders `aside`, masks and kernels, which are given for the pictures and are none themselves.
    """
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
    asked = {place.resolve() for place in named}
    return Found(list(files.values()), Path(os.path.commonpath(above)), len(skipped - asked))


def _belongs(file: Path, other: Path, place: Path) -> bool:
    """Whether a file, found in the `place` that was named, is the mask or kernel `other`, or lies in its sub-folder."""
    file, other, place = file.resolve(), other.resolve(), place.resolve()
    return file == other or (other in file.parents and place in other.parents)


def _below(folder: Path, out: Path) -> tuple[list[Path], set[Path]]:
    """The pictures of a folder, or its arrays, if it has no pictures; and its sub-folders with results."""
    from firm.data import array_files, folder_files

    if out.resolve() == folder.resolve():
        raise ValueError("--out is the folder of the pictures: choose another, so that nothing is overwritten")
    errors, skipped = [], set[Path]()
    for list_files in (folder_files, array_files):
        try:
            files, results = _without_results(list_files(folder), folder, out)
        except FileNotFoundError as error:
            errors.append(error)
            continue
        skipped |= results
        if files:
            return files, skipped
    if len(errors) == 2:
        raise errors[0]
    return [], skipped  # nothing but results


def _without_results(files: Sequence[Path], folder: Path, out: Path) -> tuple[list[Path], set[Path]]:
    """The files below a folder without those of earlier results, and the sub-folders that hold these."""
    top, results = folder.resolve(), out.resolve()
    holds: dict[Path, bool] = {}  # a restore.json; folders are looked at once
    kept, skipped = list[Path](), set[Path]()
    for file in files:
        above = file.resolve().parents
        if results in above:
            continue  # its own: nothing to say
        below = [place for place in above if top in place.parents]
        for place in below:
            holds.setdefault(place, (place / "restore.json").is_file())
        with_results = [place for place in below if holds[place]]
        if with_results:
            skipped.add(with_results[-1])  # the outermost
        else:
            kept.append(file)
    return kept, skipped
