"""Pictures and results in object stores: a URL of any kind that fsspec knows stands for a folder, or for a file.

What lies there is copied to this machine, and results are copied back. Local paths never come here.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from firm._util.checks import require
from firm._util.extras import extra
from firm.restoration.earlier import digest

WHAT = "A URL"
TEXT = ".json"  # files that name places


def place(path: Path | str) -> str:
    """Return a path as it is, and a URL that was taken for a path (``s3:/bucket``) with all of its slashes."""
    text = os.fspath(path)
    found = re.match(r"([a-z][a-z0-9+.-]+):/+", text)
    if found is None or os.path.exists(text):
        return text
    scheme = found[1]
    slashes = "///" if scheme in ("file", "local") else "//"
    return f"{scheme}:{slashes}{text[found.end() :]}"


def is_url(path: Path | str) -> bool:
    """Tell whether a path that was given stands for a URL."""
    return "://" in place(path)


@contextmanager
def staged(pictures: Sequence[Path], out: Path, *others: Path | None) -> Iterator[tuple[list[Path], Path, list[Any]]]:
    """Copy what URLs stand for to this machine, and the results back to `out` if that is a URL, also after an error.

    Earlier results are copied here first, so that a run goes on. restore.json names the URLs again.

    Parameters
    ----------
    pictures, out
        Paths and URLs, as the command line has them.
    others
        Further files and folders, such as masks.

    Yields
    ------
    The same, as paths of this machine.
    """
    given = [*pictures, out, *(other for other in others if other is not None)]
    if not any(is_url(path) for path in given):
        yield list(pictures), out, list(others)
        return
    several = "WORLD_SIZE" in os.environ and int(os.environ["WORLD_SIZE"]) > 1
    require(not several, f"{place(out)}: under torchrun every process needs the files: copy them to a shared folder")
    with tempfile.TemporaryDirectory(prefix="firm-") as folder:
        here = _Copies(Path(folder))
        local = [here.fetched(path) for path in pictures]
        rest = [None if other is None else here.fetched(other) for other in others]
        if not is_url(out):
            yield local, out, rest
            return
        results = here.fetched(out, missing=True)
        before = _contents(results)
        try:
            yield local, results, rest
        finally:
            here.send(results, place(out), before)


class _Copies:
    """Copies of URLs in a folder of this machine, and which is which."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.urls: dict[Path, str] = {}

    def fetched(self, path: Path, missing: bool = False) -> Path:
        """Return a local path: the one given, or the copy of what a URL stands for, which may be `missing`."""
        url = place(path)
        if not is_url(path):
            return path
        fs, root = extra("fsspec", WHAT, "cloud").core.url_to_fs(url)
        target = self.folder / str(len(self.urls)) / Path(root).name
        self.urls[target] = url.rstrip("/")
        target.parent.mkdir()
        if fs.isfile(root):
            fs.get_file(root, str(target))
            return target
        target.mkdir()
        found = fs.find(root) if fs.exists(root) else []
        require(found or missing, f"{url}: nothing there", FileNotFoundError)
        for name in found:
            inside = os.path.relpath(name, root)
            require(not inside.startswith(".."), f"{url}: {name} lies elsewhere")
            (target / inside).parent.mkdir(parents=True, exist_ok=True)
            fs.get_file(name, str(target / inside))
        return target

    def send(self, results: Path, url: str, before: dict[Path, str]) -> None:
        """Copy all results that are new or changed to a URL, and remove there what was removed here."""
        fs, root = extra("fsspec", WHAT, "cloud").core.url_to_fs(url)
        now = _contents(results)
        for path, contents in now.items():
            if before.get(path) != contents:
                data = path.read_bytes()
                if path.suffix == TEXT:
                    for copy, source in self.urls.items():
                        data = data.replace(str(copy).encode(), source.encode())
                target = f"{root}/{path.relative_to(results).as_posix()}"
                fs.makedirs(os.path.dirname(target), exist_ok=True)
                fs.pipe_file(target, data)
        for path in before.keys() - now.keys():
            fs.rm_file(f"{root}/{path.relative_to(results).as_posix()}")


def _contents(folder: Path) -> dict[Path, str]:
    return {path: digest(path) for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".tmp")}
