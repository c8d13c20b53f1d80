"""The user's own classes, named as ``file.py:Class`` or ``package.module:Class``.

Only what a person writes on the command line or in a configuration is looked up here: never a name out of a model's
card or a checkpoint, since looking it up runs its code.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def is_own(name: str) -> bool:
    """Whether a name has the form of the user's own class."""
    return ":" in name


def load_class(name: str, base: type, what: str) -> type:
    """Import the class `name`, a subclass of `base`; `what` says in messages what it is for."""
    place, _, attribute = name.rpartition(":")
    if not place or not attribute:
        raise ValueError(f"{what} {name!r}: write file.py:Class or package.module:Class")
    module = _from_file(Path(place), what) if place.endswith(".py") else _from_package(place, what)
    if not hasattr(module, attribute):
        classes = ", ".join(
            k for k, v in vars(module).items() if isinstance(v, type) and v.__module__ == module.__name__
        )
        raise ValueError(f"{what} {name!r}: {place} has no {attribute}" + (f"; it has {classes}" if classes else ""))
    found = getattr(module, attribute)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(f"{what} {name!r}: {attribute} must be a class derived from {base.__module__}.{base.__name__}")
    return found


def _from_file(path: Path, what: str) -> ModuleType:
    """The module of a file, run once."""
    if not path.is_file():
        raise ValueError(f"{what}: there is no file {path}")
    path = path.resolve()
    name = f"firm_user_{path.stem}"
    loaded = sys.modules.get(name)
    if loaded is not None and loaded.__file__ == str(path):
        return loaded
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _from_package(name: str, what: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` would
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name + ".").startswith(error.name + "."):
            raise  # a package that the user's module needs
        raise ValueError(
            f"{what}: there is no module {name} (a file is written with its ending, name.py:Class)"
        ) from error
