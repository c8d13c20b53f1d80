"""What goes wrong in a task or a function of the user's own, told as theirs: file, line and name."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from firm._util.files import is_full
from firm._util.importing import OwnFunction


class OwnCodeError(ValueError):
    """The user's own code has failed; the message says where, and how."""


@contextmanager
def blamed(own: type | OwnFunction) -> Iterator[None]:
    """Errors out of the file of a user's own task or method become an `OwnCodeError`; all others pass as they are."""
    try:
        yield
    except (OwnCodeError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        line = _line(own, error)
        if line is None or is_full(error):
            raise
        raise OwnCodeError(f"{place(*line, own)}: {type(error).__name__}: {error}") from error


def require_operator(task: Any, op: Any, method: str) -> None:
    """Refuse what a task's method returned if it is no operator; most often a return is missing."""
    if callable(getattr(op, "A", None)) and callable(getattr(op, "A_adjoint", None)):
        return
    what = "None" if op is None else f"a {type(op).__name__}"
    message = f"{method} returned {what}; it must return an operator, with A(x) and A_adjoint(y)"
    code = getattr(inspect.unwrap(getattr(type(task), method)), "__code__", None)
    if code is None:  # no plain function
        raise OwnCodeError(f"the error is in your task {type(task).__name__}: {message}")
    raise OwnCodeError(f"{place(code.co_filename, code.co_firstlineno, type(task))}: {message}")


def place(file: str, line: int, own: type | OwnFunction) -> str:
    """The beginning of a message: whose fault it is, and where."""
    what = f"method {own.name}" if isinstance(own, OwnFunction) else f"task {own.__name__}"
    return f"the error is in your {what}, {file}, line {line}"


def _line(own: type | OwnFunction, error: Exception) -> tuple[str, int] | None:
    """The last line of the user's that an error came through; None if there is none."""
    files = set(own.files) if isinstance(own, OwnFunction) else _files(own)
    found = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in files]
    return (found[-1].filename, found[-1].lineno or 0) if found else None


def _files(kind: type) -> set[str]:
    """The files of a class and of those of the user's that it is derived from."""
    files = set()
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] == "firm":
            break  # from here on the library's
        try:
            files.add(inspect.getfile(base))
        except (OSError, TypeError):  # typed into a session: there is no file
            continue
    return files
