"""What a person at a terminal meets: bars of progress, and Ctrl-C, which ends in the word "stopped" and exit code 130.

Ctrl-C works so while the library is still being loaded, too: this module is imported first of all, and imports little.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm

CODE = 130  # what shells report for a program that SIGINT ended
EVERY = 120.0  # seconds between two signs of life in a log
_waiting = False


def progress_bar(work: Any = None, *, shown: bool = True, **options: Any) -> tqdm[Any]:
    """Return tqdm's bar; in a log it moves every two minutes.

    Parameters
    ----------
    work
        What it counts while this is iterated over; None where the caller moves it with ``update``.
    shown
        False hides it.
    options
        Of tqdm, such as ``total`` and ``desc``. Where the bar may be seen, ``disable`` is not passed on: what the
        caller says would overrule TQDM_DISABLE=1.
    """
    from tqdm import tqdm

    how: dict[str, Any] = {} if shown else {"disable": True}
    if not on_terminal():
        how |= {"delay": EVERY, "mininterval": EVERY, "maxinterval": EVERY}
    return tqdm(work, **{**options, **how})


def on_terminal() -> bool:
    """Tell whether somebody may look at stderr; a notebook's stream does not call itself a terminal."""
    return sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)


def printable(text: str) -> str:
    """Spell out what could command a terminal in text of unknown origin, such as names of files: ``\\x1b[2J``.

    Lines stay lines. Bytes that are no text, and signs that turn the direction of writing, are spelled out too.
    """
    spelled = (c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
    return text if text.isprintable() else "".join(spelled)


def loaded() -> None:
    """Make SIGINT a KeyboardInterrupt again, so that what a command has begun is put in order."""
    global _waiting
    if _waiting:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _waiting = False


def say_stopped() -> None:
    """Say on stderr that the command was stopped; a second SIGINT, while the process ends, needs no words."""
    if _is_command_line():
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    print("stopped", file=sys.stderr, flush=True)


def _is_command_line() -> bool:
    """Tell whether this process is the command `firm` or ``python -m firm``, and no program that uses the library."""
    words = iter(sys.orig_argv[1:])
    for word in words:
        if word == "-m":
            return next(words, "") == "firm"
        if word in ("-X", "-W"):  # options of Python that have a value
            next(words, "")
        elif not word.startswith("-") or word == "-c":
            return os.path.basename(word) in ("firm", "firm.exe")
    return False


def _end(number: int, frame: object) -> None:
    os.write(2, b"stopped\n")
    os._exit(CODE)


# Until `loaded`, the command ends at once on SIGINT: an exception would come out of whichever import is under way.
# Programs that use the library are left alone.
if _is_command_line() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end)
    _waiting = True
