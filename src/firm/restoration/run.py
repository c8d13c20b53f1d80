"""Restore one picture or a folder of them, write the results, and say how it went."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from tqdm import tqdm

from firm._model import Firm
from firm._restore import Restoration, restore
from firm._util.distributed import Ranks
from firm._util.files import write_atomically
from firm._util.locks import locked
from firm.data.array_file import ArrayError
from firm.data.picture import PictureError
from firm.metrics import scores, visible
from firm.restoration.advice import advice
from firm.restoration.output import SUFFIX, Format, write_array, write_heat_map, write_picture, write_side_by_side
from firm.restoration.problem import Problem, ProblemError

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


@locked(lambda job, files, root, ranks, *_, **__: job.out if ranks.main else None)
def restore_files(job: Job, files: Sequence[Path], root: Path, ranks: Ranks, progress: bool = True) -> list[Row]:
    """Restore `files`, shared among the ranks; one row a picture, on the main rank all of them, also in restore.json.

    A picture that cannot be restored has a row with an "error", and the others go on.
    """
    names = result_names(files, root)
    mine = list(zip(files, names, strict=True))[ranks.rank :: ranks.world]
    rows = []
    for path, name in tqdm(mine, unit="picture", disable=not (progress and ranks.main) or len(mine) < 2):
        try:
            rows.append({"picture": str(path), **restore_file(job, path, name, ranks.device)})
        except (PictureError, ArrayError, ProblemError) as error:
            rows.append({"picture": str(path), "error": str(error)})
    if ranks.world > 1:
        gathered: list[list[Row]] = [[] for _ in range(ranks.world)]
        dist.all_gather_object(gathered, rows)
        order = {str(path): i for i, path in enumerate(files)}
        rows = sorted((row for part in gathered for row in part), key=lambda row: order[row["picture"]])
    if ranks.main and any("error" not in row for row in rows):  # a failure leaves the report of another time
        write_atomically(job.out / "restore.json", json.dumps(rows, indent=1))
    return rows


def restore_file(job: Job, path: Path, name: str, device: torch.device) -> Row:
    """Restore one picture and write ``out/name*``; returns what is known of it."""
    problem = job.problem(path).to(device)
    result = restore(job.model, problem.op, problem.y, job.steps, job.samples, job.seed, sigma=problem.sigma)
    row: Row = {
        **problem.settings, "sigma": round(problem.settings["sigma"], 5), "N": job.steps, "samples": job.samples,
        "nfe": result.nfe, "seconds": round(result.seconds, 3), "advice": advice(job.model.card, problem),
    }  # fmt: skip
    truth = problem.truth if problem.truth is None or not problem.grey else problem.truth[:, :1]
    image, mean = problem.finish(result.image), problem.finish(result.mean)
    if truth is not None:
        seen = visible(truth, problem.complex)
        row |= {key: round(float(v), 4) for key, v in _scores(visible(image, problem.complex), seen).items()}
        if job.samples > 1:
            found = _scores(visible(mean, problem.complex), seen)
            row |= {f"{key} of the mean": round(float(v), 4) for key, v in found.items()}
    row["written"] = [str(p) for p in _write(job, problem, result, name, row)]
    return row


def _scores(x: Tensor, truth: Tensor) -> dict[str, Any]:
    """PSNR and, where the picture is large enough for their windows, SSIM and LPIPS; grey counts as three channels."""
    if x.shape[1] == 1:
        x, truth = (v.expand(-1, 3, -1, -1) for v in (x, truth))
    return scores(x, truth, "text")


def _write(job: Job, problem: Problem, result: Restoration, name: str, row: Row) -> list[Path]:
    suffix = ".npy" if problem.array else SUFFIX[job.kind]

    def at(what: str, ending: str = suffix) -> Path:
        path = job.out / f"{name}_{what}{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    image, mean = problem.finish(result.image)[0], problem.finish(result.mean)[0]
    pictures = {at("restored"): image}
    if job.samples > 1:
        pictures[at("mean")] = mean
        pictures |= {at(f"sample_{i:02d}"): problem.finish(s)[0] for i, s in enumerate(result.samples, start=1)}
    for path, picture in pictures.items():
        if problem.array:
            write_array(path, picture, problem.complex, problem.value_range)
        else:
            write_picture(path, picture, job.kind)
    written = list(pictures)

    def seen(x: Tensor) -> Tensor:
        return visible(x[None], problem.complex)[0]

    score = f": {row['psnr']:.2f} dB" if "psnr" in row else ""
    panels = [("measurement", problem.shown[0]), (f"restored, N = {job.steps}{score}", seen(image))]
    if result.std is not None:
        std = problem.finish(result.std)[0]
        write_heat_map(at("std", ".png"), std)
        written.append(at("std", ".png"))
        psnr = f": {row['psnr of the mean']:.2f} dB" if "psnr of the mean" in row else ""
        panels += [(f"mean of {job.samples}{psnr}", seen(mean)), ("standard deviation", std.mean(0))]
    if problem.truth is not None:
        panels.insert(0, ("truth", seen(problem.truth[0])))
    write_side_by_side(at("compare", ".png"), [panels])
    return [*written, at("compare", ".png")]


def result_names(files: Sequence[Path], root: Path) -> list[str]:
    """Names of the results, below the output folder like the pictures below `root`, and different from each other."""
    stems = [path.relative_to(root).with_suffix("").as_posix() for path in files]
    return [
        stem if stems.count(stem) == 1 else path.relative_to(root).as_posix().replace(".", "_")
        for stem, path in zip(stems, files, strict=True)
    ]
