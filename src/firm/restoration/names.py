"""What the results of a picture are called: one rule, so that none overwrites another; and names as printed."""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

LONGEST = 200  # bytes of a name: room for _sample_01.png, and for the temporary file's, in the usual 255
ENDINGS = (".png", ".npy", ".json")  # of results: no folder among them may end like that


def result_names(files: Sequence[Path], root: Path) -> list[str]:
    """Names of the results, below the output folder like the pictures below `root`, and different from each other.

    A picture's name without its ending (``a``); where several share it, with the ending (``a_png``); where that is
    taken, where the name is too long or has characters that cannot be printed, with a number made of the file's name
    (``a_png-5f3c81d2``). Names that differ in upper and lower case only count as shared: some disks think so too.
    """
    inside = [PurePosixPath(path.relative_to(root).as_posix()) for path in files]
    plain = [_clean(path.with_suffix("")) for path in inside]
    count = Counter(_key(name) for name, _ in plain)
    names: list[str | None] = [
        name if same and count[_key(name)] == 1 else None for name, same in plain
    ]  # those who have it alone keep it, whatever the others' are
    taken = {_key(name) for name in names if name is not None}
    for i, path in enumerate(inside):
        if names[i] is None:
            names[i] = _free(path, taken)
            taken.add(_key(str(names[i])))
    return [str(name) for name in names]


def _free(path: PurePosixPath, taken: set[str]) -> str:
    """A name for the picture that is not taken. Every try that fails costs a file its place: linear in all."""
    ending = path.suffix.replace(".", "_") if len(path.suffix) < 20 else ""
    name, same = _clean(path.with_suffix(""), ending)
    tries = 0
    while not same or _key(name) in taken:
        digest = hashlib.sha256(f"{path}/{tries}".encode(errors="surrogatepass")).hexdigest()[:8]
        name, _ = _clean(path.with_suffix(""), f"{ending}-{digest}")
        same, tries = True, tries + 1
    return name


def _clean(path: PurePosixPath, ending: str = "") -> tuple[str, bool]:
    """The path with `ending`, printable and short enough for results; and whether that left it as it was."""
    folders = [_printable(part, "_") for part in path.parts[:-1]]
    folders = [part.replace(".", "_") if part.lower().endswith(ENDINGS) else part for part in folders]
    last, ending = _printable(path.name, "_"), _printable(ending, "_")
    last = last.encode()[: LONGEST - len(ending.encode())].decode(errors="ignore") + ending
    same = (*folders, last) == (*path.parts[:-1], path.name + ending)
    return "/".join([*folders, last]), same


def _key(name: str) -> str:
    """Equal for names that some file system takes for the same."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def shown(text: str) -> str:
    """Text with names of files in it, for a terminal: what cannot be printed there is spelled out, ``\\udcff``."""
    return _printable(text, None)


def _printable(text: str, instead: str | None) -> str:
    """Replace line separators, control characters and bytes that are no text, by `instead` or by their numbers."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() if instead is None else instead for c in text
    )
