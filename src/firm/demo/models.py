"""The models that the page offers, loaded when first asked for."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import torch

from firm import bundled, fast, load
from firm._model import Firm, find
from firm._model_file import read_facts
from firm.acceleration._fast import Precision
from firm.demo.request import RequestError

KEPT = 2  # models in memory


def offered(own: Sequence[str] = ()) -> list[str]:
    """The visitor's choice: `own` models first, then those bundled for pictures, a general one before the others."""
    pictures = [name for name in bundled() if _channels(name) in (1, 3)]
    for name in own:
        if _channels(name) not in (1, 3):
            raise ValueError(f"{name} is no model for pictures: the page needs one of 1 or 3 channels")
    return [*own, *sorted(pictures, key=lambda name: (name != "photo", name))]


def _channels(name: str) -> int | None:
    """As the file's header says; None for what restores no images."""
    facts = read_facts(find(name))
    value = (facts.get("config") or {}).get("channels", facts["card"].get("channels"))
    return value if isinstance(value, int) and facts["kind"] == "firm" else None


class Models:
    """Models by name, made fast on a device; the last few stay in memory."""

    def __init__(self, names: Sequence[str], device: torch.device, precision: Precision = "auto") -> None:
        self.names, self.device, self.precision = list(names), device, precision
        self._lock = threading.Lock()
        self._loaded: dict[str, Firm] = {}

    def get(self, name: str) -> Firm:
        """The model; one that the page does not offer is refused, since a name might be any file."""
        if name not in self.names:
            raise RequestError(f"there is no model {name!r} here: {', '.join(map(label, self.names))}")
        with self._lock:
            model = self._loaded.pop(name, None) or fast(load(name).to(self.device), self.precision)
            self._loaded[name] = model  # the last one used is the last to go
            while len(self._loaded) > KEPT:
                del self._loaded[next(iter(self._loaded))]
            return model


def label(name: str) -> str:
    """What the page calls a model: a file by its name alone."""
    return Path(name).stem if name.endswith(".safetensors") else name
