"""Custom code: the user's classes and functions, named as ``file.py:Class`` or ``package.module:Class``.

They are loaded here, hashed so that an edit is noticed, and their errors are told as theirs, with file and line. Only
what a person writes on the command line or in a configuration is looked up: never a name out of a model's card or a
checkpoint, since looking it up runs its code.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from firm._util.device import lacks_memory
from firm._util.files import is_full


class NotFoundError(ValueError):
    """There is no such file or module."""


def is_custom(name: str) -> bool:
    """Whether a name has the form of the user's own class or function."""
    return ":" in name


def load_class(name: str, base: type, what: str) -> type:
    """Import the class `name`, a subclass of `base`; `what` says in messages what it is for."""
    found = _load(name, what, "Class", lambda v: isinstance(v, type))
    if not (isinstance(found, type) and issubclass(found, base)):
        attribute = name.rpartition(":")[2]
        raise ValueError(f"{what} {name!r}: {attribute} must be a class derived from {base.__module__}.{base.__name__}")
    return found


def load_function(name: str, what: str) -> CustomFunction:
    """Import the function `name`, plain or with decorators; `what` says in messages what it is for."""
    found = _load(name, what, "function", inspect.isfunction)
    place, _, attribute = name.rpartition(":")
    if not (callable(found) and inspect.isfunction(inspect.unwrap(found))):
        raise ValueError(f"{what} {name!r}: {attribute} must be a function, but is of type {type(found).__name__}")
    code = inspect.unwrap(found).__code__
    named = str(Path(place).resolve()) if place.endswith(".py") else str(sys.modules[place].__file__)
    return CustomFunction(attribute, found, tuple(dict.fromkeys((named, code.co_filename))), code.co_firstlineno)


def _load(name: str, what: str, kind: str, fits: Callable[[Any], bool]) -> Any:
    """What `name` stands for; where it is not there, an error that lists what there `fits`. `kind` is for messages."""
    place, _, attribute = name.rpartition(":")
    if not place or not attribute:
        raise ValueError(f"{what} {name!r}: write file.py:{kind} or package.module:{kind}")
    try:
        module = _from_file(Path(place), what) if place.endswith(".py") else _from_package(place, what, kind)
    except NotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"{what} {name!r}: {place} cannot be run: {_where(error)}") from error
    if not hasattr(module, attribute):
        there = ", ".join(k for k, v in vars(module).items() if fits(v) and v.__module__ == module.__name__)
        raise ValueError(f"{what} {name!r}: {place} has no {attribute}" + (f"; it has {there}" if there else ""))
    return getattr(module, attribute)


@dataclass(frozen=True)
class CustomFunction:
    """A function of the user's own, and where it is from."""

    name: str
    call: Callable[..., Any]
    files: tuple[str, ...]  # the one that was named, and the one that defines it where that is another
    line: int  # where it begins in the last of them

    def digest(self) -> str:
        """A hash of its files."""
        return hashlib.sha256(b"".join(Path(file).read_bytes() for file in self.files)).hexdigest()[:16]


def code_digest(kind: type) -> str:
    """A hash of the file that defines a class of the user's own; empty for those of this library."""
    if kind.__module__.partition(".")[0] == "firm":
        return ""
    try:
        return hashlib.sha256(Path(inspect.getfile(kind)).read_bytes()).hexdigest()[:16]
    except (OSError, TypeError):  # typed into a session: there is no file
        return ""


def _from_file(path: Path, what: str) -> ModuleType:
    """The module of a file, run once."""
    if not path.is_file():
        raise NotFoundError(f"{what}: there is no file {path}")
    path = path.resolve()
    name = f"firm_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"  # files may share a name
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))  # so that it finds the modules beside it, as a script would
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.parent))
    return module


def _from_package(name: str, what: str, kind: str) -> ModuleType:
    ours = name.partition(".")[0] == "firm"
    if not ours and "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` would
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name + ".").startswith(error.name + "."):
            raise  # a package that the user's module needs
        raise NotFoundError(
            f"{what}: there is no module {name} (a file is written with its ending, name.py:{kind})"
        ) from error


def _where(error: Exception) -> str:
    """What went wrong in the user's file, and in which of its lines."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {type(error).__name__}: {error.msg}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    own = [f for f in frames if "importlib" not in f.filename]
    line = f"line {own[0].lineno}: " if own else ""
    return f"{line}{type(error).__name__}: {error}"


Custom = type | CustomFunction


class CustomCodeError(ValueError):
    """The user's own code has failed; the message says where, and how."""


@contextmanager
def custom_code(**own: Custom | Sequence[Custom]) -> Iterator[None]:
    """Errors out of the files of the user's own classes or functions become an `CustomCodeError`; all others pass.

    Each has the word for it as its name: ``custom_code(task=kind)``, ``custom_code(network=kind, task=[kind, other])``.
    """
    named = [(word, it) for word, given in own.items() for it in (given if isinstance(given, Sequence) else [given])]
    try:
        yield
    except CustomCodeError:
        raise
    except Exception as error:
        line = _line([it for _, it in named], error)
        if line is None or is_full(error) or lacks_memory(error):
            raise
        here = [(word, it) for word, it in named if line[0] in _files(it)]  # several where they share a file
        names = [f"{word} {it.name if isinstance(it, CustomFunction) else it.__name__}" for word, it in here]
        whose = " or ".join(dict.fromkeys(names))
        raise CustomCodeError(f"{place(*line, whose)}: {type(error).__name__}: {error}") from error


def require_operator(task: Any, op: Any, method: str) -> None:
    """Refuse what a task's method returned if it is no operator; most often a return is missing."""
    if callable(getattr(op, "A", None)) and callable(getattr(op, "A_adjoint", None)):
        return
    what = "None" if op is None else f"a {type(op).__name__}"
    message = f"{method} returned {what}; it must return an operator, with A(x) and A_adjoint(y)"
    code = getattr(inspect.unwrap(getattr(type(task), method)), "__code__", None)
    if code is None:  # no plain function
        raise CustomCodeError(f"the error is in your task {type(task).__name__}: {message}")
    raise CustomCodeError(f"{place(code.co_filename, code.co_firstlineno, f'task {type(task).__name__}')}: {message}")


def place(file: str, line: int, what: str) -> str:
    """The beginning of a message: whose fault it is, and where."""
    return f"the error is in your {what}, {file}, line {line}"


def _line(own: Collection[Custom], error: Exception) -> tuple[str, int] | None:
    """The last line of the user's that an error came through, or a method that takes other arguments; else None."""
    files = {file for it in own for file in _files(it)}
    found = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in files]
    if found:
        return (found[-1].filename, found[-1].lineno or 0)
    for method in (m for it in own if isinstance(it, type) for _, m in inspect.getmembers(it, inspect.isfunction)):
        if method.__code__.co_filename in files and str(error).startswith(f"{method.__qualname__}() "):
            return method.__code__.co_filename, method.__code__.co_firstlineno  # Python says so: it was not entered
    return None


def _files(own: Custom) -> set[str]:
    """Of a class, with those of the user's that it is derived from, or of a function."""
    if isinstance(own, CustomFunction):
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
