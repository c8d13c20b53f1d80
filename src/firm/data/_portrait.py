"""The picture that comes with the package, for examples and tests."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from torch import Tensor

from firm.data.picture import read_picture


def portrait() -> Tensor:
    """The astronaut Eileen Collins (NASA, public domain), cropped like CelebA: (1, 3, 128, 128) in [-1, 1]."""
    return read_picture(portrait_file())[None]


def portrait_file() -> Path:
    """Its file, for the command line."""
    return Path(str(resources.files("firm") / "assets" / "astronaut.png"))
