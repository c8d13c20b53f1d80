"""A folder of pictures, and the data set that reads any list of files."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from torch import Tensor
from torch.utils.data import Dataset

from firm.data.picture import MAX_MEGAPIXELS, PictureError, read_picture

EXTENSIONS = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm", ".pgm", ".avif"}


def folder_files(root: str | Path) -> list[Path]:
    """All pictures below `root`, recursively, sorted by their path; hidden files and folders are left out."""
    return files_below(root, EXTENSIONS, "pictures")


def files_below(root: str | Path, extensions: set[str], what: str) -> list[Path]:
    """All files with these endings below `root`, as `folder_files`; `what` they are, for the message if none is."""
    root = Path(root)
    require_folder(root)
    files = [
        path
        for path in root.rglob("*")
        if path.suffix.lower() in extensions
        and not any(part.startswith(".") for part in path.relative_to(root).parts)
        and path.is_file()
    ]
    if not files:
        raise FileNotFoundError(f"{root}: no {what} ({', '.join(sorted(extensions))}) in it or below")
    return sorted(files, key=lambda path: path.relative_to(root).as_posix())


def require_folder(path: Path) -> None:
    """Raise an error unless `path` is a folder."""
    if path.is_file():
        raise NotADirectoryError(f"{path}: a file, not a folder of pictures")
    if not path.is_dir():
        raise NotADirectoryError(f"{path}: no such folder")


class Pictures(Dataset[Tensor]):
    """Data set over a list of files, each read when asked for: a tensor (channels, size, size) in [-1, 1].

    For sets that do not fit into memory; `firm.data.resident` is faster for those that do. A file that cannot be read
    is an error that names it, or, with ``broken="skip"``, a warning that names it and the next picture in its place.
    """

    def __init__(
        self,
        files: Sequence[Path],
        size: int,
        *,
        crop: int | None = None,
        channels: int = 3,
        broken: Literal["refuse", "skip"] = "refuse",
        max_megapixels: float = MAX_MEGAPIXELS,
    ) -> None:
        self.files, self.size, self.crop, self.channels = list(files), size, crop, channels
        self.skip, self.max_megapixels = broken == "skip", max_megapixels

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:
        if not -len(self.files) <= index < len(self.files):
            raise IndexError(f"picture {index} of {len(self.files)}")
        for offset in range(len(self.files)):
            path = self.files[(index + offset) % len(self.files)]
            try:
                return read_picture(
                    path, self.size, crop=self.crop, channels=self.channels, max_megapixels=self.max_megapixels
                )
            except PictureError as error:
                if not self.skip:
                    raise
                warnings.warn(f"skipped {error}", stacklevel=2)
        raise PictureError(f"none of the {len(self.files)} files could be read")
