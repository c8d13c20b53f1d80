"""Names that tell models and methods apart, in tables and in the names of folders."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from firm._model import bundled

LONGEST = 60  # characters of one name
LONGEST_FOLDER = 150  # bytes of what a folder's name is made of; file systems take 255 in all


def folder_name(name: str, fingerprint: str, card: dict[str, Any] | None = None) -> str:
    """The part of a folder's name that tells a model from others, also from those whose files are called the same."""
    return f"{plain(_called(card) or Path(name).stem)}-{fingerprint[:8]}"


def joined(parts: Iterable[str]) -> str:
    """Names of models and methods as one, for a folder; where there are too many, the first ones and a hash of all."""
    whole = "+".join(parts)
    if len(whole.encode()) <= LONGEST_FOLDER:
        return whole
    start = whole.encode()[: LONGEST_FOLDER - 9].decode(errors="ignore")
    return f"{start}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"


def names_of_model(name: str, fingerprint: str, card: dict[str, Any]) -> list[str]:
    """What a model may be called in a table, from the shortest to one that no other model has.

    `name` is how the user named it: a bundled model, a file, or the folder of a training run. A run's model.safetensors
    is called like its folder.
    """
    path = Path(name).absolute()
    path = path.parent if path.name == "model.safetensors" else path
    stem = path.stem if path.suffix == ".safetensors" else path.name
    short = plain(_called(card) or stem)
    longer = [] if name in bundled() else [f"{plain(path.parent.name)}/{plain(stem)}"]
    return [short, *longer, f"{short}-{fingerprint[:8]}"]


def told_apart(candidates: Sequence[Sequence[str]], taken: Iterable[str] = ()) -> list[str]:
    """One of the names of each: the first that neither another one of them has nor is `taken`; the last, if none is."""
    used, names = set(taken), []
    for i, own in enumerate(candidates):
        others = {name for j, other in enumerate(candidates) if j != i for name in other[:-1]}
        names.append(next((name for name in own if name not in used and name not in others), own[-1]))
    return names


def plain(text: str) -> str:
    """A name without what folders and tables do not take."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in text)[:LONGEST]


def _called(card: dict[str, Any] | None) -> str:
    """The name in a model's card; empty where it has none."""
    called = (card or {}).get("name")
    return called if isinstance(called, str) else ""
