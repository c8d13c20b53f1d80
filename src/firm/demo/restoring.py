"""Restore what a request asks for, and write what the page shows and offers for download."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from firm import __version__
from firm._model import Firm
from firm._restore import Restoration, batches, restore
from firm.acceleration.tiling import Tiled
from firm.cli.models import channels_of
from firm.demo.command import TILE, command
from firm.demo.models import Models
from firm.demo.pictures import enlarged, save_heat_map, save_shown
from firm.demo.problem import mask_of, problem_of
from firm.demo.request import Limits, Request, RequestError, check
from firm.demo.watch import Watch, Watched, Work
from firm.demo.wording import for_visitors
from firm.restoration import Problem
from firm.restoration.advice import advice
from firm.restoration.names import result_names
from firm.restoration.output import write_picture

OVERLAP = 32
LARGEST_TILE = 512  # pixels a side: about 0.5 GB with face-128
THUMBNAIL = 800  # pixels of a sample in the gallery


@dataclass(frozen=True)
class Outcome:
    """What the page shows: names of files, and numbers."""

    before: str
    after: str
    png8: str
    png16: str
    settings_file: str
    settings: dict[str, Any]
    command: str
    notes: list[str]
    samples: list[str] = field(default_factory=list)
    mean: str | None = None
    heat_map: str | None = None
    mask: str | None = None
    truth: str | None = None


@dataclass(frozen=True)
class Prepared:
    """A problem with the model that is to solve it."""

    model: Firm
    problem: Problem
    tiles: Tiled  # the model's estimator
    mask: Path | None

    def work(self, steps: int, samples: int) -> Work:
        """The network calls that a restoration takes."""
        like = self.problem.op.A_adjoint(self.problem.y)
        tiles = self.tiles.count(int(like.shape[-2]), int(like.shape[-1]))
        return Work(steps, len(batches(like, samples)), max(1, self.model.solver.K) * tiles)


class Restorer:
    """What stands behind the page: one restoration at a time, so that memory stays bounded."""

    def __init__(self, models: Models, limits: Limits | None = None) -> None:
        self.models, self.limits = models, limits or Limits()
        self._busy = threading.Lock()

    @contextmanager
    def turn(self, watch: Watch) -> Iterator[None]:
        """Wait for those before; a visitor who cancels need not wait any longer."""
        while not self._busy.acquire(timeout=0.1):
            watch.check()
        try:
            yield
        finally:
            self._busy.release()

    def prepare(self, request: Request, watch: Watch, folder: Path) -> Prepared:
        """Check the request, read the picture, and put the model in tiles."""
        check(request, self.limits)
        model = self.models.get(request.model)
        mask = mask_of(request, self.limits, folder)
        problem = problem_of(request, channels_of(model), self.limits, mask).to(self.models.device)
        like = problem.op.A_adjoint(problem.y)
        if like[0, 0].numel() > 1.2 * self.limits.megapixels * 1e6:  # some margin around the picture is allowed
            raise RequestError(f"the result would have more than {self.limits.megapixels:g} megapixels")
        stride = getattr(model.estimator, "stride", 1)
        # up to the command line's own tile, the command need not name one: the result is the same
        tile = TILE if max(like.shape[-2:]) <= TILE else LARGEST_TILE - LARGEST_TILE % stride
        tiles = Tiled(Watched(model.estimator, watch), tile, OVERLAP)
        return Prepared(Firm(tiles, model.solver, model.card), problem, tiles, mask)

    def restore(self, request: Request, watch: Watch, folder: Path) -> Outcome:
        """Restore the picture of a request, with all files in `folder`."""
        with self.turn(watch):
            prepared = self.prepare(request, watch, folder)
            problem = prepared.problem
            watch.begin(prepared.work(request.steps, request.samples))
            gallery: list[str] = []

            def keep(i: int, x: Tensor) -> None:
                name = folder / f"sample_{i + 1:02d}.png"
                gallery.append(save_shown(name, problem.finish(x), THUMBNAIL))

            result = restore(
                prepared.model, problem.op, problem.y, request.steps, request.samples, request.seed,
                sigma=problem.sigma, keep=False, on_sample=keep if request.samples > 1 else None,
            )  # fmt: skip
            return self._outcome(request, prepared, result, gallery, folder)

    def _outcome(
        self, request: Request, prepared: Prepared, result: Restoration, gallery: list[str], folder: Path
    ) -> Outcome:
        """Write the files of a result."""
        problem = prepared.problem
        image, mean = problem.finish(result.image), problem.finish(result.mean)
        (stem,) = result_names([Path(Path(request.name).name or "picture")], Path())  # short enough
        png8, png16 = folder / f"{stem}_restored.png", folder / f"{stem}_restored_16bit.png"
        write_picture(png8, image[0], alpha=problem.alpha)
        write_picture(png16, image[0], "png16", alpha=problem.alpha)
        line = command(request, prepared.tiles.tile, None if prepared.mask is None else "mask.png")
        about = self._settings(request, prepared, result, image, mean) | {"command": line}
        outcome = Outcome(
            before=save_shown(folder / "before.png", enlarged(problem.shown, image.shape[-2:])),
            after=save_shown(folder / "after.png", image),
            png8=str(png8), png16=str(png16), settings_file=str(folder / f"{stem}_settings.json"), settings=about,
            command=line, samples=gallery,
            notes=[for_visitors(note) for note in (*problem.notes, *advice(prepared.model, problem))],
            mask=None if prepared.mask is None else str(prepared.mask),
        )  # fmt: skip
        if problem.truth is not None:
            outcome = replace(outcome, truth=save_shown(folder / "truth.png", problem.truth))
        if result.std is not None:
            heat = folder / "uncertainty.png"
            about["mean uncertainty (gray levels)"] = round(save_heat_map(heat, problem.spread(result.std)), 3)
            outcome = replace(outcome, mean=save_shown(folder / "mean.png", mean), heat_map=str(heat))
        Path(outcome.settings_file).write_text(json.dumps(about, indent=1))
        return outcome

    def _settings(
        self, request: Request, prepared: Prepared, result: Restoration, image: Tensor, mean: Tensor
    ) -> dict[str, Any]:
        """All that the result depends on, and what came of it."""
        problem = prepared.problem
        about: dict[str, Any] = {
            "firm": __version__, "picture": request.name, "pixels": [int(image.shape[-1]), int(image.shape[-2])],
            "degraded here": request.clean, **problem.settings,
            "sigma": round(float(problem.settings["sigma"]), 5),
            "noise (gray levels)": round(float(problem.settings["sigma"]) * 127.5, 2), "model": request.model,
            "steps": request.steps, "samples": request.samples, "seed": request.seed, "tile": prepared.tiles.tile,
            "device": str(self.models.device), "network calls": result.nfe, "seconds": round(result.seconds, 2),
        }  # fmt: skip
        about["scores"] = problem.scores(image)
        if request.samples > 1:
            about["scores of the mean"] = problem.scores(mean)
        return about
