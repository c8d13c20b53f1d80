"""What goes wrong in a task, a network, or other code of the user's own, told as theirs: file, line and name."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from firm._util.device import lacks_memory
from firm._util.files import is_full
from firm._util.importing import OwnFunction

Own = type | OwnFunction


class OwnCodeError(ValueError):
    """The user's own code has failed; the message says where, and how."""


@contextmanager
def blamed(**own: Own | Sequence[Own]) -> Iterator[None]:
    """Errors out of the files of the user's own classes or functions become an `OwnCodeError`; all others pass.

    Each has the word for it as its name: ``blamed(task=kind)``, ``blamed(network=kind, task=[kind, other])``.
    """
    named = [(word, it) for word, given in own.items() for it in (given if isinstance(given, Sequence) else [given])]
    try:
        yield
    except OwnCodeError:
        raise
    except Exception as error:
        line = _line([it for _, it in named], error)
        if line is None or is_full(error) or lacks_memory(error):
            raise
        here = [(word, it) for word, it in named if line[0] in _files(it)]  # several where they share a file
        names = [f"{word} {it.name if isinstance(it, OwnFunction) else it.__name__}" for word, it in here]
        whose = " or ".join(dict.fromkeys(names))
        raise OwnCodeError(f"{place(*line, whose)}: {type(error).__name__}: {error}") from error


def require_operator(task: Any, op: Any, method: str) -> None:
    """Refuse what a task's method returned if it is no operator; most often a return is missing."""
    if callable(getattr(op, "A", None)) and callable(getattr(op, "A_adjoint", None)):
        return
    what = "None" if op is None else f"a {type(op).__name__}"
    message = f"{method} returned {what}; it must return an operator, with A(x) and A_adjoint(y)"
    code = getattr(inspect.unwrap(getattr(type(task), method)), "__code__", None)
    if code is None:  # no plain function
        raise OwnCodeError(f"the error is in your task {type(task).__name__}: {message}")
    raise OwnCodeError(f"{place(code.co_filename, code.co_firstlineno, f'task {type(task).__name__}')}: {message}")


def place(file: str, line: int, what: str) -> str:
    """The beginning of a message: whose fault it is, and where."""
    return f"the error is in your {what}, {file}, line {line}"


def _line(own: Collection[Own], error: Exception) -> tuple[str, int] | None:
    """The last line of the user's that an error came through, or a method that takes other arguments; else None."""
    files = {file for it in own for file in _files(it)}
    found = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in files]
    if found:
        return (found[-1].filename, found[-1].lineno or 0)
    for method in (m for it in own if isinstance(it, type) for _, m in inspect.getmembers(it, inspect.isfunction)):
        if method.__code__.co_filename in files and str(error).startswith(f"{method.__qualname__}() "):
            return method.__code__.co_filename, method.__code__.co_firstlineno  # Python says so: it was not entered
    return None


def _files(own: Own) -> set[str]:
    """Of a class, with those of the user's that it is derived from, or of a function."""
    if isinstance(own, OwnFunction):
        return set(own.files)
    files = set()
    for base in own.__mro__:
        if base.__module__.partition(".")[0] in ("firm", "torch"):
            continue  # not the user's
        try:
            files.add(inspect.getfile(base))
        except (OSError, TypeError):  # typed into a session: there is no file
            continue
    return files
