"""The pictures that a command line names: files, folders, several of both."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def find_pictures(named: Sequence[Path], out: Path) -> tuple[list[Path], Path]:
    """All pictures (or arrays, of folders without pictures), each once, and the folder that all of them lie below.

    Results of another time, below `out`, are left out.
    """
    files: dict[str, Path] = {}
    for place in named:
        for file in _below(place, out) if place.is_dir() else [place]:
            files.setdefault(os.path.abspath(file), file)
    if not files:
        raise FileNotFoundError(f"{named[0]}: no pictures in it but results in --out {out}")
    above = [os.path.abspath(place if place.is_dir() else place.parent) for place in named]
    return list(files.values()), Path(os.path.commonpath(above))


def _below(folder: Path, out: Path) -> list[Path]:
    """The pictures of a folder, or its arrays, if it has no pictures."""
    from firm.data import array_files, folder_files

    if out.resolve() == folder.resolve():
        raise ValueError("--out is the folder of the pictures: choose another, so that nothing is overwritten")
    try:
        files = folder_files(folder)
    except FileNotFoundError as error:
        try:
            files = array_files(folder)
        except FileNotFoundError:
            raise error from None
    return [file for file in files if out.resolve() not in file.resolve().parents]
