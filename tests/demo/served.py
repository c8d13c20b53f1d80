"""``firm demo`` in a process of its own; for the tests and the measurements."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Served:
    """A page that is being served."""

    url: str
    temporary: Path
    process: int
    seconds: float  # until it was ready

    def cpu_seconds(self) -> float:
        """Of the process so far: on a busy machine it tells more than the clock."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def megabytes(self, what: str = "VmRSS") -> float:
        """Memory of the process now, or (VmHWM) at its peak."""
        text = Path(f"/proc/{self.process}/status").read_text()
        return int(re.search(rf"{what}:\s+(\d+) kB", text)[1]) / 1000


@contextmanager
def demo(temporary: Path, *options: str, command: str = "demo") -> Iterator[Served]:
    """Start the command, wait until it says that it is ready, and end it with Ctrl-C."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "firm", command, "--port", str(port), *options]
    start = time.monotonic()
    with open(temporary / "log.txt", "w") as log:
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "TMPDIR": str(temporary)}
        )
    try:
        line = process.stdout.readline()
        found = re.search(r"ready at (\S+)", line)
        assert found, f"{line}\n{(temporary / 'log.txt').read_text()}"
        yield Served(found[1], temporary, process.pid, time.monotonic() - start)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
        process.stdout.close()
