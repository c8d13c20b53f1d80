"""Images larger than memory, restored block by block with Dask: on the threads of one machine, or on a cluster.

A block is one task of Dask. It reads its pixels and a margin around them, restores them (`firm.scale.blocks`) and
writes them into a zarr array, chunk by chunk. A chunk that is there is finished: a run that was stopped goes on.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from firm._model import Firm, channels_of, load
from firm._sampling import Quality
from firm._util.checks import is_whole, require
from firm._util.extras import extra
from firm._util.files import folder_lock
from firm._util.machine import default_device
from firm._util.terminal import progress_bar
from firm.acceleration import fast
from firm.acceleration._fast import Precision
from firm.acceleration.tiling import Tiled
from firm.data.opening import MAX_MEGAPIXELS
from firm.data.picture import Range
from firm.data.store import (
    CHUNK,
    USE,
    Layout,
    chunk_keys,
    create,
    describe,
    is_url,
    named_axes,
    opened,
    results,
    stored_chunks,
)
from firm.restoration.estimates import estimate_noise
from firm.restoration.reading import ProblemError, picture_settings, read_kernel
from firm.scale.blocks import Block, Recipe, check_local, keeps_known, restore_block

WINDOW, WINDOWS = 256, 4  # pixels, and so many by so many: where the noise is estimated


@dataclass(frozen=True)
class Work:
    """All that a worker needs beside the model; it opens the arrays itself."""

    source: str
    key: str | None
    mask: str | None
    out: str
    layout: Layout
    dtype: str  # of the results
    recipe: Recipe
    side: int  # of a block, in pixels
    device: torch.device
    threads: int | None  # of torch, for a block; None leaves them as they are

    @property
    def count(self) -> int:
        """How many blocks there are."""
        down, across = (-(-n // self.side) for n in self.layout.size)
        return self.layout.planes * down * across

    def pixels(self, number: int) -> tuple[int, range, range]:
        """Return the plane, rows and columns of a block by its number."""
        H, W = self.layout.size
        plane, i, j = np.unravel_index(number, (self.layout.planes, -(-H // self.side), -(-W // self.side)))
        top, left = int(i) * self.side, int(j) * self.side
        return int(plane), range(top, min(H, top + self.side)), range(left, min(W, left + self.side))

    def restore(self, model: Firm, number: int) -> int:
        """Restore one block and store it; return its number."""
        if self.threads is not None:
            torch.set_num_threads(self.threads)  # of this thread
        plane, rows, columns = self.pixels(number)
        block = Block.of(plane, rows, columns, self.layout.size, self.recipe, model.estimator)
        place = block.measured(self.recipe.rim)
        with opened(self.source, self.key) as array:
            y = self.layout.to_image(np.asarray(array[self.layout.index(plane, *place)]))
        seen = None if self.mask is None else _seen(self.mask, *place)
        known = y if seen is None else y[:, seen.bool()]
        where = (
            f"{self.source}: plane {plane}, rows {rows.start} to {rows.stop}, columns {columns.start} to {columns.stop}"
        )
        require(bool(known.isfinite().all()), f"{where}: values that are NaN or infinite", ProblemError)
        y, seen = y.to(self.device), None if seen is None else seen.to(self.device)
        x = restore_block(model.to(self.device), self.recipe, block, y, seen)
        target = results(self.out)
        target[self.layout.index(plane, rows, columns)] = self.layout.to_values(x, np.dtype(self.dtype))
        return number


def restore_array(
    source: str | Path, out: str | Path, model: Firm | str | Path = "photo", task: str = "denoising", *,
    sigma: float | None = None, mask: str | Path | None = None, kernel: str | Path | None = None,
    axes: str | None = None, key: str | None = None, value_range: Range | None = None, dtype: str | None = None,
    quality: Quality | None = None, steps: int | None = None, iterations: int | None = None, seed: int = 0,
    block: int = 1024, tile: int = 128, overlap: int = 32, margin: int = 2, precision: Precision = "float32",
    workers: int | str | None = None, device: str | torch.device | None = None, force: bool = False,
    progress: bool = True, **settings: Any,
) -> dict[str, Any]:  # fmt: skip
    """Restore an array that need not fit into memory, block by block, into a zarr array of the same shape.

    The result is that of the whole image with ``firm.tiled(model, tile, overlap)``, up to the rounding of float32, and
    depends neither on the blocks nor on who computes them. A run that was stopped goes on with the same call. Inside a
    ``dask.distributed.Client`` the blocks go to its workers, which Dask's page shows; else to threads of this process.

    Parameters
    ----------
    source, key
        OME-Zarr, zarr, .npy, .h5 or TIFF: a path, or a URL of zarr; and the name of one array among several.
    out
        A zarr array that is made, a path or URL; an OME-Zarr image where the source is one.
    model
        As for `firm.restore`, or its name or path.
    task, settings
        "denoising", "inpainting", "deblurring" (with ``blur=``, or `kernel`) or "motion-deblurring" (``length=``,
        ``angle=``). Others are refused: they change the size, or measure all of the image at once.
    sigma
        Noise level for values in [-1, 1]; estimated from a grid of windows if not given.
    mask
        For inpainting, an array (H, W) of any of these formats: other than 0 where pixels are missing.
    kernel
        The point spread function of a blur, as for ``firm restore``.
    axes
        A letter for each axis, such as "tczyx", "zyx" or "yxc"; as the file says, or guessed, if not given. Every plane
        is an image of its own; of the model's number of channels, or gray.
    value_range
        What -1 and 1 stand for; all values of whole numbers, and of floats -1 and 1 themselves, if not given.
    dtype
        Of the results; that of the source if not given.
    quality, steps, iterations, seed
        As for `firm.restore`. The starting noise is a function of the seed and the pixel's place.
    block
        Side of the blocks in pixels: larger ones waste less on their margins, and take more memory.
    tile, overlap, margin
        Of the tiles that the network sees, as in `firm.tiled`; and how many tiles beyond a block it is computed from.
    precision
        As for `firm.fast`; in "bf16" blocks agree to its rounding only.
    workers
        Threads of this process (2 on the CPU, 1 on a GPU), or the address of a Dask scheduler.
    device
        The GPU if there is one.
    force
        Replace what is at `out`.
    progress
        Show a bar.

    Returns
    -------
    The settings of the run, its number of "blocks", and how many of them were restored "now".
    """
    extra("dask", USE, "dask")
    check_local(task)
    blurred, hidden = (None if path is None else Path(path) for path in (kernel, mask))
    kind, values = picture_settings(task, sigma, hidden, None, blurred, **settings)
    needs_blur = kind.picture_file == "kernel" and kernel is None and not values
    require(
        not needs_blur, f"{task} of an array needs the blur's standard deviation in pixels: give blur", ProblemError
    )
    for name, value, least in (("block", block, 1), ("margin", margin, 0)):
        require(is_whole(value, least), f"{name} must be a whole number of at least {least}, got {value!r}")
    source, out, mask = os.fspath(source), os.fspath(out), None if mask is None else os.fspath(mask)
    plain, N = (load(model) if isinstance(model, str | Path) else model).at(quality, steps, iterations)
    where = default_device() if device is None else torch.device(device)
    chosen = fast(plain.to(where), precision)
    with opened(source, key) as array:
        layout = Layout.of(array, axes or named_axes(source, key, tuple(array.shape)), channels_of(chosen), value_range)
        level = _estimated_noise(array, layout, mask) if sigma is None else sigma
        about = describe(source, array)
    fits = layout.channels == channels_of(chosen) or (layout.channels, channels_of(chosen)) == (1, 3)
    require(fits, f"{source}: the model takes {channels_of(chosen)} channels, axes {layout.axes} have none of them")
    blur = None if blurred is None else read_kernel(blurred, MAX_MEGAPIXELS)[0]
    known = task == "inpainting" and keeps_known(level)
    recipe = Recipe(task, values, level, N, seed, tile, overlap, margin, blur, known)
    Tiled(chosen.estimator, tile, overlap)  # which refuses tiles that the network cannot take
    local = workers if isinstance(workers, int) else 1 if where.type == "cuda" else 2
    threads = max(1, (os.cpu_count() or 1) // local) if where.type == "cpu" else None
    kept = str(np.dtype(dtype or layout.dtype))
    work = Work(source, key, mask, out, layout, kept, recipe, block, where, threads)
    run = {
        **about, "task": task, **values, "sigma": round(level, 6), "model": plain.fingerprint(), "N": N,
        "axes": layout.axes, "value_range": list(layout.value_range), "seed": seed, "tile": tile, "overlap": overlap,
        "precision": precision, "margin": margin,
        "mask": None if mask is None else _described(mask), "kernel": None if blur is None else _digest(blur),
    }  # fmt: skip
    with folder_lock(None if is_url(out) else os.path.abspath(out) + ".lock"):
        left = _left(work, run, force)
        done = work.count - len(left)
        with (
            _scheduler(workers, local) as compute,
            progress_bar(total=work.count, initial=done, unit="block", shown=progress) as bar,
        ):
            compute(work, chosen, left, bar.update)
    return {**run, "blocks": work.count, "now": len(left)}


def _left(work: Work, run: dict[str, Any], force: bool) -> list[int]:
    """Make the array of the results, or find which of its blocks are left, if it is of the same run."""
    there = None if force else results(work.out)
    if there is None:
        side = CHUNK if work.side % CHUNK == 0 else work.side
        if not force and not is_url(work.out):
            place = Path(work.out)
            free = not place.exists() or (place.is_dir() and not any(place.iterdir()))
            require(free, f"{work.out} is there, and no zarr array: choose another place, or give force", ProblemError)
        create(work.out, work.layout, np.dtype(work.dtype), side, run, work.source, work.key)
        return list(range(work.count))
    before = there.attrs.get("firm")
    now = json.loads(json.dumps(run))
    changed = sorted(k for k in now.keys() | (before or {}).keys() if (before or {}).get(k) != now.get(k))
    other = "is no result of firm" if before is None else f"is of a run with another {', '.join(changed)}"
    require(not changed, f"{work.out} {other}: choose another place, or give force to replace it", ProblemError)
    _, *chunk = (there.chunks[work.layout.axes.index(name)] for name in "xyx")
    fits = all(work.side % n == 0 or work.side >= size for n, size in zip(chunk, work.layout.size, strict=True))
    more = f"{work.out} has chunks of {chunk[0]} pixels: give a block of a multiple of that to go on"
    require(fits, more, ProblemError)
    stored = stored_chunks(there)

    def done(number: int) -> bool:
        place = work.layout.index(*work.pixels(number))
        return all(key in stored for key in chunk_keys(there, place))

    return [number for number in range(work.count) if not done(number)]


Compute = Callable[[Work, Firm, list[int], Callable[[], Any]], None]


@contextmanager
def _scheduler(workers: int | str | None, local: int) -> Iterator[Compute]:
    """Yield what computes blocks: Dask's client, if there is one or its address is given; else threads."""
    with ExitStack() as stack:
        client = None
        if isinstance(workers, str):
            distributed = extra("distributed", "A Dask scheduler", "dask")
            client = stack.enter_context(distributed.Client(workers))
        elif workers is None:
            client = _current_client()
        if client is not None:
            yield lambda *todo: _on_cluster(client, *todo)
        else:
            yield lambda *todo: _on_threads(local, *todo)


def _current_client() -> Any:
    """Return the client that the user has opened, if any."""
    try:
        distributed = extra("distributed", USE, "dask")
        return distributed.get_client()
    except (ModuleNotFoundError, ValueError):
        return None


def _on_threads(workers: int, work: Work, model: Firm, left: list[int], advance: Callable[[], Any]) -> None:
    dask, callbacks = extra("dask", USE, "dask"), extra("dask.callbacks", USE, "dask")
    tasks = [
        dask.delayed(_restore, pure=False)(work, _Held(model), n, dask_key_name=f"restore_block-{n}") for n in left
    ]
    before = torch.get_num_threads()
    try:
        with callbacks.Callback(posttask=lambda *_: advance()):
            dask.compute(*tasks, scheduler="threads", num_workers=workers, optimize_graph=False)
    finally:
        torch.set_num_threads(before)


def _on_cluster(client: Any, work: Work, model: Firm, left: list[int], advance: Callable[[], Any]) -> None:
    """Send blocks to the workers of a cluster; Dask gives the block of a lost one to another."""
    distributed = extra("distributed", USE, "dask")
    held = client.scatter(_Held(model.cpu() if work.device.type == "cpu" else model), broadcast=True)
    work = replace(work, threads=None)  # the worker has as many as it was started with
    digest = hashlib.sha256(f"{work.out}{work.recipe}".encode()).hexdigest()[:8]
    names = [f"restore_block-{digest}-{n}" for n in left]
    futures = client.map(_restore, [work] * len(left), [held] * len(left), left, key=names, pure=False)
    try:
        for future in distributed.as_completed(futures):
            future.result()
            advance()
    finally:
        client.cancel([future for future in futures if not future.done()])


@dataclass(frozen=True)
class _Held:
    """A model that Dask does not look into: modules can be called, and Dask's keys would hash their weights."""

    model: Firm

    def __dask_tokenize__(self) -> str:
        return str(id(self))


def _restore(work: Work, held: _Held, number: int) -> int:
    """Restore one block: what Dask calls, and shows."""
    return work.restore(held.model, number)


def _seen(mask: str, rows: range, columns: range) -> Tensor:
    """Return 1 where the mask is 0, (rows, columns)."""
    with opened(mask) as array:
        values = np.asarray(array[rows.start : rows.stop, columns.start : columns.stop])
    return torch.from_numpy((values == 0).astype(np.float32))


def _described(mask: str) -> dict[str, Any]:
    with opened(mask) as array:
        return describe(mask, array)


def _digest(values: Tensor) -> str:
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()[:16]


def _estimated_noise(array: Any, layout: Layout, mask: str | None) -> float:
    """Estimate the noise of the middle plane from a grid of windows; larger ones tell more, and take longer."""
    H, W = layout.size
    if mask is not None:
        raise ProblemError("give sigma, the noise level: it is not estimated beside a mask")
    h, w = min(WINDOW, H), min(WINDOW, W)
    tops, lefts = (np.unique(np.linspace(0, n - side, WINDOWS).astype(int)) for n, side in ((H, h), (W, w)))
    windows = [
        layout.to_image(np.asarray(array[layout.index(layout.planes // 2, range(t, t + h), range(s, s + w))]))
        for t in tops.tolist() for s in lefts.tolist()
    ]  # fmt: skip
    return estimate_noise(torch.stack(windows))
