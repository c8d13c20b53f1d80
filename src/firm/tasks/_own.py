"""What goes wrong in a task of the user's own, told as theirs: file, line and class."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from firm._util.files import is_full


class OwnTaskError(ValueError):
    """The code of a user's own task has failed; the message says where, and how."""


@contextmanager
def blamed(kind: type) -> Iterator[None]:
    """Errors out of the file of a user's own task become an `OwnTaskError`; all others pass as they are."""
    try:
        yield
    except (OwnTaskError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        line = _line(kind, error)
        if line is None or is_full(error):
            raise
        raise OwnTaskError(f"{_place(*line, kind)}: {type(error).__name__}: {error}") from error


def require_operator(task: Any, op: Any, method: str) -> None:
    """Refuse what a task's method returned if it is no operator; most often a return is missing."""
    if callable(getattr(op, "A", None)) and callable(getattr(op, "A_adjoint", None)):
        return
    what = "None" if op is None else f"a {type(op).__name__}"
    message = f"{method} returned {what}; it must return an operator, with A(x) and A_adjoint(y)"
    code = getattr(inspect.unwrap(getattr(type(task), method)), "__code__", None)
    if code is None:  # no plain function
        raise OwnTaskError(f"the error is in your task {type(task).__name__}: {message}")
    raise OwnTaskError(f"{_place(code.co_filename, code.co_firstlineno, type(task))}: {message}")


def _place(file: str, line: int, kind: type) -> str:
    return f"the error is in your task {kind.__name__}, {file}, line {line}"


def _line(kind: type, error: Exception) -> tuple[str, int] | None:
    """The last line of the user's that an error came through; None if there is none."""
    files = set()
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] == "firm":
            break  # from here on the library's
        try:
            files.add(inspect.getfile(base))
        except (OSError, TypeError):  # typed into a session: there is no file
            continue
    found = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in files]
    return (found[-1].filename, found[-1].lineno or 0) if found else None
