"""What ``firm restore`` is told about its pictures: checked, and turned into the inverse problem of each of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from firm._util.custom import code_digest, is_custom
from firm._util.seeds import require_seed
from firm.cli.settings import given
from firm.restoration import Problem, ProblemError, measured_problem, picture_problem, simulated_problem
from firm.restoration.degraded import check_picture_settings, picture_tasks
from firm.restoration.mask import mask_in
from firm.restoration.simulated import check_simulation
from firm.tasks import task_class


@dataclass(frozen=True)
class Degradation:
    """What is wrong with the pictures, or what a simulation does to clean ones."""

    task: str | None  # of real pictures, or ``file.py:Class`` for measurements of an instrument of the user's own
    simulate: str | None  # of clean ones; one of the two is given
    sigma: float | None
    mask: Path | None  # a file, or a folder of them
    keep_known: bool | None
    kernel: Path | None
    size: tuple[int, int] | None
    options: Mapping[str, Any]  # of built-in tasks, such as --blur: those that were given
    own: Mapping[str, Any]  # of the user's own task, --set
    seed: int
    max_megapixels: float
    key: str | None  # the array of a file that has several

    @property
    def named(self) -> str | None:
        """The task whose class makes the operator; None for real pictures, whose operator depends on their files."""
        return self.task if self.task is not None and is_custom(self.task) else self.simulate

    @property
    def settings(self) -> dict[str, Any]:
        """All settings that were given, the noise level among them."""
        return {**given({"sigma": self.sigma, **self.options}), **self.own}

    def check(self) -> None:
        """Raise ValueError for what is wrong whatever the pictures are, before one is read."""
        if self.named is not None:
            check_simulation(self.named, self.settings)
            return
        assert self.task is not None
        _refuse_simulated(self.task, self.options)
        if self.mask is not None and not self.mask.exists():
            raise ValueError(f"--mask {self.mask}: no such file or folder")
        if self.kernel is not None and not self.kernel.is_file():
            raise ValueError(f"--kernel {self.kernel}: no such file")
        check_picture_settings(
            self.task, self.sigma, self.mask, self.keep_known, self.kernel, self.max_megapixels, **self.options
        )

    def problem(self, path: Path, root: Path, channels: int, values: tuple[float, float] | None) -> Problem:
        """The inverse problem of one picture below `root`, with the `values` that stand for -1 and 1."""
        if self.simulate is not None:
            return simulated_problem(
                path, self.simulate, self.settings, self.seed, channels, values, self.max_megapixels, self.key
            )
        assert self.task is not None
        if self.named is not None:
            return measured_problem(path, self.task, self.settings, self.size, channels, self.max_megapixels, self.key)
        return picture_problem(
            path, self.task, sigma=self.sigma, mask=self._mask_of(path, root), keep_known=self.keep_known,
            kernel=self.kernel, channels=channels, value_range=values, max_megapixels=self.max_megapixels,
            key=self.key, **self.options,
        )  # fmt: skip

    def inputs(self, path: Path, root: Path) -> list[Path]:
        """The files that a picture's results depend on."""
        found = [path] if self.kernel is None else [path, self.kernel]
        with suppress(ProblemError):  # no mask for this picture: told when its turn comes
            found += [file for file in [self._mask_of(path, root)] if file is not None]
        return found

    def _mask_of(self, path: Path, root: Path) -> Path | None:
        if self.mask is None or not self.mask.is_dir():
            return self.mask
        return mask_in(self.mask, path, Path(os.path.abspath(path)).relative_to(root))

    @property
    def kind(self) -> str:
        """The task's own name, which calibrations know it by."""
        return str(self.task) if self.named is None else task_class(self.named).name

    def about(self) -> dict[str, Any]:
        """All that tells results of this degradation from others."""
        code = "" if self.named is None else code_digest(task_class(self.named))
        later = {  # only where there is something to tell: earlier results count as done
            "size": self.size,
            "key": self.key,
            "surroundings": "unknown" if self.task == "deblurring" else None,  # once they were mirrored
            "code": code or None,  # of the library's tasks nothing
        }
        keep = self.keep_known if self.task == "inpainting" else False
        return {
            "task": self.task, "simulate": self.simulate, "degradation": self.settings, "keep_known": keep,
            "seed": self.seed, **given(later),
        }  # fmt: skip


def refuse_mixtures(
    task: str | None, simulate: str | None, mask: Path | None, keep_known: bool | None, kernel: Path | None, seed: int
) -> None:
    """Options that do not go together."""
    if (task is None) == (simulate is None):
        raise typer.BadParameter("give either --task (the picture is degraded) or --simulate (it is clean)")
    if simulate is not None and mask is not None:
        raise typer.BadParameter(
            "--mask belongs to --task inpainting; --simulate draws its own (--missing, --box, --strokes)"
        )
    if keep_known is not None and task != "inpainting":
        raise typer.BadParameter("--keep-known belongs to --task inpainting: other tasks know no pixel exactly")
    if kernel is not None and task != "deblurring":
        raise typer.BadParameter("--kernel belongs to --task deblurring")
    require_seed(seed, typer.BadParameter)


def refuse_others_options(
    task: str | None, simulate: str | None, own: list[str] | None, size: str | None, mask: Path | None,
    value_range: str | None,
) -> None:  # fmt: skip
    """Options of tasks of the user's own without one, and the other way round."""
    measured = task is not None and is_custom(task)
    if own and simulate is None and not measured:
        raise typer.BadParameter("--set belongs to --simulate, and to --task with a task of your own, file.py:Class")
    if size is not None and not measured:
        raise typer.BadParameter("--size belongs to --task with a task of your own, file.py:Class")
    if mask is not None and measured:
        raise typer.BadParameter("--mask belongs to --task inpainting; what a task of your own measures, its code says")
    if value_range is not None and measured:
        raise typer.BadParameter(
            "--value-range is for arrays that are images; the measurements of a task of your own are taken as they "
            "are, for images in [-1, 1]"
        )


def _refuse_simulated(task: str, settings: Mapping[str, Any]) -> None:
    """Settings that only a simulation has, such as the share of missing pixels: a real picture's mask is a file."""
    kinds = picture_tasks().get(task, [])
    fit = set() if task == "inpainting" else {key for kind in kinds for key in kind.parameters}
    simulated = {key for kind in picture_tasks()["inpainting"] for key in kind.parameters}
    wrong = [f"--{key}" for key in settings if key not in fit and key in simulated]
    if wrong:
        raise ValueError(f"{', '.join(wrong)} belongs to --simulate; a real picture's mask is given with --mask")
