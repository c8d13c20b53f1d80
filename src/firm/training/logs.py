"""What a run records: one JSON object a line, always; TensorBoard too, where it is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from firm._util.files import write_atomically


class Log:
    """Appends to ``metrics.jsonl`` in the run's folder."""

    def __init__(self, folder: Path, step: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "metrics.jsonl"
        kept = [row for row in read_log(folder) if row["step"] <= step]  # a resumed run repeats the rest
        write_atomically(path, "".join(json.dumps(row) + "\n" for row in kept))
        self._file = open(path, "a")  # noqa: SIM115 (open as long as the run)
        self._board: Any = None
        try:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
        except ImportError:
            pass

    def write(self, row: dict[str, Any]) -> None:
        """Record a row; its numbers go to TensorBoard under their keys."""
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        if self._board is not None:
            for key, value in row.items():
                if key != "step" and isinstance(value, int | float):
                    self._board.add_scalar(key, value, row["step"])

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._board is not None:
            self._board.close()


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's log; a last line cut short is left out."""
    path = folder / "metrics.jsonl"
    rows: list[dict[str, Any]] = []
    for line in path.read_text().splitlines() if path.is_file() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows
