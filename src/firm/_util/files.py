"""Files: written so that a crash leaves the old one or the new one, and one command at a time in a folder.

The lock of a folder is the library filelock's: the operating system frees it with the process, however that ends. Who
holds it is written beside it, for the message.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import secrets
import shutil
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, ParamSpec, TypeVar

from firm._util.checks import require

NAME, HOLDER = ".firm-lock", ".firm-lock.json"
PATIENCE = 0.2  # seconds: another command may have the file in hand for the moment in which it ends

P = ParamSpec("P")
R = TypeVar("R")


def write_atomically(path: str | Path, data: bytes | str) -> None:
    """Write a file so that a crash leaves the old one or the new one, never half of it: write, fsync, rename.

    Parameters
    ----------
    path
        The file; its folder is made if need be. It is written as a temporary file beside it first.
    data
        All of its contents; text is encoded as UTF-8.
    """
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


@contextmanager
def replacing_folder(path: str | Path) -> Iterator[Path]:
    """Yield a new, empty folder that takes the place of the folder `path` at the end, or is removed after an error.

    What an earlier command has written there is deleted only then.
    """
    path = Path(path)
    require(not path.exists() or path.is_dir(), f"{path} is a file, not a folder: move it away", NotADirectoryError)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary, old = (path.with_name(f".firm-{secrets.token_hex(8)}.tmp") for _ in range(2))
    temporary.mkdir()
    try:
        yield temporary
        if path.exists():
            os.replace(path, old)
        try:
            os.replace(temporary, path)
        except OSError:
            if old.exists():
                os.replace(old, path)
            raise
    finally:
        for folder in (temporary, old):
            shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(folders: Iterable[Path]) -> None:
    """Delete what `write_atomically` leaves in these folders when its process is killed; nobody may be writing."""
    for folder in folders:
        for path in folder.glob(".firm-" + 16 * "[0-9a-f]" + ".tmp"):
            if path.is_symlink() or not path.is_dir():  # a folder is not ours
                path.unlink(missing_ok=True)


def is_full(error: BaseException) -> bool:
    """Tell whether writing failed because the disk, or what the user may have of it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _make_folder(path: Path) -> Path:
    """Make a folder and those above it; where a file is in the way, the error says so."""
    there = next(place for place in (path, *path.parents) if place.exists() or place.is_symlink())
    if not there.is_dir():
        raise NotADirectoryError(f"{there} is a file, not a folder: choose another place for the results")
    path.mkdir(parents=True, exist_ok=True)
    return path


def check_file(path: str | Path) -> Path:
    """Return the path of a file that long work is to write: make its folder now, and refuse where it cannot be."""
    path = Path(path)
    require(not path.is_dir(), f"{path} is a folder: name a file in it", IsADirectoryError)
    _make_folder(path.parent)
    return path


class LockedError(OSError):
    """Another command works in the folder; the message says which one."""


@contextmanager
def folder_lock(folder: str | Path | None, command: str | None = None) -> Iterator[None]:
    """Hold a folder for this thread, which may ask for it again; `LockedError` if another command has it.

    Parameters
    ----------
    folder
        Made if need be, and removed again if nothing was written. None locks nothing: of several processes that work
        together, only the main one asks.
    command
        How the holder is called in the message for others; by default the command line of this process.
    """
    if folder is None:
        yield
        return
    from filelock import FileLock, Timeout

    folder = Path(folder)
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    path, holder = _make_folder(folder).resolve() / NAME, folder.resolve() / HOLDER
    if not _may_be_lock(path):
        raise LockedError(f"{path} is no plain, empty file, so it cannot be a lock: move it away, or delete it")
    lock = FileLock(path, is_singleton=True)
    if lock.is_locked:  # by this thread
        yield
        return
    try:
        lock.acquire(timeout=PATIENCE)
    except Timeout:
        wait = "wait until it ends, or choose another folder"
        raise LockedError(f"{folder} is in use by {_who(holder)}: {wait}") from None
    process = os.getpid()
    try:
        _introduce(holder, command)
        yield
    finally:
        if process == os.getpid():  # not in a fork of the holder
            with suppress(OSError):
                holder.unlink(missing_ok=True)
                path.unlink(missing_ok=True)  # still locked, so that nobody can lock a file that is gone
                for place in made:
                    place.rmdir()  # where nothing was written
            lock.release()


def _may_be_lock(path: Path) -> bool:
    """Tell whether filelock may open `path`: it would wait for a pipe, and empty a file of somebody else."""
    if not path.exists():
        return not path.is_symlink()
    status = path.lstat()
    return stat.S_ISREG(status.st_mode) and status.st_size == 0 and status.st_nlink == 1


def locked(folder: Callable[..., str | Path | None]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function: it holds the folder that `folder` finds from the arguments, as in `folder_lock`."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            with folder_lock(folder(*args, **kwargs)):
                return function(*args, **kwargs)

        return run

    return decorate


def _introduce(holder: Path, command: str | None) -> None:
    """Write who holds the lock; where that fails the lock holds all the same."""
    words = [Path(sys.argv[0]).name.replace("__main__.py", "firm"), *sys.argv[1:]] if sys.argv else ["python"]
    about = {
        "command": (command or " ".join(words))[:200], "pid": os.getpid(), "host": socket.gethostname(),
        "since": time.strftime("%F %T", time.gmtime()),
    }  # fmt: skip
    with suppress(OSError):
        holder.unlink(missing_ok=True)  # of a process that was killed, or no file of ours: never followed
        with open(holder, "x") as file:
            json.dump(about, file, indent=1)


def _who(holder: Path) -> str:
    with suppress(OSError, ValueError, KeyError, TypeError):  # not written yet, or damaged
        with open(holder if holder.is_file() else os.devnull) as file:
            about = json.loads(file.read(5000))
        text = f"{about['command']} (process {about['pid']} on {about['host']}, since {about['since']} UTC)"
        return "".join(c if c.isprintable() else "?" for c in text[:500])  # anybody may have written it
    return "another command"
