"""What a run reports: one JSON object a line, curves for TensorBoard, and a bar or lines for whoever watches."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firm._util.files import write_atomically
from firm._util.terminal import on_terminal, progress_bar

if TYPE_CHECKING:
    from firm.training.config import TrainConfig
    from firm.training.trainer import Trainer

EVERY = 120.0  # seconds between two lines


class Log:
    """Appends to ``metrics.jsonl`` in the run's folder, and to TensorBoard where that is installed.

    A run that goes on at `step` repeats what came later: those rows are dropped.
    """

    def __init__(self, folder: Path, step: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, path = folder, folder / "metrics.jsonl"
        kept = [row for row in read_log(folder) if row["step"] <= step]
        write_atomically(path, "".join(json.dumps(row) + "\n" for row in kept))
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (open as long as the run)
        self._board: Any = None
        with contextlib.suppress(ImportError):
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def write(self, row: dict[str, Any]) -> None:
        """Record a row, whole or not at all; its numbers go to TensorBoard under their keys."""
        line, end = f"{json.dumps(row)}\n".encode(), self._file.seek(0, os.SEEK_END)
        with contextlib.ExitStack() as undo:
            undo.callback(self._file.truncate, end)
            while line:  # a disk that fills up takes a part first, and refuses the rest
                line = line[self._file.write(line) :]
            undo.pop_all()
        for key, value in row.items() if self._board is not None else ():
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
    """Read the rows of a run's log; lines that are no rows, such as a last one that was cut short, are left out."""
    path = folder / "metrics.jsonl"
    rows: list[dict[str, Any]] = []
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else []:
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict) and type(row.get("step")) is int:
                rows.append(row)
    return rows


class Progress:
    """How far a run has come: a bar on a terminal; elsewhere, as in the log of a cluster, a line every few minutes."""

    def __init__(self, config: TrainConfig, trainer: Trainer, shown: bool) -> None:
        self._config, self._trainer = config, trainer
        bar = shown and on_terminal()
        self._lines = shown and not bar
        self._next = -math.inf  # when to write a line again: the first at once
        total, unit = (round(60 * config.max_minutes), "s") if config.max_minutes else (config.total_steps, "step")
        self.bar = progress_bar(total=total, initial=self._done(), unit=unit, shown=bar)
        self.close = self.bar.close

    def _done(self) -> int:
        return int(self._trainer.elapsed) if self._config.max_minutes else self._trainer.step

    def advance(self) -> None:
        """Move the bar to where the training is."""
        self.bar.update(self._done() - self.bar.n)

    def numbers(self, row: dict[str, Any]) -> None:
        """Show what was logged: beside the bar, or in a line when it is time."""
        key = "error" if "error" in row else "loss"
        self.bar.set_postfix({key: f"{row[key]:.4f}", "img_s": f"{row['images/s']:.0f}"}, refresh=False)
        if time.monotonic() >= self._next:
            c, minutes = self._config, f"{row['minutes']:.1f}"
            done = f", {minutes} of {c.max_minutes:g}" if c.max_minutes else f" of {c.total_steps}, {minutes}"
            self._write(f"step {row['step']}{done} minutes: {key} {row[key]:.4f}, {row['images/s']:.0f} images/s")
            self._next = time.monotonic() + EVERY

    def scores(self, scores: dict[str, Any]) -> None:
        """Show what a validation found."""
        if scores:
            found = ", ".join(f"{key} {value:.2f}" for key, value in scores.items())
            self._write(f"validation at step {self._trainer.step}: {found}")

    def _write(self, line: str) -> None:
        if self._lines:
            print(line, file=sys.stderr, flush=True)
