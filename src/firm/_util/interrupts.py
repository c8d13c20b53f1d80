"""Ctrl-C while the command line is still being imported: the end, and no traceback. Importing this is enough."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

_PYTHONS = signal.default_int_handler


def end_at_once() -> None:
    """While a command is being loaded, SIGINT ends it. Other programs are left alone."""
    first = sys.argv[0] if sys.argv else ""
    words = sys.orig_argv
    module = first == "-m" and "-m" in words and words[words.index("-m") + 1 :][:1] == ["firm"]
    if (module or Path(first).stem == "firm") and _here() and signal.getsignal(signal.SIGINT) is _PYTHONS:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_again() -> None:
    """Called when a command begins: SIGINT is a KeyboardInterrupt from here on."""
    if _here() and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, _PYTHONS)


def _here() -> bool:
    return threading.current_thread() is threading.main_thread()


end_at_once()
