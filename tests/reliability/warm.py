"""``firm`` in forks of one process that has imported it: a command takes tenths of a second, and is watched.

    python tests/reliability/warm.py        # reads a command a line, as JSON, and answers each with a `Done`
"""

from __future__ import annotations

import json
import os
import pkgutil
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from commands import environment

STARTS = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "socket.connect", "socket.getaddrinfo")
WRITES = os.O_WRONLY | os.O_RDWR
USUAL = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/", sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]))


class Done(NamedTuple):
    """How a command ended."""

    code: int  # negative if it was killed, as for taking too long
    text: str
    seconds: float
    megabytes: float  # at most
    touched: list[str]  # files it opened outside of Python's and firm's own, and programs and connections it began

    @property
    def problem(self) -> str:
        """What no command should do; empty if it ended well, or refused in a sentence."""
        hung = "it did not end; " if self.code < 0 else ""
        strange = "it says no sentence: " if self.code not in (0, 1, 2) or "Traceback" in self.text else ""
        return f"{hung}{strange}{self.text[-300:]}" if hung or strange else ""


class Warm:
    """Runs commands, one after the other."""

    def __enter__(self) -> Warm:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        plain = {**environment(), "COLUMNS": "2000", "NO_COLOR": "1"}
        self.process = subprocess.Popen([sys.executable, __file__], env=plain, **pipes)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.communicate()

    def __call__(self, *arguments: object, seconds: float = 60) -> Done:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps([seconds, *map(str, arguments)]), file=self.process.stdin, flush=True)
        return Done(*json.loads(self.process.stdout.readline()))


def _serve() -> None:
    import firm.cli

    for module in pkgutil.walk_packages(firm.__path__, "firm."):
        if not module.name.startswith(("firm.demo", "firm.__main__")):
            with suppress(ImportError):  # of what is not installed
                import_module(module.name)
    for name in ("h5py", "lpips", "torch.utils.tensorboard"):
        with suppress(ImportError):
            import_module(name)
    for line in sys.stdin:
        seconds, *arguments = json.loads(line)
        with tempfile.TemporaryFile("w+", errors="replace") as text, tempfile.TemporaryFile("w+") as touched:
            start = time.monotonic()
            child = os.fork()
            if child == 0:
                _command(arguments, text.fileno(), touched.fileno())
            ended, code, usage = 0, 0, None
            while not ended:
                time.sleep(0.01)
                ended, code, usage = os.wait4(child, os.WNOHANG)
                if not ended and time.monotonic() > start + seconds:
                    os.killpg(child, signal.SIGKILL)
            spent = time.monotonic() - start
            text.seek(0)
            touched.seek(0)
            words = " ".join(re.sub("[│─╭╮╯╰]", " ", text.read()).split())
            about = [words, spent, usage.ru_maxrss / 1000, touched.read().split("\0")[:-1]]
        print(json.dumps([os.waitstatus_to_exitcode(code), *about]), flush=True)


def _command(arguments: list[str], out: int, touched: int) -> None:
    """Run the command line in this process, which ends with it."""
    from firm.cli import app

    os.setsid()
    os.dup2(out, 1)
    os.dup2(out, 2)

    def note(event: str, about: tuple[Any, ...]) -> None:
        if event in STARTS or (event == "open" and isinstance(about[0], str | bytes)):
            name = os.fsdecode(about[0]) if event == "open" else f"{event} {about[:2]}"
            if not name.startswith(USUAL):
                os.write(touched, f"{name}\0".encode(errors="replace"))

    sys.addaudithook(note)
    sys.argv = ["firm", *arguments]
    code = 0
    try:
        exec(arguments[1], {}) if arguments[0] == "-c" else app()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 3
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve()
