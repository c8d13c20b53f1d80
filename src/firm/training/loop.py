"""Algorithm 1 from its first step to its last: logs, validates, saves; stopped and continued at any moment."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import signal
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from firm._util.custom import CustomCodeError
from firm._util.files import locked
from firm._util.machine import Ranks, joined, largest
from firm.data.images import Images
from firm.data.opening import MAX_MEGAPIXELS
from firm.training.config import ConfigError, TrainConfig
from firm.training.estimate import compile_beforehand
from firm.training.feed import load_sets
from firm.training.log import Log, Progress
from firm.training.objectives import TrainingError
from firm.training.run_folder import Checkpoints, RunFolder
from firm.training.trainer import Trainer


@locked(lambda config, ranks, *_, **__: config.out if ranks.main else None)
def train(
    config: TrainConfig, ranks: Ranks, progress: bool = True, max_megapixels: float = MAX_MEGAPIXELS
) -> dict[str, Any]:
    """Train to the end, or to SIGTERM, SIGINT or SIGHUP; continue what is in ``config.out``.

    Parameters
    ----------
    config
        Everything that defines the run.
    ranks
        This process among all that train together.
    progress
        Whether to show a bar, or lines.
    max_megapixels
        Larger images are refused: a limit of the machine, not a setting of the run.

    Returns
    -------
    The last numbers: those of the log, whether the run has finished, and the steps taken now.
    """
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    folder = RunFolder(Path(config.out), config)
    goes_on = bool(folder.checkpoints.steps())
    way = "start all of them with the same command, configuration and code of yours"
    _require_equal(folder.same_settings(), ranks, f"the processes were given different settings: {way}")
    if goes_on:
        folder.refuse_another_run()
    images, held_out = load_sets(config, progress and ranks.main, max_megapixels)
    folder.found(images, held_out)
    way = "give all of them the same files"
    _require_equal(str(folder.images), ranks, f"the processes found different images in {config.data}: {way}")
    if goes_on:
        folder.refuse_other_images()
    compile_beforehand(config, ranks)
    trainer = Trainer(config, ranks, images)
    _resume(trainer, folder.checkpoints)
    writer = _Writer(trainer, folder, held_out)
    writer.stop_together()
    first, last_log, last_save = trainer.step, (trainer.step, trainer.elapsed), time.monotonic()
    validate_every, checkpoint_every = config.validate_every or math.inf, config.checkpoint_every or math.inf
    losses: list[Tensor] = []
    result: dict[str, Any] = {}
    with (
        contextlib.closing(trainer.feed),
        contextlib.closing(writer),
        contextlib.closing(Progress(config, trainer, progress and ranks.main)) as shown,
        _signals() as signals,
        trainer.custom_code(),
    ):
        clock, done, stopping = _Clock(trainer), trainer.progress >= 1, False
        if done and writer.lacks_scores():  # the last validation failed, and may be mended now
            result |= writer.validate()
        while not done and not stopping:
            loss, norm = trainer.advance()
            losses.append(loss.detach().clone())
            stopping = clock(bool(signals or writer.problems))
            done = trainer.progress >= 1
            ends = done or stopping
            if ends or trainer.step % config.log_every == 0:
                trainer.check_finite()
                row = trainer.numbers(losses, norm, *last_log)
                losses, last_log = [], (trainer.step, trainer.elapsed)
                shown.numbers(row)
                result |= row
                writer.write(row)
            if not shown.bar.disable:
                shown.advance()
            if done or trainer.step % validate_every == 0:
                scores = writer.validate()
                shown.scores(scores)
                result |= scores
            late = time.monotonic() - last_save > 60 * config.checkpoint_minutes > 0
            if ends or late or trainer.step % checkpoint_every == 0:
                writer.save()
                last_save = time.monotonic()
    writer.stop_together()
    return result | {"finished": done, "step": trainer.step, "steps_now": trainer.step - first}


def _require_equal(text: str, ranks: Ranks, message: str) -> None:
    """Refuse, in every process, if they do not all have the same `text`; `message` says what to do."""
    if ranks.world == 1:
        return
    number = int(hashlib.sha256(text.encode()).hexdigest()[:12], 16)  # exact in float64
    if largest(number, ranks.device) != -largest(-number, ranks.device):
        raise ConfigError(message)


class _Clock:
    """One clock and one decision to stop for all processes: the largest of what they say, in one message a step.

    The answer to a step's question is read in the next step, so that neither the CPU nor the GPU waits for it. A single
    process needs no answer.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer, self._joined, self._device = trainer, joined(), trainer.ranks.device
        self._start = time.monotonic() - trainer.elapsed
        on_gpu = self._device.type == "cuda"
        self._answer = torch.tensor([trainer.elapsed, 0.0], dtype=torch.float64, pin_memory=on_gpu)
        self._read = torch.cuda.Event() if on_gpu else None

    def __call__(self, stop: bool) -> bool:
        """Set the trainer's seconds, but for those of compiling and recording; tell whether to stop."""
        elapsed = time.monotonic() - self._start - self._trainer.gradients.seconds
        if self._joined:
            if self._read is not None:
                self._read.synchronize()  # returns at once where nothing was recorded
            known, known_stop = self._answer.tolist()
            numbers = [torch.full((), v, dtype=torch.float64, device=self._device) for v in (elapsed, float(stop))]
            asked = torch.stack(numbers)  # made on the device: nothing is copied to it
            dist.all_reduce(asked, dist.ReduceOp.MAX)
            self._answer.copy_(asked, non_blocking=True)
            if self._read is not None:
                self._read.record()
            elapsed, stop = known, bool(known_stop)
        self._trainer.elapsed = elapsed
        return stop


def _resume(trainer: Trainer, checkpoints: Checkpoints) -> None:
    """Take over the newest good checkpoint, if there is one: the main process chooses it, for all of them."""
    ranks, chosen, none, unusable = trainer.ranks, -3, -1, -2
    if ranks.main:
        found = checkpoints.latest(trainer.restore)
        chosen = found if found is not None else unusable if checkpoints.steps() else none
    chosen = int(largest(chosen, ranks.device))
    if chosen == unusable:
        raise TrainingError(
            f"no checkpoint in {checkpoints.folder} can be used, so this run cannot go on. To train again from the "
            "start, delete the folder; to start from the weights of a saved model, choose another out= and init_from="
        )
    failed = chosen != none and not ranks.main
    if failed:
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            trainer.restore(checkpoints.read(chosen))
            failed = False
    if largest(failed, ranks.device):
        where = f"step {chosen} in {checkpoints.folder}: out= must be on a file system that they share"
        raise TrainingError(f"not every process can read {where}")


class _Writer:
    """What the main process writes into the folder of a run: log, models, checkpoints. The others write nothing.

    What goes wrong in writing, a full disk most often, is kept in `problems` until the processes can stop together.
    """

    def __init__(self, trainer: Trainer, folder: RunFolder, held_out: Images) -> None:
        self.trainer, self.folder, self.held_out = trainer, folder, held_out
        self.problems: list[TrainingError] = []
        self.log: Log | None = None  # of the main process
        trainer.gather()
        if trainer.ranks.main:
            with self._kept():
                folder.write(trainer.progress >= 1)
                if trainer.step and not trainer.is_saved(folder.model):  # killed between checkpoint and model
                    trainer.save(folder.model)
                self.log = Log(folder.path, trainer.step)

    def write(self, row: dict[str, Any]) -> None:
        """Log a row."""
        if self.log is not None:
            with self._kept():
                self.log.write(row)

    def save(self) -> None:
        """Write a checkpoint, and the model that belongs to it; all processes come here, for weights may be split."""
        self.trainer.gather()
        state = self.trainer.state() if self.log is not None or self.trainer.sharded else None
        if self.log is not None and state is not None:
            with self._kept():
                self.trainer.check_finite()  # or what is kept would be pushed out
                self.folder.checkpoints.save(state)
                self.trainer.save(self.folder.model)

    def lacks_scores(self) -> bool:
        """Tell whether this step should have been validated and was not."""
        return self.log is not None and len(self.held_out) > 0 and not self.log.has_scores(self.trainer.step)

    def validate(self) -> dict[str, Any]:
        """Validate, and keep the model if it is the best so far; return the scores. A failure costs no training."""
        scores: dict[str, Any] = {}
        self.trainer.gather()
        if self.log is not None and len(self.held_out):
            with self._kept():
                scores = self._scores()
                if scores:
                    self.log.write({"step": self.trainer.step, **scores})
                main = next(iter(scores.values()), -math.inf)
                if main > self.trainer.best:
                    self.trainer.best = main
                    self.trainer.save(self.folder.path / "best.safetensors")
        return scores

    def _scores(self) -> dict[str, Any]:
        step, path = self.trainer.step, self.folder.path
        try:
            found = self.trainer.validate(self.held_out, path / "validation" / f"step_{step:09d}.png")
            return {key: float(value) for key, value in found.items()}
        except Exception as error:
            if isinstance(error, TrainingError | OSError):
                raise
            where, what, saved = "", str(error), f"The training up to here is saved in {path}"
            if isinstance(error, CustomCodeError):  # which names its place
                saved += f". Once it is mended: {self.folder.ways_on()}"
            else:
                place = traceback.extract_tb(error.__traceback__)[-1]
                where, what = f", {place.filename}, line {place.lineno}", f"{type(error).__name__}: {error}"
            raise TrainingError(f"validation failed at step {step}{where}: {what}. {saved}") from error

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except (TrainingError, CustomCodeError, OSError) as error:  # custom code: an objective may save in its own way
            about = str(error)
            if isinstance(error, OSError):
                about = (
                    f"cannot write to {self.folder.path}: {error.strerror or error}. What was saved before is whole: "
                    "once there is room, or access, the same command goes on from the last checkpoint"
                )
            self.problems.append(TrainingError(about))

    def stop_together(self) -> None:
        """Raise the first of the main process's problems, in every process."""
        if largest(len(self.problems), self.trainer.ranks.device):
            main = TrainingError(f"the main process cannot go on with {self.folder.path}")
            raise self.problems[0] if self.problems else main

    def close(self) -> None:
        """Close the log."""
        if self.log is not None:
            self.log.close()


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect SIGTERM, SIGINT and SIGHUP instead of dying of them; a second SIGINT interrupts at once.

    SIGHUP says that the terminal is gone. Where it is ignored, as under nohup, it stays so.
    """
    received: list[int] = []

    def handler(number: int, frame: object) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)

    caught = [signal.SIGTERM, signal.SIGINT]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # Windows has none
        caught.append(signal.SIGHUP)
    before = {number: signal.signal(number, handler) for number in caught}
    try:
        yield received
    finally:
        for number, old in before.items():
            signal.signal(number, old)
