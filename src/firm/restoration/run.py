"""Restore one picture or a folder of them: read, restore, write the results, and say how it went."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from firm._model import Firm
from firm._restore import MisfitWarning, batches, restore
from firm._sampling import Integrator
from firm._util.custom import CustomCodeError, custom_code
from firm._util.files import folder_lock, is_full
from firm._util.machine import Ranks
from firm._util.terminal import progress_bar
from firm.acceleration._fast import network_class
from firm.acceleration.tiling import Tiled
from firm.data.array_file import ArrayError
from firm.data.opening import PictureError, header
from firm.metrics import visible
from firm.operators.base import is_linear
from firm.restoration.advice import advice
from firm.restoration.calibration import TaskScale
from firm.restoration.earlier import Earlier, Report, Row, digest, fingerprint
from firm.restoration.output import (
    Format,
    ending,
    result_names,
    write_array,
    write_heat_map,
    write_picture,
    write_side_by_side,
)
from firm.restoration.problem import NothingToDoError, Problem, ProblemError
from firm.restoration.scan import Scan, restore_scan

LIBRARY = Path(__file__).parents[1]
PATIENCE = 2.0  # seconds before a bar appears


@dataclass(frozen=True)
class Job:
    """How to restore, and where to write."""

    model: Firm
    problem: Callable[[Path], Problem | Scan]  # from a picture's file, or an instrument's
    steps: int
    samples: int
    seed: int
    out: Path
    kind: Format = "same"
    settings: Mapping[str, Any] = field(default_factory=dict)  # all that tells this run from another
    inputs: Mapping[Path, Sequence[Path]] = field(default_factory=dict)  # files that results depend on: else its own
    calibration: TaskScale | None = None  # what standard deviations are multiplied by
    force: bool = False  # replace what an earlier run has written
    integrator: Integrator = "euler"
    compare: bool = True  # write NAME_compare.png
    final_solve: bool = False  # bring samples to their measurements
    bars: bool = False  # show the time left on one picture


# Restores pictures, by the names of their results: from a job, and where it computes, to rows as they finish.
Engine = Callable[[Job, Sequence[tuple[str, Path]], torch.device], Iterable[tuple[str, Row]]]


def one_by_one(job: Job, left: Sequence[tuple[str, Path]], device: torch.device) -> Iterator[tuple[str, Row]]:
    """Restore pictures one after the other, in this process."""
    for name, path in left:
        yield name, attempt(job, path, name, device)


def restore_files(
    job: Job, files: Sequence[Path], root: Path, ranks: Ranks, progress: bool = True, engine: Engine = one_by_one
) -> list[Row]:
    """Restore files, shared among the processes of a run, which holds the folder of the results meanwhile.

    A picture that cannot be restored has a row with an "error", and the others go on. One that an earlier run of the
    same settings has restored is left as it is: its row has "earlier". Results of other runs are replaced only with
    ``job.force``; else ValueError, before anything is restored. Results lie in ``job.out`` as `files` do below `root`.

    Parameters
    ----------
    job
        How to restore, and where to write.
    files, root
        Pictures or arrays, and a folder that all of them lie below.
    ranks
        This process among those of the run; each restores its share of the files.
    progress
        Show progress bars, on the main process.
    engine
        What restores this process's share, such as `firm.scale.ray.on_ray`.

    Returns
    -------
    One row a picture, on the main rank of all of them, also in restore.json.
    """
    main, shared = ranks.rank == 0, ranks.world > 1
    job = replace(job, bars=progress and main)
    with folder_lock(job.out if main else None):
        places = names_of(files, root)
        found: list[Any] = [None]
        if main:  # the others wait for what it finds before they write
            found = [Earlier.find(job.out, places, job.settings, job.inputs, job.force)]
        if shared:
            dist.broadcast_object_list(found)
        before: Earlier = found[0]
        if before.clash:
            raise ValueError(before.clash)
        left = [(name, path) for name, path in places.items() if name not in before.done]
        mine = left[ranks.rank :: ranks.world]
        results = dict(before.done)
        with Report(before, ranks.rank) as report:
            done = engine(job, mine, ranks.device)
            for name, row in progress_bar(done, total=len(mine), unit="picture", shown=job.bars and len(mine) > 1):
                results[name] = {"picture": str(places[name]), "name": name, **row}
                report.add(results[name])
        if shared:
            gathered: list[dict[str, Row]] = [{} for _ in range(ranks.world)]
            dist.all_gather_object(gathered, results)
            results = {name: row for part in gathered for name, row in part.items()}
        report.finish(list(places), results)
    return [{**results[name], "earlier": True} if name in before.done else results[name] for name in places]


def names_of(files: Sequence[Path], root: Path) -> dict[str, Path]:
    """Return the files by the names of their results, which are the same however the paths are spelled."""
    absolute = [Path(os.path.abspath(path)) for path in files]
    return dict(zip(result_names(absolute, Path(os.path.abspath(root))), files, strict=True))


def try_out(job: Job, path: Path, name: str, device: torch.device) -> str:
    """Restore what `job.problem` makes of a picture, a region of it, and write ``out/name_preview.png``.

    Returns a sentence: where to look, and how long the whole will take; or that it needs nothing.
    """
    try:
        opened = job.problem(path)
    except NothingToDoError as nothing:
        return f"{path.name}: {nothing}"
    if isinstance(opened, Scan):
        raise ProblemError(f"{path}: --preview is for pictures")
    problem = opened.to(device)
    r = restore(job.model, problem.op, problem.y, job.steps, 1, job.seed, sigma=problem.told, keep=False)
    out = job.out / f"{name}_preview.png"
    panels = [("before", problem.shown[0]), ("after", problem.finish(r.image)[0])]
    write_side_by_side(out, [panels], problem.origin)
    with header(path) as picture:
        whole = r.seconds * picture.width * picture.height / problem.shown[0, 0].numel()
    return f"see {out}; the whole picture takes about {max(1.0, whole):.0f} s"


def attempt(job: Job, path: Path, name: str, device: torch.device) -> Row:
    """Restore one picture, or say why not: whatever it is, the others are not to blame."""
    try:
        return _restore_file(job, path, name, device)
    except NothingToDoError as nothing:
        return {"nothing": str(nothing), "written": []}
    except Exception as error:
        if is_full(error):
            raise  # the others would find no room either
        if isinstance(error, PictureError | ArrayError | ProblemError):
            return {"error": str(error)}
        try:
            with custom_code(network=network_class(job.model)):
                raise
        except CustomCodeError as theirs:
            return {"error": f"{path}: {theirs}"}
        except Exception:
            return {"error": f"{path}: {type(error).__name__}: {error}"}


def _restore_file(job: Job, path: Path, name: str, device: torch.device) -> Row:
    """Restore one picture, write ``out/name_*``, and return what is known of it: a row of restore.json."""
    run = fingerprint(job.settings, job.inputs.get(path, [path]))  # before they are read: a later change will show
    with warnings_as_notes() as warned:
        opened = job.problem(path)
        if isinstance(opened, Scan):
            scale = None if job.calibration is None else job.calibration.widened
            row: Row = {"task": job.settings.get("task") or "denoising"}
            row |= restore_scan(
                job.model, opened, job.out / name, job.steps, job.samples, job.seed, device, scale=scale,
                integrator=job.integrator, final_solve=job.final_solve, compare=job.compare, progress=job.bars,
            )  # fmt: skip
        else:
            row = _restore_picture(job, opened.to(device), name)
    row["advice"] += warned
    return {**row, "digests": [digest(Path(p)) for p in row["written"]], "run": run}


def _restore_picture(job: Job, problem: Problem, name: str) -> Row:
    """Restore one image and write ``out/name_*``; returns what is known of it."""
    with warnings_as_notes() as warned:
        results = _Results(job, problem, name)
        if not (problem.array or problem.truth is not None):  # of photographs the level is a guess, and says little
            warnings.simplefilter("ignore", MisfitWarning)
        with _tile_bar(job, problem):
            result = restore(
                job.model, problem.op, problem.y, job.steps, job.samples, job.seed, sigma=problem.told, keep=False,
                integrator=job.integrator, final_solve=job.final_solve and is_linear(problem.op),
                on_sample=results.sample if job.samples > 1 else None,
            )  # fmt: skip
    # Of a gray picture the noise is larger inside, by a factor that the user never gave.
    inside, outside = (f"sigma {level:.3g} " for level in (problem.sigma, problem.sigma / problem.noise_factor))
    notes = [*problem.notes, *(note.replace(inside, outside) for note in warned)]
    row: Row = {
        **problem.settings, "sigma": round(problem.settings["sigma"], 5), "N": job.steps, "integrator": job.integrator,
        "samples": job.samples, "nfe": result.nfe, "seconds": round(result.seconds, 3),
        "advice": [*notes, *advice(job.model, problem, options=True)],
    }  # fmt: skip
    row |= {} if result.residual is None else {"residual": round(float(result.residual.mean()), 3)}
    excess = getattr(problem.op, "excess", None)
    if excess is not None:  # of the coefficients of a JPEG
        row["outside its cells by"] = round(float(excess(result.image, problem.y).max()), 4)
    std = result.std
    if job.calibration is not None and std is not None:
        row["std multiplied by"] = job.calibration.scale
        row["advice"] += job.calibration.notes(problem.settings, std, problem.op)
        std = job.calibration.widened(std, problem.op)
    image, mean = problem.finish(result.image), problem.finish(result.mean)
    row |= problem.scores(image)
    if job.samples > 1:
        row |= {f"{key} of the mean": value for key, value in problem.scores(mean).items()}
    results.write(image[0], mean[0], None if std is None else problem.spread(std)[0], row)
    return {**row, "written": results.written}


@contextmanager
def warnings_as_notes() -> Iterator[list[str]]:
    """Yield a list that has the library's own warnings when the block ends; those of other code stay warnings.

    The same sentence with other numbers is told once: a solver that warns does so in every step.
    """
    notes: dict[str, str] = {}
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", module=r"firm\.")  # for every picture, not only for the first
        yield found
    for said in caught:
        if Path(said.filename).is_relative_to(LIBRARY):
            notes.setdefault(re.sub(r"\d\S*", "", str(said.message)), str(said.message))
        else:
            warnings.warn_explicit(said.message, said.category, said.filename, said.lineno)
    found.extend(notes.values())


@contextmanager
def _tile_bar(job: Job, problem: Problem) -> Iterator[None]:
    """Show the time left on one picture: a bar over all network calls on all tiles, with the step, on a terminal."""
    estimator = job.model.estimator
    if not (job.bars and isinstance(estimator, Tiled)):
        yield
        return
    like = problem.op.A_adjoint(problem.y)
    drawn_at_once, tiles = batches(like, job.samples), estimator.count(int(like.shape[-2]), int(like.shape[-1]))
    calls = job.model.calls(job.steps, job.integrator)
    of_a_step = max(job.model.solver.K, 1) * (
        1 if job.integrator in ("euler", "churn") else 2
    )  # Heun's last step has fewer

    def advance() -> None:
        batch, call = divmod(int(bar.n) // tiles, calls)
        step = f"step {call // of_a_step + 1} of {job.steps}"
        drawn = f"sample {sum(drawn_at_once[:batch]) + 1} of {job.samples}, " if job.samples > 1 else ""
        bar.set_description(drawn + step, refresh=False)
        bar.update()

    total = tiles * calls * len(drawn_at_once)  # tiles take the same time: the mean of all tells best what is left
    with progress_bar(total=total, unit="tile", delay=PATIENCE, leave=False, smoothing=0) as bar:
        estimator.on_tile = advance
        try:
            yield
        finally:
            estimator.on_tile = None


class _Results:
    """The files of one picture's results, ``out/name_*``."""

    def __init__(self, job: Job, problem: Problem, name: str) -> None:
        self.job, self.problem, self.name = job, problem, name
        self.written: list[str] = []

    def sample(self, i: int, x: Tensor) -> None:
        """Write sample `i` as it is drawn: none of them stays in memory."""
        self._image(f"sample_{i + 1:02d}", self.problem.finish(x)[0])

    def write(self, image: Tensor, mean: Tensor, std: Tensor | None, row: Row) -> None:
        """Write all the rest (C, H, W): the picture, the mean, the standard deviation, and all of them side by side."""
        job, problem = self.job, self.problem
        samples, self.written = self.written, []
        self._image("restored", image)
        if job.samples > 1:
            self._image("mean", mean)
        self.written += samples
        if std is not None:
            if problem.array:
                path = self._at("std", ".npy")
                write_array(path, std, problem.complex, problem.value_range, deviation=True)
            elif job.kind == "npy":  # (H, W, C) in [0, 1], as the pictures
                write_array(self._at("std", ".npy"), std.permute(1, 2, 0), value_range=(0.0, 1.0), deviation=True)
            row["largest std"] = round(write_heat_map(self._at("std", ".png"), std), 5)  # its brightest color
        if problem.kernel is not None:  # which `--kernel FILE` reads again
            write_picture(self._at("kernel", ".png"), _seen_kernel(problem.kernel), "png16")
        if job.compare:
            self._compare(image, mean, std, row)

    def _compare(self, image: Tensor, mean: Tensor, std: Tensor | None, row: Row) -> None:
        """Write all of them side by side, with their PSNR where the truth is known."""
        job, problem, path = self.job, self.problem, self._at("compare", ".png")

        def seen(x: Tensor) -> Tensor:
            return visible(x[None], True)[0] if problem.complex else x

        how = f"N = {job.steps}" + ("" if job.integrator == "euler" else f" {job.integrator}")
        score = f": {row['psnr']:.2f} dB" if "psnr" in row else ""
        photograph = problem.truth is None and not problem.array
        before, after = ("before", "after") if photograph else ("measurement", f"restored, {how}{score}")
        panels = [(before, problem.shown[0]), (after, seen(image))]
        if std is not None:
            deviation = "standard deviation" + (", calibrated" if job.calibration is not None else "")
            psnr = f": {row['psnr of the mean']:.2f} dB" if "psnr of the mean" in row else ""
            panels += [(f"mean of {job.samples}{psnr}", seen(mean)), (deviation, std.mean(0))]
        if problem.kernel is not None:
            panels.insert(1, ("its blur, estimated", _seen_kernel(problem.kernel)))
        if problem.truth is not None:
            panels.insert(0, ("truth", seen(problem.truth[0])))
        write_side_by_side(path, [panels], problem.origin)

    def _image(self, what: str, x: Tensor) -> None:
        if self.problem.array:
            write_array(self._at(what, ".npy"), x, self.problem.complex, self.problem.value_range)
        else:
            kind, p = self.job.kind, self.problem
            write_picture(self._at(what, ending(kind, p.origin)), x, kind, p.alpha, p.origin, p.value_range)

    def _at(self, what: str, ending: str) -> Path:
        path = self.job.out / f"{self.name}_{what}{ending}"
        self.written.append(str(path))
        return path


def _seen_kernel(kernel: Tensor) -> Tensor:
    """Return a kernel (h, w) as a gray picture (1, h, w) in [-1, 1], its largest value white."""
    return (2 * kernel / kernel.max() - 1)[None]
