"""A folder of pictures, and the data set that reads any list of files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor
from torch.utils.data import Dataset

from firm.data.picture import read_picture

EXTENSIONS = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm", ".pgm", ".avif"}


def folder_files(root: str | Path) -> list[Path]:
    """All pictures below `root`, recursively, sorted by their path; hidden files and folders are left out."""
    root = Path(root)
    require_folder(root)
    files = [
        path
        for path in root.rglob("*")
        if path.suffix.lower() in EXTENSIONS
        and not any(part.startswith(".") for part in path.relative_to(root).parts)
        and path.is_file()
    ]
    if not files:
        raise FileNotFoundError(f"{root}: no pictures ({', '.join(sorted(EXTENSIONS))}) in it or below")
    return sorted(files, key=lambda path: path.relative_to(root).as_posix())


def require_folder(path: Path) -> None:
    """Raise an error unless `path` is a folder."""
    if not path.is_dir():
        raise NotADirectoryError(f"{path}: no such folder")


class Pictures(Dataset[Tensor]):
    """Data set over a list of files, each read when asked for: a tensor (channels, size, size) in [-1, 1].

    For sets that do not fit into memory; `firm.data.resident` is faster for those that do.
    """

    def __init__(self, files: Sequence[Path], size: int, *, crop: int | None = None, channels: int = 3) -> None:
        self.files, self.size, self.crop, self.channels = list(files), size, crop, channels

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:
        return read_picture(self.files[index], self.size, crop=self.crop, channels=self.channels)
