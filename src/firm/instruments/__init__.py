"""Instruments: what turns a file of raw measurements into problems that `firm.restore` solves, one file a field."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from firm.data.volumes import is_volume
from firm.restoration.scan import Scan
from firm.tasks import picture_tasks


def scan_for(task: str | None, path: Path) -> type[Scan] | None:
    """Return what opens a file for a task of real measurements: the task's own scan, or that of volumes.

    None for pictures and arrays, and for a task that is not known here.
    """
    kinds = picture_tasks().get(task or "", [])
    name = kinds[0].scan if kinds else ""
    if not name and is_volume(path):
        name = "firm.instruments.volume:VolumeScan"
    if not name:
        return None
    module, _, kind = name.partition(":")
    found: type[Scan] = getattr(import_module(module), kind)
    return found
