"""Custom code: the user's classes and functions, named as ``file.py:Class`` or ``package.module:Class``.

They are loaded here, hashed so that an edit is noticed, and their errors are reported as theirs, with file and line.
Only what a person writes on the command line or in a configuration is looked up: never a name out of a model's card or
a checkpoint, since looking it up runs its code.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from firm._util.checks import require
from firm._util.files import is_full
from firm._util.machine import lacks_memory

USERS = "firm_user_"  # what the names of modules begin with that are files of the user


class CustomCodeError(ValueError):
    """The user's own code has failed; the message says where, and how."""


@dataclass(frozen=True)
class _CustomFunction:
    """A function of the user's, and where it is from."""

    name: str
    call: Callable[..., Any]
    files: tuple[str, ...]  # the file that was named, and the one that defines the function where that is another
    line: int  # where it begins in the last of them

    def digest(self) -> str:
        """Return a hash of its files."""
        return _hash(self.files)

    def error(self, word: str, message: str) -> CustomCodeError:
        """Return an error that says `message` of this function, which is the user's `word`, such as "method"."""
        return CustomCodeError(f"{_place(self.files[-1], self.line, f'{word} {self.name}')}: {message}")


Custom = type | _CustomFunction


def is_custom(name: str) -> bool:
    """Tell whether a name has the form of a custom class or function."""
    return ":" in name


def load_class(name: str, base: type, what: str) -> type:
    """Import a custom class.

    Parameters
    ----------
    name
        ``file.py:Class`` or ``package.module:Class``; the file or module is run, once.
    base
        The class that it must be derived from.
    what
        What it is for, in messages, such as "task".
    """
    found = _load(name, what, "Class", lambda value: isinstance(value, type))
    fits = isinstance(found, type) and issubclass(found, base)
    attribute, parent = name.rpartition(":")[2], f"{base.__module__}.{base.__name__}"
    require(fits, f"{what} {name!r}: {attribute} must be a class derived from {parent}")
    return found


def load_function(name: str, what: str) -> _CustomFunction:
    """Import a custom function, plain or with decorators, as `load_class` does a class."""
    found = _load(name, what, "function", inspect.isfunction)
    module, _, attribute = name.rpartition(":")
    fits = callable(found) and inspect.isfunction(inspect.unwrap(found))
    require(fits, f"{what} {name!r}: {attribute} must be a function, but is of type {type(found).__name__}")
    code = inspect.unwrap(found).__code__
    named = str(Path(module).resolve()) if module.endswith(".py") else str(sys.modules[module].__file__)
    return _CustomFunction(attribute, found, tuple(dict.fromkeys((named, code.co_filename))), code.co_firstlineno)


def code_digest(kind: type) -> str:
    """Return a hash of the file that defines a custom class; empty for classes of this library."""
    file = "" if kind.__module__.partition(".")[0] == "firm" else _file(kind)
    return _hash([file]) if file else ""


@contextmanager
def custom_code(**given: Custom | Sequence[Custom]) -> Iterator[None]:
    """Turn errors that come out of the files of custom classes or functions into a `CustomCodeError`.

    All other errors pass as they are. Each argument has the word for what it is as its name:
    ``custom_code(task=kind)``, ``custom_code(network=kind, task=[kind, other])``.
    """
    named = [(word, it) for word, value in given.items() for it in (value if isinstance(value, Sequence) else [value])]
    try:
        yield
    except Exception as error:
        line = _failing_line([it for _, it in named], error)
        if line is None or isinstance(error, CustomCodeError) or is_full(error) or lacks_memory(error):
            raise
        here = [(word, it) for word, it in named if line[0] in _files(it)]  # several where they share a file
        names = [f"{word} {it.name if isinstance(it, _CustomFunction) else it.__name__}" for word, it in here]
        what = " or ".join(dict.fromkeys(names))
        raise CustomCodeError(f"{_place(*line, what)}: {type(error).__name__}: {error}") from error


def require_operator(task: Any, op: Any, method: str) -> None:
    """Refuse what a task's method returned if it is no operator; most often a return is missing.

    Parameters
    ----------
    task, method
        The task, and the name of the method that made `op`: the error says where it stands in the user's file.
    op
        What it returned.
    """
    if callable(getattr(op, "A", None)) and callable(getattr(op, "A_adjoint", None)):
        return
    what = "None" if op is None else f"a {type(op).__name__}"
    code = getattr(inspect.unwrap(getattr(type(task), method)), "__code__", None)  # None: no plain function
    name = f"task {type(task).__name__}"
    where = _place(code.co_filename, code.co_firstlineno, name) if code else f"the error is in your {name}"
    raise CustomCodeError(f"{where}: {method} returned {what}; it must return an operator, with A(x) and A_adjoint(y)")


def _place(file: str, line: int, what: str) -> str:
    """Return the beginning of a message: what of the user's is wrong, and where it stands."""
    return f"the error is in your {what}, {file}, line {line}"


def _load(name: str, what: str, kind: str, fits: Callable[[Any], bool]) -> Any:
    """Return what `name` stands for; where it is not there, the error lists what there `fits`."""
    source, _, attribute = name.rpartition(":")
    require(source and attribute, f"{what} {name!r}: write file.py:{kind} or package.module:{kind}")
    from_file = source.endswith(".py")
    require(not from_file or Path(source).is_file(), f"{what}: there is no file {source}")
    try:
        module = _run_file(Path(source).resolve()) if from_file else _import_module(source)
    except Exception as error:
        absent = isinstance(error, ModuleNotFoundError) and not from_file and f"{source}.".startswith(f"{error.name}.")
        hint = f"there is no module {source} (a file is written with its ending, name.py:{kind})"
        message = f"{what}: {hint}" if absent else f"{what} {name!r}: {source} cannot be run: {_where(error)}"
        raise ValueError(message) from error
    there = ", ".join(k for k, v in vars(module).items() if fits(v) and v.__module__ == module.__name__)
    hint = f"; it has {there}" if there else ""
    require(hasattr(module, attribute), f"{what} {name!r}: {source} has no {attribute}{hint}")
    return getattr(module, attribute)


def _run_file(path: Path) -> ModuleType:
    """Return the module of a file, which is run once."""
    name = f"{USERS}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"  # files may share a name
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module, ran = importlib.util.module_from_spec(spec), False
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))  # so that it finds the modules beside it, as a script would
    try:
        spec.loader.exec_module(module)
        ran = True
    finally:
        sys.path.remove(str(path.parent))
        if not ran:
            del sys.modules[name]
    return module


def _import_module(name: str) -> ModuleType:
    ours = name.partition(".")[0] == "firm"
    if not ours and "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` would
    return importlib.import_module(name)


def _where(error: Exception) -> str:
    """Say what went wrong in the user's file, and in which of its lines."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {type(error).__name__}: {error.msg}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    theirs = [f for f in frames if "importlib" not in f.filename]
    line = f"line {theirs[0].lineno}: " if theirs else ""
    return f"{line}{type(error).__name__}: {error}"


def _failing_line(given: Iterable[Custom], error: Exception) -> tuple[str, int] | None:
    """Return file and line where an error left custom code, or the custom method that takes other arguments."""
    given = list(given)
    files = {file for it in given for file in _files(it)}
    found = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in files]
    if found:
        return (found[-1].filename, found[-1].lineno or 0)
    for method in (m for it in given if isinstance(it, type) for _, m in inspect.getmembers(it, inspect.isfunction)):
        if method.__code__.co_filename in files and str(error).startswith(f"{method.__qualname__}() "):
            return method.__code__.co_filename, method.__code__.co_firstlineno  # Python says so: it was not entered
    return None


def _files(it: Custom) -> set[str]:
    """Return the files of a custom function, or of a custom class and the custom classes it is derived from."""
    if isinstance(it, _CustomFunction):
        return set(it.files)
    custom = [base for base in it.__mro__ if base.__module__.partition(".")[0] not in ("firm", "torch")]
    return {_file(base) for base in custom} - {""}


def _file(kind: type) -> str:
    """Return the file that defines a class; empty where there is none, as for classes typed into a session."""
    return getattr(sys.modules.get(kind.__module__), "__file__", None) or ""


def _hash(files: Iterable[str]) -> str:
    return hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()[:16]
