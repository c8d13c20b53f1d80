"""Checkpoints that survive a crash: written aside and renamed, the last few kept, a damaged one passed over."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import torch

from firm._util.files import write_atomically

FORMAT = 1


def save_checkpoint(folder: Path, state: dict[str, Any], keep: int) -> Path:
    """Write ``step_NNN.pt``, then remove all but the last `keep`."""
    path = folder / f"step_{state['step']:09d}.pt"
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **state}, buffer)
    write_atomically(path, buffer.getvalue())
    for old in _checkpoints(folder)[:-keep]:
        old.unlink(missing_ok=True)
    return path


def load_checkpoint(folder: Path, network: dict[str, Any]) -> dict[str, Any] | None:
    """The newest checkpoint that can be read and is of this network, or None; the others are warned of."""
    for path in reversed(_checkpoints(folder)):
        try:
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            if state.get("format") != FORMAT:
                raise ValueError(f"format {state.get('format')}, expected {FORMAT}")
            if state["network"] != network:
                raise ValueError("it is of another network")
            return state
        except Exception as error:  # torch.load raises many kinds on damaged files
            warnings.warn(f"{path} is passed over: {type(error).__name__}: {error}", stacklevel=2)
    return None


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("step_*.pt"))
