"""``firm restore``: degraded pictures and folders of them, or clean ones that are degraded first."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from firm._sampling import Integrator
from firm._util.checks import require
from firm._util.terminal import printable
from firm.cli.options import (
    PICTURE,
    SEED,
    SIMULATION,
    Device,
    Iterations,
    Key,
    MaxMegapixels,
    Precision,
    Quality,
    completion,
    model_names,
    sentence,
    user_errors,
    whole_number,
    with_task_options,
)
from firm.cli.summary import print_results
from firm.data.array_file import ARRAY_EXTENSIONS
from firm.restoration.output import Format
from firm.scale.urls import is_url, place
from firm.tasks import built_in, option_of, picture_tasks

HUGE = "Large jobs (docs/scale.md)"
TASKS, PICTURE_TASKS = list(built_in()), list(picture_tasks())
WITH_KERNEL = [name for name, kinds in picture_tasks().items() if kinds[0].picture_file == "kernel"]
REGION = 384  # pixels: the side of a preview
COUNT: dict[str, Any] = {"parser": whole_number(1), "metavar": "<int>"}


# fmt: off
@with_task_options
def restore(
    pictures: Annotated[list[Path], typer.Argument(metavar="PICTURE|FOLDER...", help=(
        "Pictures or array files (.npy, ...), or folders of them; several at once."
    ))],
    task: Annotated[str | None, typer.Option(autocompletion=completion(PICTURE_TASKS), rich_help_panel=PICTURE, help=
        f"What to undo in pictures that are degraded: {', '.join(PICTURE_TASKS)} (default: what a look at each "
        "photograph finds); or a custom task, file.py:Class, that these files (pictures, or arrays y = A x + noise) "
        "are measurements of."
    )] = None,
    simulate: Annotated[str | None, typer.Option(autocompletion=completion(TASKS), rich_help_panel=SIMULATION, help=
        f"Degrade clean pictures first, then restore and score them: {', '.join(TASKS)}; "
        "or a custom task, file.py:Class."
    )] = None,
    sigma: Annotated[str | None, typer.Option(metavar="S|G/255", rich_help_panel=PICTURE, help=(
        "Noise level: for pixels in [-1, 1], such as 0.2, or in gray levels of 255, such as 25/255 (which is 0.196). "
        "Estimated if not given; a simulation has the paper's, a custom task its default."
    ))] = None,
    strength: Annotated[float, typer.Option(min=0.1, max=10, rich_help_panel=PICTURE, help=(
        "What an estimated noise level is multiplied by: 2 smooths more, 0.5 keeps more."
    ))] = 1.0,
    mask: Annotated[Path | None, typer.Option(rich_help_panel=PICTURE, help=(
        "inpainting: a picture, white = missing; or a folder with one of the same name each, of any ending."
    ))] = None,
    keep_known: Annotated[bool | None, typer.Option(
        "--keep-known/--no-keep-known", show_default=False, rich_help_panel=PICTURE,
        help="inpainting: leave all pixels outside the mask exactly as they are, or remove their noise too. "
        "They are left where there is no noise (--sigma 0, or an estimate of 0.002).",
    )] = None,
    kernel: Annotated[str | None, typer.Option(metavar="FILE|auto", rich_help_panel=PICTURE, help=(
        "deblurring: the blur itself, instead of --blur: a small gray picture, or an array, of what became of a point "
        "of light in its middle. auto: estimated, be it a Gaussian, a motion or of any form; NAME_kernel.png shows it."
    ))] = None,
    size: Annotated[str | None, typer.Option(metavar="N|WIDTHxHEIGHT", rich_help_panel=PICTURE, help=(
        "A custom task: the image's size, where it does not follow from the measurement."
    ))] = None,
    custom: Annotated[list[str] | None, typer.Option("--set", rich_help_panel=SIMULATION, help=(
        "A setting of a custom task, key=value, also with --task; may be repeated."
    ))] = None,
    model: Annotated[str, typer.Option(autocompletion=model_names, help=(
        "A bundled model's name, a .safetensors file, or the folder of a training run."
    ))] = "photo",
    network: Annotated[str | None, typer.Option(
        help="The network class, file.py:Class, of a model that has a custom one."
    )] = None,
    value_range: Annotated[str | None, typer.Option(help=(
        "Arrays: low,high that stand for -1 and 1 (default: as the model was trained). Gray pictures of more than 8 "
        "bits: black,white (default: 0,65535; of floats 0,1)."
    ))] = None,
    key: Key = None,
    quality: Quality = None,
    steps: Annotated[int | None, typer.Option(
        **COUNT, help="Steps N: few for least error, more for detail (default: the quality's, or else faithful's)."
    )] = None,
    iterations: Iterations = None,
    integrator: Annotated[Integrator, typer.Option(
        help="The paper's euler; midpoint and heun evaluate the velocity twice in each step; churn draws noise afresh."
    )] = "euler",
    final_solve: Annotated[bool, typer.Option(
        "--final-solve", help="End on the measurements: bring results as close to them as the noise says."
    )] = False,
    samples: Annotated[int, typer.Option(
        **COUNT, help="Posterior samples; with 2 or more also their mean and standard deviation."
    )] = 1,
    calibration: Annotated[Path | None, typer.Option(metavar="FILE|none", help=(
        "What `firm calibrate` wrote: its scale multiplies the standard deviations (default: the model's own, if it "
        "has one); none leaves them as the samples have them."
    ))] = None,
    seed: Annotated[int, typer.Option(
        help="Seed of the starting noise, and of simulated measurements.", callback=SEED
    )] = 0,
    out: Annotated[Path, typer.Option(
        "--out", "-o", help="Folder for the results; a run that was stopped goes on there. NAME.zarr restores one "
        "array block by block, which need not fit into memory."
    )] = Path("outputs/restore"),
    force: Annotated[bool, typer.Option(
        "--force", help="Replace results of an earlier run that are in the way."
    )] = False,
    kind: Annotated[Format, typer.Option(
        "--format", help="Of pictures: like the one that came in (same; with loss only at high quality), png (8 bits), "
        "png16, or npy (float32 in [0, 1])."
    )] = "same",
    preview: Annotated[bool, typer.Option(
        "--preview", help=f"Only try it: restore the middle of each picture, {REGION} pixels, as NAME_preview.png."
    )] = False,
    compare: Annotated[bool, typer.Option(
        "--compare/--no-compare", help="Write NAME_compare.png, before and after side by side."
    )] = True,
    max_megapixels: MaxMegapixels = 64,
    tile: Annotated[int | None, typer.Option(help=(
        "Largest side of the tiles that go through the network (default: 256; for --out NAME.zarr 128)."
    ))] = None,
    overlap: Annotated[int | None, typer.Option(help=(
        "Pixels that tiles share (default: 16; for --out NAME.zarr 32)."
    ))] = None,
    block: Annotated[int, typer.Option(**COUNT, rich_help_panel=HUGE, help="Side of the blocks, in pixels.")] = 1024,
    axes: Annotated[str | None, typer.Option(rich_help_panel=HUGE, help=(
        "A letter for each axis of the array, such as tczyx or yxc (default: as the file says, or guessed)."
    ))] = None,
    workers: Annotated[str | None, typer.Option(rich_help_panel=HUGE, metavar="N|ADDRESS", help=(
        "Threads, or the address of a Dask scheduler (default: 2 threads; on a GPU one)."
    ))] = None,
    precision: Annotated[Precision, typer.Option(
        help="Of the network; auto is bf16 where the machine has it."
    )] = "auto",
    device: Device = None,
    ray: Annotated[int | None, typer.Option(**COUNT, rich_help_panel=HUGE, help=(
        "Share the pictures among so many actors of Ray."
    ))] = None,
    **settings: Any,
) -> None:
    # fmt: on
    """Restore pictures: each gets NAME_restored.png and NAME_compare.png, and the folder a restore.json.

    Under torchrun, the pictures are shared among the processes.
    """
    given = dict(locals())  # all options
    from firm._model import channels_of
    from firm._util.checks import image_size, noise_level
    from firm._util.checks import settings as parse
    from firm._util.custom import code_digest
    from firm._util.machine import ranks
    from firm.acceleration import fast, tiled
    from firm.acceleration.tiling import OVERLAP, TILE
    from firm.cli.models import load_plain, noted, range_of
    from firm.cli.scans import scans_of
    from firm.restoration import Problem, ProblemError
    from firm.restoration.calibration import scale_of
    from firm.restoration.earlier import find_pictures
    from firm.restoration.reading import check_sigma, mask_in, picture_settings, read_kernel
    from firm.restoration.run import Engine, Job, names_of, one_by_one, restore_files, try_out
    from firm.restoration.scan import Scan
    from firm.tasks import task_class

    if out.suffix == ".zarr":
        from firm.cli.huge import restore_huge

        alone = {
            "--simulate": simulate, "--keep-known": keep_known, "--size": size, "--set": custom,
            "--samples": samples > 1, "--calibration": calibration, "--integrator": integrator != "euler",
            "--format": kind != "same", "--strength": strength != 1, "--preview": preview,
            "--kernel auto": kernel == "auto", "--network": network, "--ray": ray,
        }  # fmt: skip
        return restore_huge(
            pictures, out, alone, model=model, task=task, sigma=sigma, mask=mask, axes=axes, key=key,
            kernel=None if kernel is None else Path(kernel),
            value_range=value_range, quality=quality, steps=steps, iterations=iterations, seed=seed, block=block,
            tile=tile or 128, overlap=32 if overlap is None else overlap, precision=precision, workers=workers,
            device=device, force=force, **settings,
        )  # fmt: skip
    if any(is_url(path) for path in (*pictures, out, mask, kernel) if path is not None):
        return _restore_urls(**given)
    tile, overlap = tile or TILE, OVERLAP if overlap is None else overlap
    auto = kernel == "auto"
    psf = None if kernel is None or auto else Path(kernel)
    measured = task is not None and ":" in task  # file.py:Class, which the files are measurements of
    scales = calibration not in (None, Path("none"))  # in a file, which has to fit
    named = task if measured else simulate  # whose class makes the operator; of real pictures their files do
    for wrong, why in (
        (None not in (task, simulate), "give either --task (the picture is degraded) or --simulate (it is clean)"),
        (strength != 1 and (sigma is not None or simulate is not None or measured), "--strength changes a noise level "
         "that is estimated, and this one is given or simulated: leave it out"),
        (simulate is not None and mask is not None, "--mask belongs to --task inpainting; --simulate draws its own "
         "(--missing, --box, --strokes)"),
        (mask is not None and measured, "--mask belongs to --task inpainting; what a custom task measures, its code "
         "says"),
        (keep_known is not None and task != "inpainting", "--keep-known belongs to --task inpainting: other tasks know "
         "no pixel exactly"),
        (preview and (named is not None or samples > 1), "--preview is for real pictures, and one sample of each"),
        (kernel is not None and task not in WITH_KERNEL, f"--kernel belongs to --task {' or '.join(WITH_KERNEL)}"),
        (custom and named is None, "--set belongs to --simulate, and to --task with a custom task, file.py:Class"),
        (size is not None and not measured, "--size belongs to --task with a custom task, file.py:Class"),
        (value_range is not None and measured, "--value-range is for arrays that are images; the measurements of a "
         "custom task are taken as they are, for images in [-1, 1]"),
        (scales and samples < 2, "--calibration is for standard deviations: give --samples 2 or more"),
        (scales and integrator != "euler", "--calibration holds for Euler steps, with "
         "which it was fitted: leave --integrator out"),
        (axes is not None or workers is not None or block != 1024, "--block, --axes and --workers are for arrays "
         "larger than memory: --out NAME.zarr"),
        (out.exists() and not out.is_dir(), f"--out {out} is a file; results need a folder"),
        (mask is not None and not mask.exists(), f"--mask {mask}: no such file or folder"),
        (psf is not None and not psf.exists(), f"--kernel {kernel}: no such file"),
    ):  # fmt: skip
        if wrong:
            raise typer.BadParameter(why)
    try:
        # What is wrong with the pictures, before one of them is read.
        level, sides = None if sigma is None else noise_level(sigma), None if size is None else image_size(size)
        options = {key: value for key, value in settings.items() if value is not None}
        degradation = {**({} if level is None else {"sigma": level}), **options, **(parse(custom) if custom else {})}
        if task is not None and named is None:
            picture_settings(task, level, mask, keep_known, psf or kernel, **options)
        elif named is None:
            orphans = [*(option_of(key) for key in options), *["--mask"] * (mask is not None)]
            require(not orphans, f"{', '.join(orphans)}: give --task too; without it a look at the photograph decides")
        else:
            check_sigma(task_class(named).checked(degradation).get("sigma"))

        # The pictures, and the mask and the kernel that come with them; or scans of an instrument.
        scans = {} if named is not None else scans_of(
            pictures, task, {**options, "kernel": psf},
            {"sigma": level, "strength": None if strength == 1 else strength,
             "value_range": value_range and range_of(value_range, {}, pictures[0])},
            {"--mask": mask, "--preview": preview, "--format": kind != "same", "--key": key, "--kernel auto": auto,
             "--ray": ray, "--keep-known": keep_known},
        )  # fmt: skip
        if scans:
            files, notes = list(scans), list[str]()
            root = Path(os.path.commonpath([os.path.abspath(path.parent) for path in scans]))
        else:
            files, root, notes = find_pictures(pictures, out, mask, psf)
        if psf is not None and not scans:
            read_kernel(psf, max_megapixels)  # which is the same for all
        arrays = {file for file in files if file.suffix.lower() in ARRAY_EXTENSIONS}
        if key is not None and not arrays:
            raise ValueError("--key is for files that hold several arrays, and these are pictures: leave it out")

        def mask_of(path: Path) -> Path | None:
            if mask is None or not mask.is_dir():
                return mask
            return mask_in(mask, path, Path(os.path.abspath(path)).relative_to(root))

        inputs: dict[Path, list[Path]] = {}  # the files that a picture's results depend on
        for path in files:
            inputs[path] = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
            inputs[path] += [] if psf is None else [psf]
            with suppress(ProblemError):  # no mask for this picture: told when its turn comes
                inputs[path] += [] if mask is None else [mask_of(path) or mask]

        # The model, and how each picture becomes a problem for it.
        with ranks(device) as r:
            saved = load_plain(model, network)
            plain, N = noted(lambda: saved.at(quality, steps, iterations))
            chosen = fast(plain.to(r.device), precision)
            channels, print_of_model = channels_of(chosen), chosen.fingerprint()
            values = range_of(value_range, chosen.card, next(iter(arrays), files[0]))
            scale = None
            if samples > 1 and scans and calibration is None:
                notes.append("the standard deviations are not calibrated for scans of an instrument")
            elif samples > 1 and task is None and simulate is None:
                notes.append("the standard deviations are not calibrated: give --task, which a calibration is made for")
            elif samples > 1:
                kind_name = str(task) if named is None else task_class(named).name
                scale, uncalibrated = scale_of(calibration, plain, kind_name, N, samples, integrator)
                notes += uncalibrated

            def problem(path: Path) -> Problem | Scan:
                if path in scans:
                    return scans[path]()
                ranged = values if value_range is not None or path in arrays else None  # of training: for arrays
                if simulate is not None:
                    return Problem.simulated(path, simulate, degradation, seed, channels, ranged, max_megapixels, key)
                if measured:
                    return Problem.from_measurement(path, str(task), degradation, sides, channels, max_megapixels, key)
                return Problem.from_file(
                    path, task, sigma=level, strength=strength, mask=mask_of(path), keep_known=keep_known,
                    kernel="auto" if auto else psf, channels=channels, value_range=ranged,
                    max_megapixels=max_megapixels, key=key, region=REGION if preview else None, **options,
                )  # fmt: skip

            about = {  # all that tells these results from others
                "task": task, "simulate": simulate, "degradation": degradation, "keep_known": keep_known,
                "strength": strength, "seed": seed, "size": sides, "key": key,
                "code": named and code_digest(task_class(named)),
                "model": print_of_model, "value_range": values, "steps": N, "integrator": integrator,
                "samples": samples, "calibration": scale and scale.scale, "format": kind, "compare": compare,
                **({"final_solve": True} if final_solve else {}),
                "tile": tile, "overlap": overlap, "precision": precision, **({"kernel": kernel} if auto else {}),
            }  # fmt: skip
            job = Job(
                tiled(chosen, tile, overlap), problem, N, samples, seed, out, kind, about, inputs, scale, force,
                integrator, compare, final_solve=final_solve,
            )  # fmt: skip
            if preview:
                for name, path in names_of(files, root).items():
                    print(printable(try_out(job, path, name, r.device)))
                return
            engine: Engine = one_by_one
            if ray is not None:
                from firm.scale.ray import on_ray

                engine = on_ray(ray)
            rows = restore_files(job, files, root, r, engine=engine)
    except (ValueError, OSError) as error:
        raise typer.BadParameter(sentence(error)) from error
    if r.rank:
        return
    if len(pictures) == 1 and not pictures[0].is_dir() and "error" in rows[0]:
        raise typer.BadParameter(printable(rows[0]["error"]))
    photographs = named is None and not arrays and not scans
    print_results(rows, out, notes, plainly=photographs, looked=photographs and task is None)
    if any("error" in row for row in rows):
        raise typer.Exit(1)


def _restore_urls(**given: Any) -> None:
    """Restore what URLs stand for: copied to this machine, and the results copied back."""
    from firm.scale.urls import staged

    settings = given.pop("settings")
    psf = given["kernel"] if given["kernel"] in (None, "auto") else Path(given["kernel"])
    file = None if psf == "auto" else psf
    with user_errors(), staged(given["pictures"], given["out"], given["mask"], file) as (files, out, others):
        mask, kernel = others[0], psf if others[1] is None else str(others[1])
        restore(**{**given, "pictures": files, "out": out, "mask": mask, "kernel": kernel}, **settings)
    if out != given["out"]:
        typer.echo(f"copied to {place(given['out'])}")
