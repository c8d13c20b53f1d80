"""A whole split decoded once and kept as one array of bytes, memory-mapped from a cache: training at GPU speed."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from firm._util.files import write_atomically
from firm.data.picture import PictureError, decode_array


def resident(
    files: Sequence[Path],
    size: int,
    *,
    crop: int | None = None,
    channels: int = 3,
    cache: str | Path | None = None,
    broken: Literal["refuse", "skip"] = "refuse",
    progress: bool = True,
) -> tuple[Tensor, list[Path]]:
    """Decode `files` to one tensor of bytes (n, channels, size, size); return it and the files it holds.

    With `cache`, a folder, the array is written there and next time only mapped into memory. The cache knows the
    files' paths, sizes and times of change and the settings; if any of these differ, the pictures are decoded anew.

    Parameters
    ----------
    files, size, crop, channels
        As for `read_picture`. Turn bytes into images in [-1, 1] with ``firm.data.picture.to_tensor``.
    broken
        "refuse": an unreadable file is an error. "skip": it is left out, and named in a warning on the bar.
    """
    if broken not in ("refuse", "skip"):
        raise ValueError(f'broken must be "refuse" or "skip", got {broken!r}')
    about = {
        "files": [[str(Path(f).resolve()), *_fingerprint(Path(f))] for f in files],
        "size": size, "crop": crop, "channels": channels, "broken": broken,
    }  # fmt: skip
    if cache is None:
        pixels, kept = _decode_all(files, size, crop, channels, broken, progress)
        return torch.from_numpy(pixels), [Path(files[i]) for i in kept]
    key = hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]
    array, index = Path(cache) / f"{key}.npy", Path(cache) / f"{key}.json"
    kept_before = _cached(array, index, about)
    if kept_before is None:
        pixels, kept_before = _decode_all(files, size, crop, channels, broken, progress)
        array.parent.mkdir(parents=True, exist_ok=True)
        temporary = array.with_name(f".{array.name}.{os.getpid()}.tmp.npy")
        try:
            np.save(temporary, pixels)
            os.replace(temporary, array)
        finally:
            temporary.unlink(missing_ok=True)
        write_atomically(index, json.dumps({**about, "kept": kept_before}))  # last: it vouches for the array
    mapped = np.load(array, mmap_mode="c")  # copy on write: torch wants it writable, the file stays as it is
    return torch.from_numpy(mapped), [Path(files[i]) for i in kept_before]


def _cached(array: Path, index: Path, about: dict[str, Any]) -> list[int] | None:
    """The indices of the files in a valid cache, or None."""
    try:
        saved = json.loads(index.read_text())
        kept: list[int] = saved.pop("kept")
        shape = np.load(array, mmap_mode="r").shape
    except (OSError, ValueError, KeyError, EOFError):
        return None
    expected = (len(kept), about["channels"], about["size"], about["size"])
    return kept if saved == about and shape == expected else None


def _fingerprint(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return (-1, -1)
    return (status.st_size, status.st_mtime_ns)


def _decode_all(
    files: Sequence[Path], size: int, crop: int | None, channels: int, broken: str, progress: bool
) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], list[int]]:
    """Decode with a few threads (Pillow releases the interpreter lock); the indices of what was readable."""

    def read(path: Path) -> Any:
        try:
            return decode_array(path, size, crop=crop, channels=channels)
        except PictureError as error:
            return error

    pixels = np.empty((len(files), channels, size, size), dtype=np.uint8)
    kept: list[int] = []
    with warnings.catch_warnings(), ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        warnings.simplefilter("ignore")  # of Pillow, in the threads
        results = tqdm(pool.map(read, files), total=len(files), desc="decoding", unit="img", disable=not progress)
        for i, result in enumerate(results):
            if isinstance(result, PictureError):
                if broken == "refuse":
                    pool.shutdown(cancel_futures=True)
                    raise result
                results.write(f"skipped {result}")
                continue
            pixels[len(kept)] = result
            kept.append(i)
    if not kept:
        raise PictureError(f"none of the {len(files)} files could be read")
    return pixels[: len(kept)], kept
