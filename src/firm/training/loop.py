"""Drives the steps of a training run: logs, validates, saves; stopped and continued at any moment."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from firm._util.custom import CustomCodeError
from firm._util.distributed import Ranks, average, largest
from firm._util.files import remove_leftovers, write_atomically
from firm._util.locks import locked
from firm._util.machine import peak_megabytes
from firm.data.images import Images
from firm.data.picture_file import MAX_MEGAPIXELS
from firm.training.checkpoint import Checkpoints
from firm.training.checks import unused
from firm.training.config import ConfigError, TrainConfig, dump_config
from firm.training.errors import TrainingError
from firm.training.images import load_sets
from firm.training.logs import Log
from firm.training.own_code import CODE, refuse_edited_code, ways_on, write_code
from firm.training.progress import Progress
from firm.training.trainer import Trainer
from firm.training.workers import compile_beforehand


@locked(lambda config, ranks, *_, **__: config.out if ranks.main else None)
def train(
    config: TrainConfig, ranks: Ranks, progress: bool = True, max_megapixels: float = MAX_MEGAPIXELS
) -> dict[str, Any]:
    """Train to the end, or to SIGTERM or SIGINT; continues what is in ``config.out``. Returns the last numbers.

    Images of more than `max_megapixels` are refused: a limit of the machine, not a setting of the run.
    """
    out = Path(config.out)
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    checkpoints = Checkpoints(out / "checkpoints", config.network_about(), config.keep)
    if checkpoints.steps():
        _refuse_another_run(out, config)
        refuse_edited_code(out, config)
    images, held_out = load_sets(config, progress and ranks.main, max_megapixels)
    compile_beforehand(config, ranks)
    trainer = Trainer(config, ranks, images)
    _resume(trainer, checkpoints)
    problems: list[TrainingError] = []  # of the main process, which alone writes; the others shall stop with it
    log = None
    with _told(problems, out):
        log = _begin(trainer, out) if ranks.main else None
    _stop_together(problems, ranks, out)
    before, start = trainer.elapsed, time.monotonic()
    last_save, last_log, first = start, (trainer.step, trainer.elapsed), trainer.step
    losses: list[Tensor] = []
    result: dict[str, Any] = {}
    with (
        contextlib.closing(trainer.feed),
        contextlib.closing(log) if log is not None else contextlib.nullcontext(),
        _signals() as stop,
        contextlib.closing(Progress(config, trainer, progress and ranks.main)) as shown,
    ):
        if log is not None and len(held_out) and trainer.progress >= 1 and not log.has_scores(trainer.step):
            with _told(problems, out):  # its last validation failed, and may be mended now
                result |= _validate(trainer, out, held_out, log)
        while trainer.progress < 1:
            loss, norm = trainer.advance()
            losses.append(loss.detach().clone())
            now = time.monotonic()
            trainer.elapsed = largest(before + now - start - trainer.recording, ranks.device)
            stopping = bool(largest(len(stop) + len(problems), ranks.device))
            done = trainer.progress >= 1
            if trainer.step % config.log_every == 0 or done or stopping:
                trainer.check_finite()
                speed = (trainer.step - last_log[0]) * config.batch / max(1e-9, trainer.elapsed - last_log[1])
                mean = average(torch.stack(losses).mean()).item()  # each rank has its part of the batch
                row = {
                    "step": trainer.step, "loss": mean, "norm": norm.item(),
                    "rate": trainer.rate(), "images/s": round(speed, 1), "minutes": round(trainer.elapsed / 60, 3),
                    "peak_mb": peak_megabytes(ranks.device), "skipped": int(trainer.skipped),
                }  # fmt: skip
                if trainer.loss.balance is not None:
                    row["error"] = trainer.loss.balance.mean_error()
                losses, last_log = [], (trainer.step, trainer.elapsed)
                if log is not None:
                    with _told(problems, out):
                        log.write(row)
                shown.numbers(row)
                result |= row
            shown.advance()
            due = config.validate_every and trainer.step % config.validate_every == 0
            if ranks.main and len(held_out) and (done or due):
                with _told(problems, out):
                    scores = _validate(trainer, out, held_out, log)
                    shown.scores(scores)
                    result |= scores
            late = now - last_save > 60 * config.checkpoint_minutes > 0
            every = config.checkpoint_every and trainer.step % config.checkpoint_every == 0
            if ranks.main and (done or stopping or late or every):
                with _told(problems, out):
                    trainer.check_finite()  # or what is kept would be pushed out
                    checkpoints.save(trainer.state())
                    trainer.save(out / "model.safetensors")
                last_save = now
            if stopping:
                break
    _stop_together(problems, ranks, out)
    result["finished"] = trainer.progress >= 1
    result["step"], result["steps_now"] = trainer.step, trainer.step - first
    return result


def _resume(trainer: Trainer, checkpoints: Checkpoints) -> None:
    """Take over the newest good checkpoint, if there is one: the main process chooses it, for all of them."""
    ranks, none, unusable = trainer.ranks, -1, -2
    chosen, failed = -3, False
    if ranks.main:
        found = checkpoints.latest(trainer.restore)
        chosen = found if found is not None else unusable if checkpoints.steps() else none
    chosen = int(largest(chosen, ranks.device))
    if chosen == unusable:
        raise TrainingError(
            f"no checkpoint in {checkpoints.folder} can be used, so this run cannot go on. To train again from the "
            "start, delete the folder; to start from the weights of a saved model, choose another out= and init_from="
        )
    if chosen != none and not ranks.main:
        try:
            trainer.restore(checkpoints.read(chosen))
        except (OSError, ValueError, RuntimeError):
            failed = True
    if largest(failed, ranks.device):
        raise TrainingError(
            f"not every process can read {checkpoints.path(chosen)}: out= must be on a file system that they share"
        )


def _begin(trainer: Trainer, out: Path) -> Log:
    """Put the folder in order: no leftovers of a killed process, the settings, the checkpoint's model, the log."""
    remove_leftovers([out, out / "checkpoints", out / "validation"])
    if trainer.progress < 1 or not (out / "config.yaml").is_file():  # a finished run keeps those it was trained with
        write_atomically(out / "config.yaml", dump_config(trainer.config))
    if trainer.progress < 1 or not (out / CODE).is_file():
        write_code(out, trainer.config)
    if trainer.step and not trainer.is_saved(out / "model.safetensors"):  # killed between the two
        trainer.save(out / "model.safetensors")
    return Log(out, trainer.step)


@contextlib.contextmanager
def _told(problems: list[TrainingError], out: Path) -> Iterator[None]:
    """Keep what goes wrong in writing, a full disk most often, until the processes can stop together."""
    try:
        yield
    except TrainingError as error:
        problems.append(error)
    except CustomCodeError as error:  # of an objective that saves in its own way
        problems.append(TrainingError(str(error)))
    except OSError as error:
        about = (
            f"cannot write to {out}: {error.strerror or error}. What was saved before is whole: "
            "once there is room, or access, the same command goes on from the last checkpoint"
        )
        problems.append(TrainingError(about))


def _stop_together(problems: list[TrainingError], ranks: Ranks, out: Path) -> None:
    """Raise the first of the main process's problems, in every process."""
    if largest(len(problems), ranks.device):
        raise problems[0] if problems else TrainingError(f"the main process cannot go on with {out}")


def _validate(trainer: Trainer, out: Path, images: Images, log: Log | None) -> dict[str, Any]:
    """Validate; keep the model if it is the best so far. What fails here must not cost the training: it is told."""
    try:
        found = trainer.validate(images, out / "validation" / f"step_{trainer.step:09d}.png")
        scores = {key: float(value) for key, value in found.items()}
    except (TrainingError, OSError):
        raise
    except Exception as error:
        where, what, saved = "", str(error), f"The training up to here is saved in {out}"
        if isinstance(error, CustomCodeError):  # which names its place
            saved += f". Once it is mended: {ways_on(out)}"
        else:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where, what = f", {place.filename}, line {place.lineno}", f"{type(error).__name__}: {error}"
        raise TrainingError(f"validation failed at step {trainer.step}{where}: {what}. {saved}") from error
    if log is not None and scores:
        log.write({"step": trainer.step, **scores})
    main = next(iter(scores.values()), -math.inf)
    if main > trainer.best:
        trainer.best = main
        trainer.save(out / "best.safetensors")
    return scores


def _refuse_another_run(out: Path, config: TrainConfig) -> None:
    """Check that the run in this folder, which got as far as a checkpoint, is the configuration's."""
    path = out / "config.yaml"
    free = (  # may differ when a run goes on
        "max_minutes", "out", "keep", "checkpoint_every", "checkpoint_minutes", "validate_every", "log_every", "epochs",
        "val_steps", "compile", "compile_workers", "cuda_graph", "recompute", "accumulate", "cache", "data", "val_data",
    )  # fmt: skip
    if not path.is_file():
        return
    try:
        known: dict[str, Any] = dict(yaml.safe_load(path.read_text()))
    except (yaml.YAMLError, ValueError, TypeError, OSError) as error:
        raise ConfigError(
            f"{path}, the settings of the run in this folder, cannot be read: choose another out=, or delete that file "
            "if you are sure that the settings are the same"
        ) from error
    # what an older version did not know had the default's effect
    before = {**yaml.safe_load(dump_config(TrainConfig())), **known}
    now = yaml.safe_load(dump_config(config))
    looked_at = {*before, *now} - {*free} - {*unused(config)}
    changed = sorted(key for key in looked_at if before.get(key) != now.get(key))
    if changed:
        raise ConfigError(
            f"{out} holds a run with other settings ({', '.join(changed)}): "
            "choose another out=, or start from its weights with init_from="
        )


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT instead of dying of them; a second SIGINT interrupts at once."""
    received: list[int] = []

    def handler(number: int, frame: object) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, old in before.items():
            signal.signal(number, old)
