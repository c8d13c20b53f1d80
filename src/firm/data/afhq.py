"""AFHQ, in its folder layout: SPLIT/cat/*.jpg."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from firm.data.folder import folder_files, require_folder


def afhq_files(
    root: str | Path, split: Literal["train", "val", "test"] = "test", animal: Literal["cat", "dog", "wild"] = "cat"
) -> list[Path]:
    """The pictures of a split, in sorted order."""
    require_folder(Path(root))
    folder = Path(root) / split / animal
    if not folder.is_dir():
        raise NotADirectoryError(
            f"{folder}: no such folder; AFHQ is laid out as train/{animal}, val/{animal}, test/{animal}"
        )
    return folder_files(folder)
