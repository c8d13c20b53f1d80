"""The models that the page offers: which there are, and the one that is in memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import torch

from firm import bundled, fast, load
from firm._model import Firm, find
from firm._model_file import read_facts
from firm._util.checks import require
from firm.acceleration._fast import Precision
from firm.demo.request import RequestError


class Models:
    """The models that the page offers, loaded and made fast when asked for; the last one stays in memory.

    Parameters
    ----------
    custom
        Names or files of models to offer first. The bundled ones for pictures follow, a general one before the others.
    device, precision
        Where and how exactly to compute.
    """

    def __init__(self, custom: Sequence[str], device: torch.device, precision: Precision = "auto") -> None:
        for name in custom:
            require(_for_pictures(name), f"{name} is no model for pictures: the page needs one of 1 or 3 channels")
        pictures = sorted(filter(_for_pictures, bundled()), key=lambda name: (name != "photo", name))
        self.names, self.device, self.precision = [*custom, *pictures], device, precision
        self._lock = threading.Lock()
        self._loaded: tuple[str, Firm] | None = None

    def get(self, name: str) -> Firm:
        """Return a model by its name; names that are not offered are refused, since they might be any file."""
        offered = ", ".join(map(self.label, self.names))
        require(name in self.names, f"there is no model {name!r} here: {offered}", RequestError)
        with self._lock:
            if self._loaded is None or self._loaded[0] != name:
                self._loaded = None  # two are never in memory together
                self._loaded = name, fast(load(name).to(self.device), self.precision)
            return self._loaded[1]

    @staticmethod
    def label(name: str) -> str:
        """Return what the page calls a model: a file by its name alone."""
        return Path(name).stem if name.endswith(".safetensors") else name


def _for_pictures(name: str) -> bool:
    """Whether a model restores images of 1 or 3 channels, as its file's header says."""
    facts = read_facts(find(name))
    known = {**facts["card"], **(facts.get("config") or {})}
    return facts["kind"] == "firm" and known.get("channels") in (1, 3)
