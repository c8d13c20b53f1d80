"""The pictures that come with the package, for examples, figures and tests; both may be shown to anybody."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from torch import Tensor

from firm.data.picture import read_picture


def portrait() -> Tensor:
    """The astronaut Eileen Collins (NASA, public domain), cropped like CelebA: (1, 3, 128, 128) in [-1, 1]."""
    return read_picture(portrait_file())[None]


def cat() -> Tensor:
    """The cat Chelsea (Stéfan van der Walt, CC0), cropped like AFHQ: (1, 3, 256, 256) in [-1, 1]."""
    return read_picture(cat_file())[None]


def portrait_file() -> Path:
    """The portrait's file, for the command line."""
    return _asset("astronaut.png")


def cat_file() -> Path:
    """The cat's file."""
    return _asset("chelsea.png")


def _asset(name: str) -> Path:
    return Path(str(resources.files("firm") / "assets" / name))
