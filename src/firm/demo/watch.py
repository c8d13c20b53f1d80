"""Progress of a restoration by its network calls, and the flag that stops it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


class StoppedError(RuntimeError):
    """The visitor has canceled."""


@dataclass(frozen=True)
class Work:
    """How many network calls a restoration takes, tiles counted one by one."""

    steps: int
    batches: int = 1  # groups of samples that go through the network together
    calls: int = 1  # of a step: iterations times tiles

    @property
    def total(self) -> int:
        """All calls."""
        return self.batches * self.steps * self.calls


class Watch:
    """Counts the network calls of one request and tells of them; stops it at the next one when `stop` is set."""

    def __init__(
        self, stop: threading.Event | None = None, tell: Callable[[int, int, str], None] | None = None
    ) -> None:
        self.stop, self._tell = stop or threading.Event(), tell
        self.begin(Work(1))

    def begin(self, work: Work, what: str = "") -> None:
        """From here on there is `work` to do; `what` is said before the step."""
        self.work, self.what, self.done, self.start = work, what, 0, time.monotonic()

    def call(self) -> None:
        """Before every network call."""
        self.check()
        if self._tell is not None:
            self._tell(self.done, self.work.total, self.text())
        self.done += 1

    def check(self) -> None:
        """Stop here if the visitor has canceled."""
        if self.stop.is_set():
            raise StoppedError("stopped")

    def text(self) -> str:
        """Where it stands: the step, and the time left once it can be told."""
        work = self.work
        batch, rest = divmod(min(self.done, work.total - 1), work.steps * work.calls)
        parts = [self.what] if self.what else []
        if work.batches > 1:
            parts.append(f"samples, part {batch + 1} of {work.batches}")
        parts.append(f"step {rest // work.calls + 1} of {work.steps}")
        if self.done:
            left = (time.monotonic() - self.start) / self.done * (work.total - self.done)
            parts.append(f"about {_duration(left)} left")
        return ", ".join(parts)


def _duration(seconds: float) -> str:
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"


class Watched(nn.Module):
    """An estimator that tells a `Watch` of every call."""

    def __init__(self, estimator: nn.Module, watch: Watch) -> None:
        super().__init__()
        self.estimator, self.watch = estimator, watch
        self.config: dict[str, Any] = getattr(estimator, "config", {})
        self.stride: int = getattr(estimator, "stride", 1)

    def forward(self, *inputs: Tensor) -> Tensor:
        """As the estimator."""
        self.watch.call()
        return self.estimator(*inputs)


class Stops:
    """Which restorations run for which visitor, so that one can cancel their own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, set[threading.Event]] = {}

    def start(self, visitor: str) -> threading.Event:
        """A flag for a restoration that begins."""
        stop = threading.Event()
        with self._lock:
            self._running.setdefault(visitor, set()).add(stop)
        return stop

    def end(self, visitor: str, stop: threading.Event) -> None:
        """It is over."""
        with self._lock:
            running = self._running.get(visitor, set())
            running.discard(stop)
            if not running:
                self._running.pop(visitor, None)

    def stop(self, visitor: str) -> int:
        """Stop all of a visitor's restorations; how many there were."""
        with self._lock:
            running = self._running.get(visitor, set())
            for stop in running:
                stop.set()
            return len(running)
