"""The user's own classes, named as ``file.py:Class`` or ``package.module:Class``.

Only what a person writes on the command line or in a configuration is looked up here: never a name out of a model's
card or a checkpoint, since looking it up runs its code.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType


class NotFoundError(ValueError):
    """There is no such file or module."""


def is_own(name: str) -> bool:
    """Whether a name has the form of the user's own class."""
    return ":" in name


def load_class(name: str, base: type, what: str) -> type:
    """Import the class `name`, a subclass of `base`; `what` says in messages what it is for."""
    place, _, attribute = name.rpartition(":")
    if not place or not attribute:
        raise ValueError(f"{what} {name!r}: write file.py:Class or package.module:Class")
    try:
        module = _from_file(Path(place), what) if place.endswith(".py") else _from_package(place, what)
    except NotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"{what} {name!r}: {place} cannot be run: {_where(error)}") from error
    if not hasattr(module, attribute):
        classes = ", ".join(
            k for k, v in vars(module).items() if isinstance(v, type) and v.__module__ == module.__name__
        )
        raise ValueError(f"{what} {name!r}: {place} has no {attribute}" + (f"; it has {classes}" if classes else ""))
    found = getattr(module, attribute)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(f"{what} {name!r}: {attribute} must be a class derived from {base.__module__}.{base.__name__}")
    return found


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


def _from_package(name: str, what: str) -> ModuleType:
    ours = name.partition(".")[0] == "firm"
    if not ours and "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` would
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name + ".").startswith(error.name + "."):
            raise  # a package that the user's module needs
        raise NotFoundError(
            f"{what}: there is no module {name} (a file is written with its ending, name.py:Class)"
        ) from error


def _where(error: Exception) -> str:
    """What went wrong in the user's file, and in which of its lines."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {type(error).__name__}: {error.msg}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    own = [f for f in frames if "importlib" not in f.filename]
    line = f"line {own[0].lineno}: " if own else ""
    return f"{line}{type(error).__name__}: {error}"
