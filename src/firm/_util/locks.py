"""One command at a time in a folder: a second one stops at once and says who is there.

The lock is the library filelock's: the operating system frees it with the process, however that ends. Who holds it is
written beside it, for the message.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

from firm._util.checks import require
from firm._util.files import make_folder

NAME, HOLDER = ".firm-lock", ".firm-lock.json"
PATIENCE = 0.2  # seconds: another command may have the file in hand for the moment in which it ends

P = ParamSpec("P")
R = TypeVar("R")


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
    path, holder = make_folder(folder).resolve() / NAME, folder.resolve() / HOLDER
    plain = path.is_file() or not path.exists()
    require(plain and not path.is_symlink(), f"{path} is no plain file, so it cannot be a lock: delete it", LockedError)
    lock = FileLock(path, is_singleton=True)
    if lock.is_locked:  # by this thread
        yield
        return
    try:
        lock.acquire(timeout=PATIENCE)
    except Timeout:
        raise LockedError(
            f"{folder} is in use by {_who(holder)}: wait until it ends, or choose another folder"
        ) from None
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
        about = json.loads(holder.read_text() if holder.is_file() else "")
        return f"{about['command']} (process {about['pid']} on {about['host']}, since {about['since']} UTC)"
    return "another command"
