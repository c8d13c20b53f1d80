"""Ctrl-C on the command line: the word "stopped" and exit code 130, also while the library is still being loaded."""

from __future__ import annotations

import os
import signal
import sys

CODE = 130  # what shells report for a program that SIGINT ended
_waiting = False


def is_command_line() -> bool:
    """Whether this process is the command `firm` or ``python -m firm``, and no program that uses the library."""
    words = iter(sys.orig_argv[1:])
    for word in words:
        if word == "-m":
            return next(words, "") == "firm"
        if word in ("-X", "-W"):  # options of Python that have a value
            next(words, "")
        elif not word.startswith("-") or word == "-c":
            return os.path.basename(word) in ("firm", "firm.exe")
    return False


def stop_quietly_while_loading() -> None:
    """Until `loaded`, end at once on SIGINT: an exception would come out of whichever import is under way."""
    global _waiting
    if is_command_line() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
        _waiting = True


def loaded() -> None:
    """From now on SIGINT is a KeyboardInterrupt again, so that what a command has begun is put in order."""
    global _waiting
    if _waiting:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _waiting = False


def say_stopped() -> None:
    """For the user; a second SIGINT, while the process ends, needs no words."""
    if is_command_line():
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    print("stopped", file=sys.stderr, flush=True)


def _end(number: int, frame: object) -> None:
    os.write(2, b"stopped\n")
    os._exit(CODE)


stop_quietly_while_loading()  # by being imported first of all; does nothing in other programs
