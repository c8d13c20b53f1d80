"""The examples of the page: the bundled portrait, clean and with each kind of trouble."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from firm.data import portrait
from firm.demo.pictures import to_picture
from firm.demo.request import Trouble
from firm.tasks import Task


@dataclass(frozen=True)
class Example:
    """A picture, and the settings that go with it."""

    file: Path
    label: str
    clean: bool
    trouble: Trouble


def make_examples(folder: Path) -> list[Example]:
    """Write the examples to `folder`; the same pictures every time."""
    x = portrait()
    noisy = Task("denoising").measure(x, seed=1)[1]
    blurred = Task("deblurring", sigma=0.01).measure(x, seed=1)[1]
    small = Task("super-resolution", sigma=0.01, filter="bicubic").measure(x, seed=1)[1]
    op, _ = Task("random-inpainting", missing=0.5).measure(x, seed=1)
    seen = op.A(torch.ones_like(x)) > 0
    pixels = torch.where(seen, x.clamp(min=-0.98), -1.0)  # black is left to what is missing
    made: list[tuple[str, str, torch.Tensor, bool, Trouble]] = [
        ("portrait", "Clean", x, True, "noise"),
        ("portrait-noisy", "Noisy", noisy, False, "noise"),
        ("portrait-blurred", "Blurred", blurred, False, "blur"),
        ("portrait-small", "Small", small, False, "small"),
        ("portrait-scratched", "To paint on", x, False, "holes"),
        ("portrait-pixels", "Pixels lost", pixels, False, "pixels"),
    ]
    examples = []
    for name, label, image, clean, trouble in made:
        path = folder / f"{name}.png"
        to_picture(image).save(path)
        examples.append(Example(path, label, clean, trouble))
    return examples
