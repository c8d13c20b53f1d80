"""What tests of `firm restore` share: the report that it writes, and the pixels of its pictures."""

import json
from pathlib import Path

import numpy as np
from PIL import Image


def rows(out: Path) -> list[dict]:
    """What restore.json says of every picture."""
    return json.loads((out / "restore.json").read_text())


def pixels(path: Path) -> np.ndarray:
    """A picture as its file holds it."""
    with Image.open(path) as picture:
        return np.asarray(picture)


def save_gray(path: Path, values) -> Path:
    """Save bytes (H, W), or shares of white from 0 to 1, as a gray picture."""
    values = np.asarray(values)
    Image.fromarray(values if values.dtype == np.uint8 else (values * 255).astype(np.uint8)).save(path)
    return path
