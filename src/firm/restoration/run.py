"""Restore one picture or a folder of them, write the results, and say how it went."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from firm._model import Firm
from firm._restore import Restoration, batches, restore
from firm._sampling import Integrator
from firm._util.custom import CustomCodeError, custom_code
from firm._util.distributed import Ranks
from firm._util.files import is_full, remove_leftovers, write_atomically
from firm._util.locks import locked
from firm._util.progress import progress_bar
from firm.data.array_file import ArrayError
from firm.data.picture import PictureError
from firm.metrics import visible
from firm.restoration.advice import advice
from firm.restoration.calibration import TaskScale, differences, widened
from firm.restoration.earlier import (
    EarlierResultsError,
    Plan,
    begin,
    end,
    fingerprint,
    hashed,
    plan,
    remove_replaced,
    reports,
)
from firm.restoration.names import result_names
from firm.restoration.output import (
    SUFFIX,
    Format,
    write_array,
    write_deviation,
    write_heat_map,
    write_picture,
    write_side_by_side,
)
from firm.restoration.own_network import network_class
from firm.restoration.problem import Problem, ProblemError
from firm.restoration.progress import tile_bar
from firm.restoration.warned import warnings_as_notes

Row = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """How to restore, and where to write."""

    model: Firm
    problem: Callable[[Path], Problem]  # from a picture's file
    steps: int
    samples: int
    seed: int
    out: Path
    kind: Format = "png"
    settings: Mapping[str, Any] = field(default_factory=dict)  # all that tells this run from another
    inputs: Callable[[Path], list[Path]] = lambda path: [path]  # files that a picture's results depend on
    calibration: TaskScale | None = None  # what standard deviations are multiplied by
    force: bool = False  # replace what an earlier run has written
    integrator: Integrator = "euler"  # of the steps, as in `firm.sample`
    bars: bool = False  # show the time left on one picture


@locked(lambda job, files, root, ranks, *_, **__: job.out if ranks.main else None)
def restore_files(job: Job, files: Sequence[Path], root: Path, ranks: Ranks, progress: bool = True) -> list[Row]:
    """Restore `files`, shared among the ranks; one row a picture, on the main rank all of them, also in restore.json.

    A picture that cannot be restored has a row with an "error", and the others go on. One that an earlier run of the
    same settings has restored is left as it is: its row has "earlier". Results of other runs are replaced only with
    ``job.force``; else `EarlierResultsError`, before anything is restored.
    """
    places = dict(zip(_names(files, root), files, strict=True))
    if ranks.main:
        remove_leftovers({(job.out / name).parent for name in places})  # the others wait for the plan before they write
    before = _agree(job, places, ranks)
    left = {name: path for name, path in places.items() if name not in before.done}
    mine = list(left.items())[ranks.rank :: ranks.world]
    job = replace(job, bars=progress and ranks.main)
    kept = [*before.others, *before.done.values()] if ranks.main else []
    report = Report(job.out / ("restore.json" if ranks.main else f"restore.{ranks.rank}.json"), kept)
    rows: list[Row] = []
    try:
        for name, path in progress_bar(mine, unit="picture", shown=job.bars and len(mine) > 1):
            rows.append({"picture": str(path), "name": name, **_attempt(job, path, name, ranks.device)})
            report.add(rows[-1])
            if name in before.replaced:
                remove_replaced(job.out, before.replaced[name], rows[-1])
    except BaseException:  # interrupted
        with suppress(OSError):
            report.write()
        raise
    if ranks.world > 1:
        gathered: list[list[Row]] = [[] for _ in range(ranks.world)]
        dist.all_gather_object(gathered, rows)
        rows = [row for part in gathered for row in part]
    found = {row["name"]: row for row in rows} | before.done
    if ranks.main:
        Report(report.path, [*before.others, *(found[name] for name in places)]).write()
        end(job.out, list(places))
    else:
        report.path.unlink(missing_ok=True)  # the main rank has them
    return [{**found[name], "earlier": True} if name in before.done else found[name] for name in places]


def _names(files: Sequence[Path], root: Path) -> list[str]:
    """Of the results; the same however the paths are spelled."""
    return result_names([Path(os.path.abspath(path)) for path in files], Path(os.path.abspath(root)))


def _agree(job: Job, places: Mapping[str, Path], ranks: Ranks) -> Plan:
    """What is left to do, found by the main rank for all of them; it also notes what this run begins."""
    answer: list[Any] = [None]
    if ranks.main:
        settings = hashed(job.settings)
        try:
            inputs = {name: job.inputs(path) for name, path in places.items()}
            answer = [plan(job.out, places, settings, inputs, job.force)]
            if left := reports(job.out)[1:]:  # of a killed run: what they say is in the plan
                Report(job.out / "restore.json", [*answer[0].others, *answer[0].done.values()]).write()
                for path in left:
                    path.unlink(missing_ok=True)
            begin(job.out, {name: path for name, path in places.items() if name not in answer[0].done}, settings)
        except EarlierResultsError as error:
            answer = [error]
    if ranks.world > 1:
        dist.broadcast_object_list(answer)
    if isinstance(answer[0], EarlierResultsError):
        raise answer[0]
    found: Plan = answer[0]
    return found


class Report:
    """restore.json: one row a picture, written as they finish, so that a run that is killed leaves what it had."""

    def __init__(self, path: Path, rows: list[Row]) -> None:
        self.path, self.rows = path, list(rows)
        self.next = 0.0  # when to write again

    def add(self, row: Row) -> None:
        """One more picture; written at most once a second, and for a small part of the time, however many there are."""
        self.rows.append(row)
        start = time.monotonic()
        if start >= self.next:
            with suppress(OSError):  # a full disk may have room again; the last write tells
                self.write()
            self.next = time.monotonic() + max(1.0, 20 * (time.monotonic() - start))

    def write(self) -> None:
        """All rows so far; if all failed, the report of another time is left."""
        if any("error" not in row for row in self.rows):
            write_atomically(self.path, json.dumps(self.rows, indent=1))


def _attempt(job: Job, path: Path, name: str, device: torch.device) -> Row:
    """Restore one picture, or say why not: whatever it is, the others are not to blame."""
    try:
        return restore_file(job, path, name, device)
    except (PictureError, ArrayError, ProblemError) as error:
        return {"error": str(error)}
    except CustomCodeError as error:
        return {"error": f"{path}: {error}"}
    except Exception as error:
        if is_full(error):
            raise  # the others would find no room either
        return {"error": f"{path}: {type(error).__name__}: {error}"}


def restore_file(job: Job, path: Path, name: str, device: torch.device) -> Row:
    """Restore one picture and write ``out/name*``; returns what is known of it."""
    with warnings_as_notes() as warned:
        problem = job.problem(path).to(device)
        files = Files(job, problem, name)
        with _bar(job, problem), custom_code(network=network_class(job.model)):
            result = restore(
                job.model, problem.op, problem.y, job.steps, job.samples, job.seed,
                sigma=problem.sigma, integrator=job.integrator, keep=False,
                on_sample=files.sample if job.samples > 1 else None,
            )  # fmt: skip
    row: Row = {
        **problem.settings, "sigma": round(problem.settings["sigma"], 5), "N": job.steps, "integrator": job.integrator,
        "samples": job.samples, "nfe": result.nfe, "seconds": round(result.seconds, 3),
        "advice": [*problem.notes, *_as_given(warned, problem), *advice(job.model, problem, options=True)],
    }  # fmt: skip
    if job.calibration is not None and result.std is not None:
        result = replace(result, std=widened(result.std, problem.op, job.calibration))
        row["std multiplied by"] = job.calibration.scale
        row["advice"] += differences(job.calibration, problem.settings)
    row |= problem.scores(problem.finish(result.image))
    if job.samples > 1:
        row |= {f"{key} of the mean": value for key, value in problem.scores(problem.finish(result.mean)).items()}
    files.finish(result, row)
    row["written"] = [str(p) for p in files.written]
    row["run"] = fingerprint(hashed(job.settings), job.inputs(path))
    return row


def _as_given(notes: list[str], problem: Problem) -> list[str]:
    """Notes with the noise level of the picture: that of a gray one is larger inside, and the user never gave it."""
    inside, own = (f"sigma {level:.3g} " for level in (problem.sigma, problem.sigma / problem.noise_factor))
    return [note.replace(inside, own) for note in notes]


def _bar(job: Job, problem: Problem) -> AbstractContextManager[None]:
    """The time left on this picture, where it is long."""
    if not job.bars:
        return nullcontext()
    like = problem.op.A_adjoint(problem.y)
    H, W = like.shape[-2:]
    return tile_bar(job.model, (H, W), job.steps, batches(like, job.samples), job.integrator)


class Files:
    """The files of one picture's results, ``out/name_*``."""

    def __init__(self, job: Job, problem: Problem, name: str) -> None:
        self.job, self.problem, self.name = job, problem, name
        self.written: list[Path] = []

    def sample(self, i: int, x: Tensor) -> None:
        """Write sample `i` as it is drawn: none of them stays in memory."""
        self._picture(f"sample_{i + 1:02d}", self.problem.finish(x)[0])

    def finish(self, result: Restoration, row: Row) -> None:
        """Write all the rest: the picture, the mean, the standard deviation, and all of them side by side."""
        job, problem = self.job, self.problem
        image, mean = problem.finish(result.image)[0], problem.finish(result.mean)[0]
        samples, self.written = self.written, []
        self._picture("restored", image)
        if job.samples > 1:
            self._picture("mean", mean)
        self.written += samples

        def seen(x: Tensor) -> Tensor:
            return visible(x[None], problem.complex)[0]

        how = f"N = {job.steps}" + ("" if job.integrator == "euler" else f" {job.integrator}")
        score = f": {row['psnr']:.2f} dB" if "psnr" in row else ""
        panels = [("measurement", problem.shown[0]), (f"restored, {how}{score}", seen(image))]
        if result.std is not None:
            std = problem.spread(result.std)[0]
            if problem.array:
                write_deviation(self._at("std", ".npy"), std, problem.complex, problem.value_range)
            row["largest std"] = round(write_heat_map(self._at("std", ".png"), std), 5)  # its brightest color
            deviation = "standard deviation" + (", calibrated" if job.calibration is not None else "")
            psnr = f": {row['psnr of the mean']:.2f} dB" if "psnr of the mean" in row else ""
            panels += [(f"mean of {job.samples}{psnr}", seen(mean)), (deviation, std.mean(0))]
        if problem.truth is not None:
            panels.insert(0, ("truth", seen(problem.truth[0])))
        write_side_by_side(self._at("compare", ".png"), [panels])

    def _picture(self, what: str, x: Tensor) -> None:
        if self.problem.array:
            write_array(self._at(what, ".npy"), x, self.problem.complex, self.problem.value_range)
        else:
            write_picture(self._at(what, SUFFIX[self.job.kind]), x, self.job.kind, self.problem.alpha)

    def _at(self, what: str, ending: str) -> Path:
        path = self.job.out / f"{self.name}_{what}{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        self.written.append(path)
        return path
