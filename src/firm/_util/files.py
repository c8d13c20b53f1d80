"""Writing files so that a crash leaves the old one or the new one, never half of either."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from pathlib import Path


def write_atomically(path: str | Path, data: bytes | str) -> None:
    """Write `data` to `path` through a temporary file beside it: write, fsync, rename. Makes the folder if needed."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(folders: Iterable[Path]) -> None:
    """Delete what `write_atomically` leaves in these folders when its process is killed; nobody may be writing."""
    for folder in folders:
        for path in folder.glob(".*.tmp"):
            if re.fullmatch(r"\..+\.\d+\.tmp", path.name):
                path.unlink(missing_ok=True)


def is_full(error: BaseException) -> bool:
    """Whether writing failed because the disk, or what the user may have of it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def make_folder(path: str | Path) -> Path:
    """Make a folder and those above it; where a file is in the way, an error that says so."""
    path = Path(path)
    for place in (path, *path.parents):
        if place.is_dir():
            break
        if place.exists() or place.is_symlink():
            raise NotADirectoryError(f"{place} is a file, not a folder: choose another place for the results")
    path.mkdir(parents=True, exist_ok=True)
    return path


def check_file(path: str | Path) -> Path:
    """A file that is to be written at the end of long work: make its folder, and say now if it cannot be there."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file in it")
    make_folder(path.parent)
    return path
