"""What a run records: one JSON object a line, always; TensorBoard too, where it is installed."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from firm._util.files import write_atomically


class Log:
    """Appends to ``metrics.jsonl`` in the run's folder."""

    def __init__(self, folder: Path, step: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, path = folder, folder / "metrics.jsonl"
        kept = [row for row in read_log(folder) if row["step"] <= step]  # a resumed run repeats the rest
        write_atomically(path, "".join(json.dumps(row) + "\n" for row in kept))
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (open as long as the run)
        self._board: Any = None
        try:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
        except ImportError:
            pass

    def write(self, row: dict[str, Any]) -> None:
        """Record a row, whole or not at all; its numbers go to TensorBoard under their keys."""
        line, end = f"{json.dumps(row)}\n".encode(), self._file.seek(0, os.SEEK_END)
        try:
            while line:  # a disk that fills up takes a part first, and refuses the rest
                line = line[self._file.write(line) :]
        except OSError:
            self._file.truncate(end)
            raise
        if self._board is not None:
            for key, value in row.items():
                if key != "step" and isinstance(value, int | float):
                    self._board.add_scalar(key, value, row["step"])

    def has_scores(self, step: int) -> bool:
        """Whether a validation at this step is recorded; a row of the training has a loss."""
        return any(row["step"] == step and "loss" not in row for row in read_log(self._folder))

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._board is not None:
            with contextlib.suppress(OSError):  # curves are in the log, too
                self._board.close()


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's log; what is none, as a last line cut short, is left out."""
    path = folder / "metrics.jsonl"
    rows: list[dict[str, Any]] = []
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else []:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and type(row.get("step")) is int:
            rows.append(row)
    return rows
