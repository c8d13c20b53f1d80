"""CelebA, in its official layout: img_align_celeba/NNNNNN.jpg and list_eval_partition.txt (or .csv)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from firm.data.folder import require_folder

Split = Literal["train", "val", "test"]
NUMBER = {"train": 0, "val": 1, "test": 2}
CROP = 178  # center crop before resizing, as in the paper


def celeba_files(root: str | Path, split: Split = "test") -> list[Path]:
    """The aligned faces of a split, in sorted order; read them with ``crop=178``.

    Pictures that the list names but the folder lacks are an error: a partial copy needs a partial list.
    """
    root = Path(root)
    require_folder(root)
    if split not in NUMBER:
        raise ValueError(f"CelebA has the splits {', '.join(NUMBER)}, not {split!r}")
    images = root / "img_align_celeba"
    if (images / "img_align_celeba").is_dir():  # the archive of some mirrors
        images = images / "img_align_celeba"
    require_folder(images)
    present = {path.name for path in images.iterdir()}
    names = sorted(name for name, number in _partition(root) if number == NUMBER[split])
    absent = [name for name in names if name not in present]
    if absent:
        raise FileNotFoundError(
            f"{images}: {len(absent)} of {len(names)} {split} pictures are missing, first {absent[0]}"
        )
    if not names:
        raise FileNotFoundError(f"{root}: the partition list has no {split} pictures")
    return [images / name for name in names]


def _partition(root: Path) -> list[tuple[str, int]]:
    """File names with their split number, from the text list (space) or the csv one (comma, with a header)."""
    for name, separator in (("list_eval_partition.txt", None), ("list_eval_partition.csv", ",")):
        if (root / name).is_file():
            rows = []
            for number, line in enumerate((root / name).read_text().splitlines(), start=1):
                cells = [cell.strip() for cell in line.split(separator)]
                if not line.strip() or cells == ["image_id", "partition"]:
                    continue
                if len(cells) != 2 or cells[1] not in ("0", "1", "2"):
                    raise ValueError(f"{root / name}, line {number}: expected a file name and 0, 1 or 2, got {line!r}")
                rows.append((cells[0], int(cells[1])))
            return rows
    raise FileNotFoundError(f"{root}: neither list_eval_partition.txt nor .csv is there")
