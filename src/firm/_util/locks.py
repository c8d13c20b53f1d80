"""One command at a time in a folder: a second one stops at once and says who is there.

The lock is the file ``.firm-lock`` in the folder. A process that dies leaves it behind; on the same machine the next
command sees that the process is gone and takes the lock over, on another one when the holder, who touches the file
twice a minute, has not done so for ten minutes. Of several that find such a lock, one wins: whoever makes the file
``.firm-lock-TOKEN``, TOKEN being that of the dead lock, is its only heir, and renames this file to ``.firm-lock``.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

from firm._util.files import make_folder

NAME = ".firm-lock"
HEARTBEAT = 30.0  # seconds between two touches of the file
STALE = 600.0  # seconds without one, after which the lock of another machine is taken over

P = ParamSpec("P")
R = TypeVar("R")


class LockedError(OSError):
    """Another command works in the folder."""


@dataclass(frozen=True)
class Holder:
    """Who holds a lock, as the file tells; a damaged file tells nothing but that somebody made it."""

    host: str
    machine: str
    pid: int
    started: str  # of the process: numbers of processes are given again
    command: str
    since: str
    token: str

    def gone(self, path: Path) -> bool:
        """Whether the process has surely ended, or has given no sign of life for too long."""
        if self.machine == _machine() and os.name != "nt":  # os.kill(pid, 0) does something else on Windows
            return not _alive(self.pid, self.started)
        with suppress(FileNotFoundError):
            return _clock(path.parent) - path.stat().st_mtime > STALE
        return False  # just released: look again


_held: dict[Path, tuple[int, int]] = {}  # folders this process has locked: the thread, and how many times
_guard = threading.Lock()


@contextmanager
def folder_lock(folder: str | Path | None, command: str | None = None) -> Iterator[None]:
    """Hold `folder`, made if need be, for this thread, which may ask again; `LockedError` if another command has it.

    None locks nothing: of several processes that work together, only the main one asks.
    """
    if folder is None:
        yield
        return
    folder = Path(folder)
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    make_folder(folder)
    key, me = folder.resolve(), threading.get_ident()
    with _guard:
        thread, depth = _held.get(key, (me, 0))
        if thread != me:
            raise LockedError(f"{folder} is in use by another thread of this process")
        if depth == 0:
            mine = _myself(command)
            _take(key / NAME, mine)
        _held[key] = (me, depth + 1)
    if depth:
        try:
            yield
        finally:
            with _guard:
                _held[key] = (me, depth)
        return
    over = threading.Event()
    threading.Thread(target=_beat, args=(key / NAME, mine.token, over), daemon=True).start()
    try:
        yield
    finally:
        over.set()
        with _guard:
            del _held[key]
        if mine.pid == os.getpid():  # not in a fork of the holder
            _release(key / NAME, mine.token)
            with suppress(OSError):
                for place in made:
                    place.rmdir()  # where nothing was written


def locked(folder: Callable[..., str | Path | None]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function: it holds the folder that `folder` finds from the arguments, as in `folder_lock`."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            with folder_lock(folder(*args, **kwargs)):
                return function(*args, **kwargs)

        return run

    return decorate


def _take(path: Path, mine: Holder) -> None:
    """Make the lock file, or inherit that of a process that is gone."""
    while not _create(path, mine):
        holder = _read(path)
        if holder is None:
            continue  # released meanwhile
        if not holder.gone(path):
            raise LockedError(_sentence(path, holder))
        if _inherit(path, holder, mine):
            return


def _inherit(path: Path, dead: Holder, mine: Holder) -> bool:
    """Take the lock of `dead` over; False if it is another's by now."""
    last, lost = dead, []
    while not _create(claim := path.with_name(f"{NAME}-{last.token}"), mine):
        heir = _read(claim)
        if heir is None:
            return False  # has taken over, or given up
        if not heir.gone(claim):
            raise LockedError(_sentence(path, heir))
        last = heir  # died before it could take over: the next in line is its heir
        lost.append(claim)
    now = _read(path)
    if now is None or now.token != dead.token:  # an earlier heir was quicker; `dead` is what was read before
        claim.unlink(missing_ok=True)
        return False
    os.replace(claim, path)  # only the heir of `dead` may, and that is this process
    for other in lost:
        other.unlink(missing_ok=True)
    return True


def _create(path: Path, mine: Holder) -> bool:
    """Make a file with `mine` in it, unless there is one."""
    try:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    try:
        os.write(file, json.dumps(asdict(mine), indent=1).encode())
    except OSError:  # a full disk
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)
    return True


def _read(path: Path) -> Holder | None:
    """The holder; None if there is no such file."""
    try:
        for _ in range(50):  # the file is there a moment before what is in it
            data, about = path.read_bytes(), path.stat()
            if data:
                break
            time.sleep(0.01)
    except FileNotFoundError:
        return None
    try:
        values = json.loads(data)
        return Holder(**{**values, "pid": int(values["pid"]), "token": str(uuid.UUID(values["token"]))})
    except (ValueError, TypeError, KeyError, AttributeError):  # damaged, or not written yet
        token = hashlib.sha256(data + f"{about.st_ino} {about.st_mtime_ns}".encode()).hexdigest()[:32]
        return Holder("?", "?", 0, "?", "a command", time.strftime("%F %T", time.gmtime(about.st_mtime)), token)


def _release(path: Path, token: str) -> None:
    holder = _read(path)
    if holder is not None and holder.token == token:  # nobody took it over while this process was asleep
        path.unlink(missing_ok=True)


def _beat(path: Path, token: str, over: threading.Event) -> None:
    """Touch the lock until it is over, so that other machines see that its holder lives."""
    while not over.wait(HEARTBEAT):
        with suppress(OSError):
            holder = _read(path)
            if holder is None or holder.token != token:
                return
            os.utime(path)


def _sentence(path: Path, holder: Holder) -> str:
    who = f"{holder.command} (process {holder.pid} on {holder.host}, since {holder.since} UTC)"
    return (
        f"{path.parent} is in use by {who}: wait until it ends, or choose another folder. "
        f"If it does not run any more, delete {path}"
    )


def _myself(command: str | None) -> Holder:
    words = [Path(sys.argv[0]).name.replace("__main__.py", "firm"), *sys.argv[1:]] if sys.argv else ["python"]
    return Holder(
        host=socket.gethostname(), machine=_machine(), pid=os.getpid(), started=_started(os.getpid()) or "",
        command=(command or " ".join(words))[:200], since=time.strftime("%F %T", time.gmtime()),
        token=str(uuid.uuid4()),
    )  # fmt: skip


@functools.cache
def _machine() -> str:
    """Where numbers of processes mean the same: the host since it was started, and the container."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _started(pid: int) -> str | None:
    """When a process started, in ticks of the clock (Linux); "" where the system does not tell, None if it is gone."""
    if not Path("/proc/self/stat").is_file():
        return ""
    try:
        # After the name, which is in brackets and may hold anything: the state, and as the 20th the start.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]  # a zombie has ended


def _alive(pid: int, started: str) -> bool:
    """Whether the process is there, and is the same that started then."""
    now = _started(pid)
    if now != "":
        return now is not None and now == started
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def _clock(folder: Path) -> float:
    """The time as the file system of the folder tells it, whose clock may differ from this machine's."""
    probe = folder / f"{NAME}-clock-{uuid.uuid4()}"
    try:
        probe.touch()
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)
