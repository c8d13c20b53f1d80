"""Writing files so that a crash leaves the old one or the new one, never half of either."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from firm._util.checks import require


def write_atomically(path: str | Path, data: bytes | str) -> None:
    """Write `data` to `path` through a temporary file beside it: write, fsync, rename. The folder is made if needed."""
    with replacing(path) as file:
        file.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that takes the place of `path` at the end, or is removed if an error comes through.

    It is made exclusively, under a random name, so that nothing that lies in the folder is followed or overwritten.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".firm-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(folders: Iterable[Path]) -> None:
    """Delete what `write_atomically` leaves in these folders when its process is killed; nobody may be writing."""
    for folder in folders:
        for path in folder.glob(".firm-" + 16 * "[0-9a-f]" + ".tmp"):
            path.unlink(missing_ok=True)


def is_full(error: BaseException) -> bool:
    """Tell whether writing failed because the disk, or what the user may have of it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def make_folder(path: str | Path) -> Path:
    """Make a folder and those above it; where a file is in the way, the error says so."""
    path = Path(path)
    there = next(place for place in (path, *path.parents) if place.exists() or place.is_symlink())
    message = f"{there} is a file, not a folder: choose another place for the results"
    require(there.is_dir(), message, NotADirectoryError)
    path.mkdir(parents=True, exist_ok=True)
    return path


def check_file(path: str | Path) -> Path:
    """Return the path of a file that long work is to write: make its folder now, and refuse where it cannot be."""
    path = Path(path)
    require(not path.is_dir(), f"{path} is a folder: name a file in it", IsADirectoryError)
    make_folder(path.parent)
    return path
