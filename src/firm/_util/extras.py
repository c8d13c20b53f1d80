"""Packages that only some users need: imported when they are used, and named with the command that installs them."""

from __future__ import annotations

import importlib
from typing import Any


class MissingPackageError(ModuleNotFoundError, ValueError):
    """A package that is not installed; the message names the command that installs it."""


def extra(name: str, what: str, group: str) -> Any:
    """Import a package of an extra.

    Parameters
    ----------
    name
        Of the package or module, such as "dask.callbacks".
    what
        Who needs it, for the message: "Restoring arrays block by block".
    group
        The extra of FIRM that installs it.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name.split(".")[0]):
            raise  # one of its own parts is missing
        raise MissingPackageError(f"{what} needs {name.split('.')[0]}: pip install 'firm[{group}]'") from error
