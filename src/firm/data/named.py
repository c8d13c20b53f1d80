"""The data sets by name: which files, and how they are cropped."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from firm.data.afhq import afhq_files
from firm.data.celeba import CROP, Split, celeba_files
from firm.data.folder import folder_files

DatasetName = Literal["celeba", "afhq", "folder"]


def named_files(dataset: DatasetName, root: str | Path, split: Split) -> tuple[list[Path], int | None]:
    """The files of a split (a folder has none: all its pictures), and the side of the center crop, if it is fixed."""
    if dataset == "celeba":
        return celeba_files(root, split), CROP
    return (afhq_files(root, split) if dataset == "afhq" else folder_files(root)), None
