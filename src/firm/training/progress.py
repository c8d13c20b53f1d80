"""How far a run has come: a bar on a terminal; elsewhere, as in the log of a cluster, a line every few minutes."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

from firm._util.terminal import on_terminal, progress_bar
from firm.training.config import TrainConfig
from firm.training.trainer import Trainer

EVERY = 120.0  # seconds between two lines


class Progress:
    """What is shown of a run; nothing unless `shown`."""

    def __init__(self, config: TrainConfig, trainer: Trainer, shown: bool) -> None:
        self._config, self._trainer = config, trainer
        self._lines = shown and not on_terminal()
        self._next = -math.inf  # when to write a line again: the first at once
        if config.max_minutes:
            total, done, unit = round(60 * config.max_minutes), int(trainer.elapsed), "s"
        else:
            total, done, unit = config.total_steps, trainer.step, "step"
        self._bar = progress_bar(total=total, initial=done, unit=unit, shown=shown and on_terminal())

    def advance(self) -> None:
        """Move the bar to where the training is."""
        self._bar.update((int(self._trainer.elapsed) if self._config.max_minutes else self._trainer.step) - self._bar.n)

    def numbers(self, row: dict[str, Any]) -> None:
        """Show what was logged: beside the bar, or in a line when it is time."""
        told = "error" if "error" in row else "loss"
        self._bar.set_postfix({told: f"{row[told]:.4f}", "img_s": f"{row['images/s']:.0f}"}, refresh=False)
        if time.monotonic() >= self._next:
            c, minutes = self._config, f"{row['minutes']:.1f}"
            done = f", {minutes} of {c.max_minutes:g}" if c.max_minutes else f" of {c.total_steps}, {minutes}"
            values = f"{told} {row[told]:.4f}, {row['images/s']:.0f} images/s"
            self._write(f"step {row['step']}{done} minutes: {values}")
            self._next = time.monotonic() + EVERY

    def scores(self, scores: dict[str, Any]) -> None:
        """Show what a validation found."""
        if scores:
            found = ", ".join(f"{key} {value:.2f}" for key, value in scores.items())
            self._write(f"validation at step {self._trainer.step}: {found}")

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.close()

    def _write(self, line: str) -> None:
        if self._lines:
            print(line, file=sys.stderr, flush=True)
