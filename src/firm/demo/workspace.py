"""The files of the page: one temporary folder for uploads, results and examples, removed when the page ends."""

import os
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from firm.data import portrait
from firm.demo.previews import save_preview
from firm.demo.request import Trouble
from firm.tasks import Task

PREFIX = "firm-demo-"
SMALLEST_FILE = 65_536  # bytes that a file counts at least: also the number of files is bounded
MAX_CLIENTS = 1000  # whose uploads are known
Example = tuple[str, str, bool, Trouble]  # file, label, whether it is clean, and what is wrong with it


class Workspace:
    """The temporary folder of this process.

    Folders that killed processes have left behind are removed when the next page starts.

    Parameters
    ----------
    parent
        Where to create the folder; in the system's folder for temporary files if not given.
    megabytes
        How much the visitors' files may take together; the uploads of each visitor a fifth of that. The oldest go.
    """

    def __init__(self, parent: Path | None = None, megabytes: int = 1000) -> None:
        self.room, self.share = megabytes * 1_000_000, megabytes * 200_000
        self._uploads: dict[str, list[Path]] = {}  # of each client
        self._lock = threading.Lock()
        self._lasting: set[Path] = set()  # the page's own files in the cache
        parent = parent or Path(tempfile.gettempdir())
        for path in parent.glob(f"{PREFIX}*"):
            process = path.name.removeprefix(PREFIX).partition("-")[0]
            if process.isdecimal() and _has_ended(int(process)):
                shutil.rmtree(path, ignore_errors=True)
        self.root = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent)).resolve()
        self.cache = self.root / "gradio"  # uploads, and the copies of results that visitors see
        self.cache.mkdir()

    @contextmanager
    def results(self) -> Iterator[Path]:
        """Make a folder for the files of one request and remove it once they have been handed over."""
        with tempfile.TemporaryDirectory(dir=self.root, prefix="request-", ignore_cleanup_errors=True) as name:
            yield Path(name)
        self._remove_oldest(self._visitors_files(), self.room)

    def keep_what_is_there(self) -> None:
        """Never remove the files that are in the cache now: those of the page itself."""
        self._lasting = self._visitors_files()

    def make_room(self, client: str, files: Iterable[str]) -> None:
        """Note what a client has uploaded, and remove the oldest files above its share and above what all may have."""
        with self._lock:
            mine = {Path(file).resolve() for file in files} & self._visitors_files()
            mine.update(self._uploads.pop(client, []))
            self._uploads[client] = self._remove_oldest(mine, self.share)  # as the last one
            for other in list(self._uploads)[:-MAX_CLIENTS]:
                del self._uploads[other]
            self._remove_oldest(self._visitors_files(), self.room)

    def _visitors_files(self) -> set[Path]:
        return {path for path in self.cache.rglob("*") if path.is_file()} - self._lasting

    def _remove_oldest(self, files: Iterable[Path], room: int) -> list[Path]:
        """Remove the oldest files, so that the others take no more than `room` bytes; return the others."""
        found, kept = [], []
        for path in files:
            with suppress(OSError):  # it is gone already
                about = path.stat()
                found.append((about.st_mtime, max(about.st_size, SMALLEST_FILE), path))
        for _, size, path in sorted(found, reverse=True):
            room -= size
            if room >= 0:
                kept.append(path)
                continue
            path.unlink(missing_ok=True)
            if path.parent != self.cache:
                with suppress(OSError):  # other files are in it
                    path.parent.rmdir()
        return kept

    def examples(self) -> list[Example]:
        """Write the bundled portrait, clean and with each kind of trouble; the same pictures every time."""
        x = portrait()
        noisy = Task("denoising").measure(x, seed=1)[1]
        blurred = Task("deblurring", sigma=0.01).measure(x, seed=1)[1]
        small = Task("super-resolution", sigma=0.01, filter="bicubic").measure(x, seed=1)[1]
        op, _ = Task("random-inpainting", missing=0.5).measure(x, seed=1)
        seen = op.A(torch.ones_like(x)) > 0
        pixels = torch.where(seen, x.clamp(min=-0.98), -1.0)  # only missing pixels may be black
        made: dict[str, tuple[torch.Tensor, str, bool, Trouble]] = {
            "portrait": (x, "Clean", True, "noise"), "portrait-noisy": (noisy, "Noisy", False, "fix"),
            "portrait-blurred": (blurred, "Blurred", False, "blur"), "portrait-small": (small, "Small", False, "small"),
            "portrait-scratched": (x, "To paint on", False, "holes"),
            "portrait-pixels": (pixels, "Pixels lost", False, "pixels"),
        }  # fmt: skip
        folder = self.root / "examples"
        folder.mkdir(exist_ok=True)
        return [
            (save_preview(folder / f"{name}.png", image), label, clean, trouble)
            for name, (image, label, clean, trouble) in made.items()
        ]

    def remove(self) -> None:
        """Remove the folder and everything in it."""
        shutil.rmtree(self.root, ignore_errors=True)


def _has_ended(process: int) -> bool:
    """Whether a process is known to run no longer; asking works on POSIX only, elsewhere it would end the process."""
    if os.name != "posix":
        return False
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)  # a process that this user may not ask does run
    return False
