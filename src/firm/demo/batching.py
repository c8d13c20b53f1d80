"""Requests that wait while others are computed are computed together: one network call serves all of one size.

Nothing waits for company: whoever comes to an idle server is computed at once, alone, and whoever comes meanwhile is in
the next batch. So a batch grows with the traffic, and a single visitor loses nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Generator, Tensor

from firm._prepare import noise_like
from firm._restore import AT_ONCE
from firm._sampling import sample
from firm.demo.jobs import Progress
from firm.demo.request import Request
from firm.demo.restorer import Prepared
from firm.operators.compose import group

ON_A_CPU = 3 * 128 * 128  # pixels in a batch: larger ones leave its caches, and are slower again


@dataclass(frozen=True, eq=False)
class Job:
    """One picture that waits to be restored, and whether anybody still waits for it."""

    request: Request
    prepared: Prepared
    gone: threading.Event = field(default_factory=threading.Event)
    done: Future[Tensor] = field(default_factory=Future)  # the picture, (C, H, W)

    @property
    def kind(self) -> Hashable:
        """What jobs of one batch share: the model, N, K and the shape of the images. The tasks may differ."""
        like, solver = self.prepared.like, self.prepared.model.solver
        return self.request.model, self.prepared.steps, solver, self.prepared.tiles.tile, tuple(like.shape[1:])


class Batcher:
    """One thread that restores the jobs that it is given, as many together as are of one kind.

    Parameters
    ----------
    most
        Images in a batch; 1 restores them one by one.
    minutes
        That a batch may compute.
    on_batch
        Called with the number of images of every batch.
    """

    def __init__(self, most: int, minutes: float, on_batch: Callable[[int], None] = lambda _: None) -> None:
        self.most, self.minutes, self.on_batch = most, minutes, on_batch
        self._waiting: list[Job] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="firm-batches", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether jobs are still worked on."""
        return self._thread.is_alive()

    @property
    def waiting(self) -> int:
        """The number of jobs that wait."""
        return len(self._waiting)

    def submit(self, job: Job) -> Future[Tensor]:
        """Have a job done; the result, or what went wrong, is in the future that is returned."""
        with self._changed:
            if self._closed:
                raise RuntimeError("the server is ending")
            self._waiting.append(job)
            self._changed.notify()
        return job.done

    def close(self) -> None:
        """Take no more jobs, and wait until those that are there are done."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                jobs = self._next()
            jobs = [job for job in jobs if not job.gone.is_set() and job.done.set_running_or_notify_cancel()]
            if jobs:
                self._restore(jobs)

    def _next(self) -> list[Job]:
        """Take the job that waits longest, and the next ones of its kind that fit beside it."""
        first = self._waiting[0]
        like = first.prepared.like
        fits = max(1, min(self.most, (AT_ONCE if like.is_cuda else ON_A_CPU) // like[0, 0].numel()))
        batch = [job for job in self._waiting if job.kind == first.kind][:fits]
        self._waiting = [job for job in self._waiting if job not in batch]
        return batch

    def _restore(self, jobs: Sequence[Job]) -> None:
        """Restore jobs of one kind; if that fails, each by itself, since one may be to blame."""
        try:
            images = restore_together(jobs, self.minutes)
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].done.set_exception(error)
                return
            for job in jobs:
                self._restore([job])
            return
        self.on_batch(len(jobs))
        for job, image in zip(jobs, images, strict=True):
            job.done.set_result(image)


def restore_together(jobs: Sequence[Job], minutes: float = float("inf")) -> list[Tensor]:
    """Restore jobs of one kind by the same network calls; each starts from its own noise, as if it were alone.

    It ends early, with CanceledError, when nobody waits for any of them, and with RequestError after some minutes.
    """
    problems = [job.prepared.problem for job in jobs]
    first = jobs[0].prepared
    progress = Progress(stopped=lambda: all(job.gone.is_set() for job in jobs))
    progress.limit(minutes)
    first.tiles.on_tile = progress.check
    like = [job.prepared.like for job in jobs]
    x_0 = torch.cat([
        noise_like(x, Generator().manual_seed(job.request.seed)) for x, job in zip(like, jobs, strict=True)
    ])  # fmt: skip
    sigma = torch.cat([torch.full((len(x),), problem.sigma) for x, problem in zip(like, problems, strict=True)])
    op: Any = problems[0].op
    y = problems[0].y
    if len(jobs) > 1:
        op, y = group([(problem.op, problem.y) for problem in problems])
    x = sample(first.model, op, y, first.steps, sigma=sigma.to(y.device), x_0=x_0)
    parts = x.split([len(v) for v in like])
    return [problem.finish(part)[0] for problem, part in zip(problems, parts, strict=True)]
