"""Sets of pictures by name: CelebA, AFHQ, any folder; and the two pictures that come with the package."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Literal

from torch import Tensor

from firm.data.opening import RAW
from firm.data.picture import read_picture

Split = Literal["train", "val", "test"]
DatasetName = Literal["celeba", "afhq", "folder"]
EXTENSIONS = {
    ".png", ".jpg", ".jpeg", ".jp2", ".webp", ".avif", ".bmp", ".tif", ".tiff", ".gif", ".ppm", ".pgm", ".pcx", ".tga",
    ".heic", ".heif", *RAW,
}  # fmt: skip
CROP = 178  # center crop of CelebA before resizing, as in the paper
PARTITION = {"train": "0", "val": "1", "test": "2"}  # the splits in CelebA's list


def named_files(dataset: DatasetName, root: str | Path, split: Split) -> tuple[list[Path], int | None]:
    """Return the files of a split (a folder has none: all its pictures), and the side of their center crop, or None."""
    if dataset == "celeba":
        return celeba_files(root, split), CROP
    return (afhq_files(root, split) if dataset == "afhq" else folder_files(root)), None


def folder_files(root: str | Path) -> list[Path]:
    """Return all pictures below `root`, recursively, sorted by their path; hidden files and folders are left out."""
    return files_below(root, EXTENSIONS, "pictures")


def celeba_files(root: str | Path, split: Split = "test") -> list[Path]:
    """Return the aligned faces of a split of CelebA, in sorted order; read them with ``crop=178``.

    `root` is laid out officially: ``img_align_celeba/NNNNNN.jpg`` and ``list_eval_partition.txt`` (or ``.csv``).
    Pictures that the list names but the folder lacks are an error: a partial copy needs a partial list.
    """
    root = Path(root)
    _require_folder(root)
    if split not in PARTITION:
        raise ValueError(f"CelebA has the splits {', '.join(PARTITION)}, not {split!r}")
    images = root / "img_align_celeba"
    if (images / "img_align_celeba").is_dir():  # the archive of some mirrors
        images = images / "img_align_celeba"
    _require_folder(images)
    present = {path.name for path in images.iterdir()}
    names = sorted(name for name, number in _partition(root) if number == PARTITION[split])
    if not names:
        raise FileNotFoundError(f"{root}: the partition list has no {split} pictures")
    absent = [name for name in names if name not in present]
    if absent:
        missing = f"{len(absent)} of {len(names)} {split} pictures are missing, first {absent[0]}"
        raise FileNotFoundError(f"{images}: {missing}")
    return [images / name for name in names]


def afhq_files(root: str | Path, split: Split = "test", animal: Literal["cat", "dog", "wild"] = "cat") -> list[Path]:
    """Return the pictures of a split of AFHQ, which is laid out as ``SPLIT/cat/*.jpg``, in sorted order."""
    _require_folder(Path(root))
    folder = Path(root) / split / animal
    _require_folder(folder, f"; AFHQ is laid out as train/{animal}, val/{animal}, test/{animal}")
    return folder_files(folder)


def files_below(root: str | Path, extensions: set[str], what: str) -> list[Path]:
    """Return all files with these endings below `root`, as `folder_files` does; without any, say `what` is missing."""
    root = Path(root)
    _require_folder(root)
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


def _require_folder(path: Path, hint: str = "") -> None:
    if not path.is_dir():
        why = "a file, not a folder of pictures" if path.exists() else "no such folder"
        raise NotADirectoryError(f"{path}: {why}{hint}")


def portrait() -> Tensor:
    """Return the astronaut Eileen Collins (NASA, public domain), cropped like CelebA: (1, 3, 128, 128) in [-1, 1]."""
    return read_picture(portrait_file())[None]


def cat() -> Tensor:
    """Return the cat Chelsea (Stéfan van der Walt, CC0), cropped like AFHQ: (1, 3, 256, 256) in [-1, 1]."""
    return read_picture(portrait_file("chelsea.png"))[None]


def portrait_file(name: str = "astronaut.png") -> Path:
    """Return the file of the portrait, or of another picture that comes with the package."""
    return Path(str(resources.files("firm") / "assets" / name))


def _partition(root: Path) -> list[tuple[str, str]]:
    """Return file names and the number of their split, from the text list (space) or the csv one (comma, a header)."""
    lists = {root / "list_eval_partition.txt": None, root / "list_eval_partition.csv": ","}
    path = next((path for path in lists if path.is_file()), None)
    if path is None:
        raise FileNotFoundError(f"{root}: neither list_eval_partition.txt nor .csv is there")
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        cells = [cell.strip() for cell in line.split(lists[path])]
        if line.strip() and cells != ["image_id", "partition"]:
            if len(cells) != 2 or cells[1] not in PARTITION.values():
                raise ValueError(f"{path}, line {number}: expected a file name and 0, 1 or 2, got {line!r}")
            rows.append((cells[0], cells[1]))
    return rows
