"""``firm restore`` of instruments' files, raw measurements and volumes: which there are, and how each is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firm._util.checks import counted, require

if TYPE_CHECKING:
    from firm.restoration.scan import Scan


def scans_of(
    named: Sequence[Path], task: str | None, of_all: Mapping[str, Any], of_volumes: Mapping[str, Any],
    others: Mapping[str, Any],
) -> dict[Path, Callable[[], Scan]]:  # fmt: skip
    """Return what opens each of the files that are scans; nothing where they are pictures or arrays.

    Parameters
    ----------
    named
        What the user named: files, or folders such as that of a DICOM series.
    task
        As given with ``--task``.
    of_all
        Settings of the task, by name.
    of_volumes
        Options that volumes have beside them, as pictures do; the instruments of the other tasks tell them themselves.
    others
        Options that no scan has, by name; those that were given are refused.
    """
    from firm.instruments import scan_for
    from firm.instruments.volume import VolumeScan

    kinds = {path: scan_for(task, path) for path in named if path.exists()}
    found = {path: kind for path, kind in kinds.items() if kind is not None}
    if not found:
        return {}
    rest = [path for path in named if path not in found]
    require(
        not rest, f"{counted(len(found), 'file')} of an instrument, and {rest and rest[0]} is none: name them apart"
    )
    given = [name for name, value in others.items() if value not in (None, False)]
    opened: dict[Path, Callable[[], Scan]] = {}
    for path, kind in found.items():
        settings = {key: value for key, value in of_all.items() if value is not None}
        if issubclass(kind, VolumeScan) and kind.open.__func__ is VolumeScan.open.__func__:  # type: ignore[attr-defined]
            settings |= {"task": task, **{key: value for key, value in of_volumes.items() if value is not None}}
        else:
            given += [f"--{key.replace('_', '-')}" for key, value in of_volumes.items() if value is not None]
        require(
            not given, f"{', '.join(given[:1])}: not for {path}, of which {task or 'a volume'} takes no such option"
        )
        opened[path] = partial(kind.open, path, **settings)
    return opened
