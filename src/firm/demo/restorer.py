"""What the page computes: a restored picture, a comparison of numbers of steps, and the trajectory of a sample."""

from __future__ import annotations

import json
import math
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from zipfile import ZipFile

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from firm import __version__
from firm._model import Firm, channels_of
from firm._posterior_mean import PosteriorMean
from firm._prepare import noise_like
from firm._restore import batches, restore
from firm._sampling import sample
from firm._util.checks import require
from firm.acceleration.tiling import OVERLAP, TILE, Tiled
from firm.data.picture import read_picture
from firm.demo.jobs import CanceledError, Progress
from firm.demo.models import Models
from firm.demo.previews import GRAY_LEVELS, save_heat_map, save_preview, save_trade_off, save_view
from firm.demo.request import Limits, Request, RequestError, for_visitors
from firm.restoration import Problem, ProblemError
from firm.restoration.advice import advice
from firm.restoration.calibration import scale_of
from firm.restoration.output import result_names, write_picture
from firm.restoration.run import warnings_as_notes
from firm.tasks import picture_tasks

REGION = 384  # pixels a side of what is restored first of a large picture
LARGE = 8  # times that many pixels
THUMBNAIL = 800  # pixels of a sample in the gallery
PANEL = 400  # pixels of a state of the trajectory
STEPS_COMPARED = (1, 2, 4, 10, 25)
MAX_TRAJECTORY_STEPS = 10  # each shows 2 K pictures
Captioned = tuple[str, str]  # a file and its caption
Comparison = tuple[list[dict[str, Any]], str | None]
Trajectory = tuple[list[Captioned], list[Captioned]]


@dataclass(frozen=True)
class Outcome:
    """What the page shows of a restored picture, and what it offers for download."""

    files: dict[str, str]  # before, after, same, png16, settings; mask, mean and heat_map where there are such
    samples: list[str]  # files, if there are several samples
    settings: dict[str, Any]  # all that the result depends on, and what came of it
    notes: list[str]

    def summary(self) -> str:
        """Say what was done in a line or two, with the notes below, as Markdown."""
        about, (width, height) = self.settings, self.settings["pixels"]
        found = " (estimated)" if about["estimated"] else ""
        line = (
            f"**Done in {about['seconds']:.1f} s**: {width} x {height} pixels, noise of "
            f"{about['noise (gray levels)']:.1f} of 255 levels{found}."
        )
        if "mean uncertainty (gray levels)" in about:
            line += f" The results differ by {about['mean uncertainty (gray levels)']:.1f} levels on average."
        return "\n\n".join([line, *(f"Note: {note}." for note in self.notes)])


class Preview(NamedTuple):
    """The middle of a large picture, before and after: files."""

    before: str
    after: str


class Several(NamedTuple):
    """Several restored pictures: each with its name, all in one archive, and what is to be said of them."""

    pictures: list[Captioned]
    archive: str | None
    notes: list[str]


@dataclass(frozen=True)
class Prepared:
    """A problem with the model that is to solve it, tile by tile."""

    model: Firm
    steps: int  # N of the quality that was asked for
    notes: list[str]  # on that
    problem: Problem
    tiles: Tiled  # the model's estimator
    mask: Path | None
    like: Tensor  # A'y: the size of the result

    def calls(self, steps: int, samples: int = 1) -> int:
        """Count the network calls of a restoration as they are really made, for every batch of samples and tile."""
        tiles = self.tiles.count(*self.like.shape[-2:])
        return len(batches(self.like, samples)) * steps * max(1, self.model.solver.K) * tiles

    def begin(self, progress: Progress, steps: int, samples: int = 1, label: str = "Restoring") -> None:
        """Count every network call of a restoration from now on."""
        progress.begin(samples * steps * max(1, self.model.solver.K), self.calls(steps, samples), label)
        self.tiles.on_tile = progress.advance

    def region(self, folder: Path) -> Prepared | None:
        """The same for the middle of the picture, or around what is missing; None for a simulation or a motion."""
        shown, about = self.problem.shown, self.problem.settings
        if self.problem.truth is not None or self.problem.kernel is not None:
            return None
        side, middle = REGION * shown.shape[-1] // self.like.shape[-1] // 2 * 2, torch.tensor(shown.shape[-2:]) // 2
        if self.mask is not None:
            missing = (read_picture(self.mask, channels=1)[0] > 0).nonzero()
            middle = missing[len(missing) // 2]
        # on even places: a sensor's mosaic repeats after two pixels
        top, left = ((m - side // 2).clamp(0, n - side) // 2 * 2 for m, n in zip(middle, shown.shape[-2:], strict=True))
        inside = (..., slice(int(top), int(top) + side), slice(int(left), int(left) + side))
        write_picture(folder / "region.png", shown[0][inside], "png16")
        mask = None if self.mask is None else folder / "region_mask.png"
        if self.mask is not None and mask is not None:
            write_picture(mask, read_picture(self.mask, channels=1)[inside], "png")
        declared = picture_tasks()[about["task"]][0].parameters.items()
        with suppress(ProblemError):  # all of it is missing
            problem = Problem.from_file(
                folder / "region.png", about["task"], sigma=about["sigma"], mask=mask, channels=channels_of(self.model),
                keep_known=about.get("keep_known"), **{key: about[key] for key, p in declared if p.picture is not None},
            ).to(shown.device)  # fmt: skip
            problem = replace(problem, origin=self.problem.origin)
            return replace(self, problem=problem, like=problem.op.A_adjoint(problem.y))
        return None


class Restorer:
    """Restores what visitors ask for, one request at a time, so that memory stays bounded.

    Its methods take a request, the progress to report to, and a folder for the files that they write.
    """

    def __init__(self, models: Models, limits: Limits | None = None) -> None:
        self.models, self.limits = models, limits or Limits()
        self._busy = threading.Lock()

    @contextmanager
    def turn(self, progress: Progress) -> Iterator[None]:
        """Wait for the requests before, and start the clock; a visitor who cancels need not wait any longer."""
        while not self._busy.acquire(timeout=0.1):
            progress.check()
        progress.limit(self.limits.minutes)
        try:
            progress.check()  # before a picture is read, for a client that went while it waited
            yield
        finally:
            self._busy.release()

    def restore(self, request: Request, progress: Progress, folder: Path) -> Outcome:
        """Restore a picture, and write what the page shows and offers for download.

        Parameters
        ----------
        request
            What to restore, and how; it is checked here, and `RequestError` says what cannot be done.
        progress
            It is told about every network call, and ends the job with `CanceledError` if it has been stopped.
        folder
            An existing folder for the files, which belongs to this request alone.
        """
        *_, outcome = self.stages(request, progress, folder, large=math.inf)
        return cast(Outcome, outcome)

    def stages(
        self, request: Request, progress: Progress, folder: Path, large: float = LARGE
    ) -> Iterator[Preview | Outcome]:
        """Restore as `restore` does; of a picture of `large` regions or more, its middle comes first."""
        with self.turn(progress):
            prepared = self.prepare(request, folder)
            region = prepared.region(folder) if prepared.like[0, 0].numel() >= large * REGION**2 else None
            first = None if region is None else self._preview(region, request, progress, folder)
        if first is not None:
            yield first
        with self.turn(progress):
            problem = prepared.problem
            prepared.begin(progress, prepared.steps, request.samples)
            gallery: list[str] = []

            def keep(i: int, x: Tensor) -> None:
                gallery.append(save_preview(folder / f"sample_{i + 1:02d}.png", problem.finish(x), THUMBNAIL))

            result = restore(
                prepared.model, problem.op, problem.y, prepared.steps, request.samples, request.seed,
                sigma=problem.told, keep=False, on_sample=keep if request.samples > 1 else None,
            )  # fmt: skip
        mask = prepared.mask
        image = problem.finish(result.image)
        (stem,) = result_names([Path(Path(request.name).name or "picture")], Path())  # short enough
        endings = {
            "same": f"_restored{problem.origin.ending}",
            "png16": "_restored_16bit.png",
            "settings": "_settings.json",
        }
        files = {key: str(folder / f"{stem}{ending}") for key, ending in endings.items()}
        write_picture(Path(files["same"]), image[0], "same", problem.alpha, problem.origin)
        write_picture(Path(files["png16"]), image[0], "png16", problem.alpha, problem.origin)
        before = problem.shown  # a measurement of fewer pixels is shown as squares
        if before.shape[-2:] != image.shape[-2:]:
            before = F.interpolate(before.float(), image.shape[-2:], mode="nearest-exact")
        for name, x in (("before", before), ("after", image)):
            files[name] = save_view(folder / name, x, problem.origin.profile)
        files |= {} if mask is None else {"mask": str(mask)}
        sigma = float(problem.settings["sigma"])
        settings: dict[str, Any] = {
            "firm": __version__, "picture": request.name, "pixels": [int(image.shape[-1]), int(image.shape[-2])],
            "degraded here": request.clean, **problem.settings, "sigma": round(sigma, 5),
            "noise (gray levels)": round(sigma * GRAY_LEVELS, 2), "model": request.model, "steps": prepared.steps,
            "iterations": prepared.model.solver.K, "samples": request.samples, "seed": request.seed,
            "device": str(self.models.device), "network calls": result.nfe,
            "seconds": round(result.seconds, 2), "scores": problem.scores(image),
            "command": request.command(None if mask is None else mask.name),
        }  # fmt: skip
        notes = [*prepared.notes, *problem.notes, *advice(prepared.model, problem)]
        if result.std is not None:
            scale, why = scale_of(None, prepared.model, problem.settings["task"], prepared.steps, request.samples)
            notes += why
            std = result.std
            if scale is not None:
                notes += scale.notes(problem.settings, std, problem.op)
                std = scale.widened(std, problem.op)
                settings |= {"std multiplied by": scale.scale}
            mean, heat_map = problem.finish(result.mean), folder / "uncertainty.png"
            uncertainty = save_heat_map(heat_map, problem.spread(std))
            settings |= {"scores of the mean": problem.scores(mean)}
            settings |= {"mean uncertainty (gray levels)": round(uncertainty, 3)}
            files |= {"mean": save_preview(folder / "mean.png", mean), "heat_map": str(heat_map)}
        Path(files["settings"]).write_text(json.dumps(settings, indent=1))
        yield Outcome(files, gallery, settings, [for_visitors(note) for note in notes])

    def several(self, requests: Sequence[Request], progress: Progress, folder: Path) -> Several:
        """Restore pictures one after the other, with an archive of all; one that cannot be does not stop the others."""
        pictures, notes = list[Captioned](), list[str]()
        names = result_names([Path(Path(request.name).name or "picture") for request in requests], Path())
        archive = folder / "restored.zip"
        with ZipFile(archive, "w") as zipped:
            for i, (request, name) in enumerate(zip(requests, names, strict=True), start=1):
                progress.part = f"picture {i} of {len(requests)}, "
                try:
                    with tempfile.TemporaryDirectory(dir=folder) as place:
                        outcome = self.restore(request, progress, Path(place))
                        file = Path(outcome.files["same"])
                        zipped.write(file, f"{name}_restored{file.suffix}")
                        shown = folder / f"{i:02d}{Path(outcome.files['after']).suffix}"
                        pictures.append((str(Path(outcome.files["after"]).rename(shown)), request.name))
                    notes += [f"{request.name}: {note}" for note in outcome.notes]
                except CanceledError:
                    raise
                except Exception as error:
                    said = request.explain(error)
                    notes.append(said if said.startswith(request.name) else f"{request.name}: {said}")
        return Several(pictures, str(archive) if pictures else None, notes)

    def _preview(self, region: Prepared, request: Request, progress: Progress, folder: Path) -> Preview:
        """Restore the region of a picture, once."""
        region.begin(progress, region.steps, label="A first look at the middle")
        problem = region.problem
        given: dict[str, Any] = {"sigma": problem.sigma, "keep": False}
        image = problem.finish(
            restore(region.model, problem.op, problem.y, region.steps, 1, request.seed, **given).image
        )
        before, profile = F.interpolate(problem.shown, image.shape[-2:], mode="nearest-exact"), problem.origin.profile
        return Preview(
            save_view(folder / "region_before", before, profile), save_view(folder / "region_after", image, profile)
        )

    def compare_steps(self, request: Request, progress: Progress, folder: Path) -> Comparison:
        """Restore the same picture from the same noise with few and with many steps.

        The arguments are those of `restore`. The request's own numbers of steps and samples are not used.

        Returns
        -------
        For each number of steps: N, calls (network calls), seconds, scores where the truth is known, and the picture, a
        file with its caption. After them the file of a plot of PSNR against LPIPS, or None where LPIPS is not known.
        """
        with self.turn(progress):
            prepared = self.prepare(replace(request, samples=1), folder, sum(STEPS_COMPARED))
            problem, rows = prepared.problem, []
            model, op, y, sigma = prepared.model, problem.op, problem.y, problem.told
            for N in STEPS_COMPARED:
                prepared.begin(progress, N, label=f"N = {N}")
                result = restore(model, op, y, N, 1, request.seed, sigma=sigma, keep=False)
                image = problem.finish(result.image)
                scores = problem.scores(image)
                caption = f"N = {N}" + (f", {scores['psnr']:.2f} dB" if scores else "")
                picture = (save_preview(folder / f"steps_{N:02d}.png", image), caption)
                row = {"N": N, "calls": result.nfe, "seconds": round(result.seconds, 2), "picture": picture}
                rows.append(row | scores)
            scored = all("lpips" in row for row in rows)
            return rows, save_trade_off(folder / "trade_off.png", rows) if scored else None

    def trajectory(self, request: Request, progress: Progress, folder: Path, step: int) -> Trajectory:
        """Draw one sample and keep its states x_t (Algorithm 2) and the solver's iterates in one step (Algorithm 3).

        Parameters
        ----------
        request, progress, folder
            As in `restore`; only one sample is drawn, and more than `MAX_TRAJECTORY_STEPS` steps are refused.
        step
            The step whose iterates x^k and z^k are kept, counted from 1; the last one if there are fewer.

        Returns
        -------
        The states and the iterates: files with captions.
        """
        few = f"a trajectory is shown for at most {MAX_TRAJECTORY_STEPS} steps: choose fewer"
        states, iterates = list[Captioned](), list[Captioned]()
        with self.turn(progress), torch.no_grad():
            prepared = self.prepare(replace(request, samples=1), folder)
            N, problem, evaluations = prepared.steps, prepared.problem, count(1)
            require(N <= MAX_TRAJECTORY_STEPS, few, RequestError)
            prepared.begin(progress, N)

            def panel(x: Tensor, caption: str) -> Captioned:
                path = folder / f"trajectory_{len(states) + len(iterates):03d}.png"
                return save_preview(path, problem.finish(x), PANEL), caption

            def keep_state(i: int, t: float, x: Tensor, z: Tensor) -> None:
                states.append(panel(x, f"x at t = {t:.2g}" + (": noise" if i == 0 else "")))

            def keep_iterates(k: int, x: Tensor, z: Tensor) -> None:
                for name, v in (("x", x), ("z", z)):
                    iterates.append(panel(v, f"{name}, k = {k}"))

            def posterior_mean(*state: Any, **settings: Any) -> Tensor:
                callback = keep_iterates if next(evaluations) == min(step, N) else None
                return prepared.model.posterior_mean(*state, **settings, callback=callback)

            x_0 = noise_like(prepared.like, Generator().manual_seed(request.seed))  # that `restore` starts from, too
            watched = cast(PosteriorMean, SimpleNamespace(posterior_mean=posterior_mean))
            given: dict[str, Any] = {"sigma": problem.told, "x_0": x_0, "callback": keep_state}
            x_1 = sample(watched, problem.op, problem.y, N, **given)
            states.append(panel(x_1, "x at t = 1: the result"))
        return states, iterates

    def prepare(self, request: Request, folder: Path, steps: int | None = None) -> Prepared:
        """Check the request, read the picture, and tile the model; `steps` in all, if not its own.

        A mask is written to `folder`. `RequestError` says what cannot be done.
        """
        request.check(self.limits)
        with warnings_as_notes() as notes:  # of a K that the model was not trained for
            model, N = self.models.get(request.model).at(request.quality, request.steps, request.iterations)
        mask = request.write_mask(self.limits, folder)
        problem = request.problem(channels_of(model), self.limits, mask).to(self.models.device)
        like = problem.op.A_adjoint(problem.y)
        allowed = 1.2 * self.limits.megapixels * 1e6  # with a margin around the picture
        too_large = f"the result would have more than {self.limits.megapixels:g} megapixels"
        require(like[0, 0].numel() <= allowed, too_large, RequestError)
        tiles = Tiled(model.estimator, TILE, OVERLAP)  # the command line's
        prepared = Prepared(Firm(tiles, model.solver, model.card), N, notes, problem, tiles, mask, like)
        calls, allowed_calls = prepared.calls(N if steps is None else steps, request.samples), self.limits.calls
        too_many = (
            f"this takes {calls:,} calls of the network, more than the {allowed_calls:,} that one request may make "
            "here: choose fewer steps or samples, or a smaller picture"
        )
        require(calls <= allowed_calls, too_many, RequestError)
        return prepared
