"""Where the page keeps uploads and results while it runs: one folder, removed at the end."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "firm-demo-"


class Workspace:
    """A folder of this process. What a process that was killed has left is removed with the next start."""

    def __init__(self, parent: Path | None = None) -> None:
        parent = Path(tempfile.gettempdir()) if parent is None else parent
        _remove_left_over(parent)
        self.root = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))
        self.cache = self.root / "gradio"  # uploads, and the copies of results that visitors see
        self.cache.mkdir()
        atexit.register(self.remove)

    @contextmanager
    def results(self) -> Iterator[Path]:
        """A folder for the files of one request, gone once they have been handed over."""
        with tempfile.TemporaryDirectory(dir=self.root, prefix="request-", ignore_cleanup_errors=True) as name:
            yield Path(name)

    def remove(self) -> None:
        """The folder and all that is in it."""
        shutil.rmtree(self.root, ignore_errors=True)


def _remove_left_over(parent: Path) -> None:
    for path in parent.glob(f"{PREFIX}*"):
        number = path.name.removeprefix(PREFIX).partition("-")[0]
        if number.isdecimal() and not _runs(int(number)):
            shutil.rmtree(path, ignore_errors=True)


def _runs(process: int) -> bool:
    """Whether there is such a process; one that this user may not ask is taken to run."""
    if os.name != "posix":
        return True  # elsewhere, asking would end it
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
