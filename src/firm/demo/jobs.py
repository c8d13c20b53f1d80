"""The jobs of the page while they run: progress by network calls, and the flag with which visitors cancel theirs."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[int, int, str], None]


class CanceledError(RuntimeError):
    """The visitor has canceled the job."""


class Progress:
    """The progress of one job, counted as the result counts it: network calls of all samples, for the whole picture.

    Parameters
    ----------
    report
        Called with the network calls that are done, their total, and a line on where the job stands.
    canceled
        When this is set, the job ends at the next network call, or while it waits for its turn.
    """

    def __init__(self, report: Report = lambda *_: None, canceled: threading.Event | None = None) -> None:
        self.report, self.canceled = report, canceled or threading.Event()

    def begin(self, calls: int, steps: int, tiles: int, label: str = "") -> None:
        """Start to count.

        Parameters
        ----------
        calls
            Network calls as the result counts them.
        steps
            Steps of all batches of samples, one batch after the other.
        tiles
            How often the network is really called: for each batch, step, iteration and tile of the picture.
        label
            Said before the step.
        """
        self.calls, self.steps, self.tiles, self.label, self.tiles_done = calls, steps, tiles, label, 0
        self.report(0, calls, self.line())

    def advance(self) -> None:
        """Count one tile; to be called whenever the network has restored one."""
        self.check()
        self.tiles_done += 1
        if self.tiles_done == 1:
            self.started = time.monotonic()  # the first call prepares the network, and says nothing about the others
        self.report(self.calls * self.tiles_done // self.tiles, self.calls, self.line())

    def check(self) -> None:
        """Raise `CanceledError` if the visitor has canceled."""
        if self.canceled.is_set():
            raise CanceledError

    def line(self) -> str:
        """Say which step it is, and how much time is left once that can be told."""
        step = min(self.tiles_done, self.tiles - 1) * self.steps // self.tiles + 1
        parts = [self.label] if self.label else []
        parts.append(f"step {step} of {self.steps}")
        if 1 < self.tiles_done < self.tiles:
            left = (time.monotonic() - self.started) / (self.tiles_done - 1) * (self.tiles - self.tiles_done)
            parts.append(f"about {max(1, round(left))} s left" if left < 90 else f"about {round(left / 60)} min left")
        return ", ".join(parts)


class RunningJobs:
    """The jobs of each visitor, so that visitors can cancel their own."""

    def __init__(self) -> None:
        self._jobs: list[tuple[str, threading.Event]] = []

    @contextmanager
    def start(self, visitor: str) -> Iterator[threading.Event]:
        """Note a visitor's job while it runs; the event that comes back is set to cancel it."""
        job = (visitor, threading.Event())
        self._jobs.append(job)  # a list's append, remove and copy cannot be interrupted by other threads
        try:
            yield job[1]
        finally:
            self._jobs.remove(job)

    def cancel(self, visitor: str) -> int:
        """Cancel all jobs of a visitor, and return how many there were."""
        found = [canceled for name, canceled in self._jobs.copy() if name == visitor]
        for canceled in found:
            canceled.set()
        return len(found)
