"""A job of the page while it runs: its progress by tiles, and what ends it before it is done.

The page makes one `Progress` for every job. The `Restorer` gives it a time limit (`limit`), tells it how many calls
there will be (`begin`), and has it called after every tile (`advance`), which is also where a canceled job ends.
"""

import math
import time
from collections.abc import Callable

from firm.demo.request import RequestError

Report = Callable[[int, int, str], None]


class CanceledError(RuntimeError):
    """The visitor has canceled the job, or has gone."""


class Progress:
    """The progress of one job, counted as the result counts it: network calls of all samples, for the whole picture.

    Parameters
    ----------
    report
        Called with the network calls that are done, their total, and a line on where the job stands.
    stopped
        Says whether the job must end; asked at every network call, and while the job waits for its turn.
    """

    def __init__(self, report: Report = lambda *_: None, stopped: Callable[[], bool] = lambda: False) -> None:
        self.report, self.stopped = report, stopped
        self.minutes = self.end = math.inf
        self.part = ""  # of several pictures: which one it is

    def limit(self, minutes: float) -> None:
        """Give the job this many minutes from now, all its parts together."""
        if self.end == math.inf:
            self.minutes, self.end = minutes, time.monotonic() + 60 * minutes

    def begin(self, calls: int, tiles: int, label: str = "Restoring") -> None:
        """Start to count.

        Parameters
        ----------
        calls
            Network calls as the result counts them.
        tiles
            How often the network is really called: for each batch, step, iteration and tile of the picture.
        label
            What is being done.
        """
        self.calls, self.tiles, self.label, self.tiles_done = calls, tiles, label, 0
        self.report(0, calls, self.line())

    def advance(self) -> None:
        """Count one tile; to be called whenever the network has restored one."""
        self.check()
        self.tiles_done += 1
        if self.tiles_done == 1:
            self.started = time.monotonic()  # the first call prepares the network, and says nothing about the others
        self.report(self.calls * self.tiles_done // self.tiles, self.calls, self.line())

    def check(self) -> None:
        """Raise `CanceledError` if the job must end, and `RequestError` if its time is over."""
        if self.stopped():
            raise CanceledError
        if time.monotonic() > self.end:
            raise RequestError(
                f"stopped after {self.minutes:g} minutes, the most that one request may take here: choose fewer steps "
                "or samples, or a smaller picture"
            )

    def line(self) -> str:
        """Say how much is done, and how much time is left once that can be told."""
        line = f"{self.part}{self.label}: {100 * self.tiles_done // self.tiles} %"
        if 1 < self.tiles_done < self.tiles:
            left = (time.monotonic() - self.started) / (self.tiles_done - 1) * (self.tiles - self.tiles_done)
            line += f", about {max(1, round(left))} s left" if left < 90 else f", about {round(left / 60)} min left"
        return line
