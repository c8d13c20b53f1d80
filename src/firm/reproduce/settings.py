"""What a study is run with: where the data sets are, how much of them, on which device; and the two data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from firm._util.machine import default_device
from firm.acceleration._fast import Precision
from firm.reproduce.catalog import LAYOUTS

SEED = 42  # of the measurements and of the starting noise, as in the paper
QUICK_IMAGES = 10


@dataclass(frozen=True)
class Subject:
    """A data set of the paper: its name, the side of its images, our model for it, and its baselines' networks."""

    dataset: str
    size: int
    model: str
    networks: str  # the beginning of the names of its baselines' networks
    title: str


CELEBA = Subject("celeba", 128, "face-128", "face", "CelebA")
AFHQ = Subject("afhq", 256, "cat-256", "cat", "AFHQ-Cat")


@dataclass(frozen=True)
class Settings:
    """Given by the user, the same for every study. A study NAME writes to ``out/NAME``."""

    out: Path = Path("outputs")
    celeba: Path | None = None  # folder of CelebA: img_align_celeba and list_eval_partition.txt
    afhq: Path | None = None  # folder of AFHQ: train/cat, val/cat, test/cat
    quick: bool = False  # ten images, nothing is trained
    limit: int | None = None  # how many test images, where not the study's own number
    steps: Sequence[int] | None = None  # FIRM's N, where not the study's own
    methods: str | None = None  # baselines, where not the study's own
    model: str | None = None  # instead of the bundled one
    weights: Path | None = None  # folder of the baselines' networks
    batch: int = 50  # images at once on a GPU
    precision: Precision = "auto"
    device: torch.device = field(default_factory=default_device)
    command: str = ""  # as it was typed
    own: Mapping[str, Any] = field(default_factory=dict)  # options that only one study has

    def folder(self, study: str) -> Path:
        """Where a study writes."""
        return self.out / study

    def images(self, full: int) -> int:
        """How many test images: what was given, ten where it is to be quick, else the study's own number."""
        return self.limit or (min(QUICK_IMAGES, full) if self.quick else full)

    def option(self, name: str, usual: Any) -> Any:
        """What was given for an option that only one study has, or its usual value."""
        given = self.own.get(name)
        return usual if given is None else given

    def data(self, subject: Subject) -> Path:
        """The folder of a data set; an error with its layout where none was given."""
        found = self.celeba if subject.dataset == "celeba" else self.afhq
        if found is None:
            raise ValueError(f"this needs {LAYOUTS[subject.dataset]}")
        return found
