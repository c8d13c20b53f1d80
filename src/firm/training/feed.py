"""The images of a run: read, checked against the configuration, and drawn for every step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from firm._util.checks import generator_for
from firm._util.machine import Ranks
from firm.data.arrays import ChannelsError
from firm.data.crops import crop_at, crop_scaled, gather_crops, positions
from firm.data.images import Images, Prefetcher
from firm.data.load import load_images
from firm.data.opening import MAX_MEGAPIXELS
from firm.data.picture import to_float
from firm.data.sets import Split
from firm.data.stored import Stored
from firm.operators.base import LARGEST
from firm.tasks import Rows
from firm.training.config import ConfigError, TrainConfig


def load_sets(config: TrainConfig, progress: bool, max_megapixels: float = MAX_MEGAPIXELS) -> tuple[Images, Images]:
    """Read training and validation images. A set without ``val_data`` gives its first images to validation.

    Parameters
    ----------
    config, progress, max_megapixels
        Where the images are and how they are read; whether a bar is shown; how large those are that are refused.

    Returns
    -------
    The images to train on, (n, C, H, W), and those held out, (m, C, size, size); `ConfigError` if they do not fit.
    """
    c = config
    if not c.data:
        raise ConfigError("data is not set: give the folder of the data set, data=DIR")
    whole = c.dataset in ("arrays", "volumes", "shards") and c.crop == "random" and not c.read_size
    kept = None if whole else c.read_size or c.size
    value_range = (c.value_range[0], c.value_range[1]) if c.value_range else None

    def read(root: str, split: Split, size: int | None, limit: int = 0) -> Images:
        try:
            return load_images(
                c.dataset, root, split, size=size, channels=c.channels, limit=limit, cache=c.cache or None,
                mapped=c.memory_map, value_range=value_range, key=c.key or None, progress=progress,
                max_megapixels=max_megapixels,
            )  # fmt: skip
        except ChannelsError as error:
            raise ConfigError(f"{error}: set channels={error.found}") from error

    train = read(c.data, "train", kept, c.limit)
    if c.dataset in ("celeba", "afhq") or c.val_data:
        held_out = read(c.val_data or c.data, "val", c.size, c.val_images) if c.val_images else train.part(0, 0)
    else:
        held_out, train = train.part(0, c.val_images), train.part(c.val_images)
    C, (H, W) = train.channels, train.data.shape[-2:]
    kind = "complex, two for each channel" if train.complex else "real"
    smallest = c.size / (c.scale[1] if c.scale else 1)
    for fits, message in (
        (len(train), f"no images left to train on after {c.val_images} for validation: hold out fewer (val_images=), "
                     "or name others (val_data=)"),
        (c.channels == C, f"the images have {C} channels ({kind}): set channels={C}"),
        (min(H, W) >= c.size, f"the images have {H}x{W} pixels, fewer than size={c.size}"),
        (c.crop != "random" or smallest < max(H, W),
         f"crop=random needs larger images than {smallest:g} pixels: set read_size, for pictures"),
    ):  # fmt: skip
        if not fits:
            raise ConfigError(f"{c.data}: {message}")
    if len(held_out) and c.objective_class.measures:
        for root, images in ((c.data, train), (c.val_data or c.data, held_out)):
            _check_range(c, root, images.part(0, 16))  # a few show it
    top, left = ((n - c.size) // 2 for n in held_out.data.shape[-2:])
    middle = held_out.data[:][..., top : top + c.size, left : left + c.size]
    return train, Images(middle, held_out.names, held_out.complex)


def _check_range(c: TrainConfig, root: str, images: Images) -> None:
    """Refuse images whose measurements validation would refuse, after minutes of training."""
    sizes = images.batch(slice(None)).square().mean((1, 2, 3)).sqrt()
    if (sizes > LARGEST).any():
        scaled = f" with value_range=[{c.value_range[0]:g}, {c.value_range[1]:g}]" if c.value_range else ""
        raise ConfigError(
            f"{root}: the images have values of about {float(sizes.max()):.3g} (root mean square){scaled}, but FIRM "
            "works in [-1, 1]: value_range=[low, high] names the values in the file that stand for "
            "-1 and 1"
        )


class Feed:
    """Draws images with replacement. A resident set lies on the device, and drawing from it fits into a CUDA graph.

    A set that is memory-mapped, or in shards, stays in its files: `ahead` reads the images of the coming steps in the
    background, and the step works on what it got. Shards are not drawn from but gone through, epoch by epoch, in a
    random order. `images` is the whole training set, (n, C, H, W), whichever of the `ranks` this is.
    """

    def __init__(self, config: TrainConfig, images: Images, ranks: Ranks) -> None:
        self.config, self.ranks = config, ranks
        self.count, self.shape = len(images), images.shape
        stays = config.memory_map or isinstance(images.data, Stored)
        self.resident = None if stays else images.data[:].to(ranks.device)
        self._images = images
        self._reader: Prefetcher | None = None

    def ahead(self, step: int, counts: Sequence[int]) -> Tensor:
        """Read the stored values (B, C, H, W) of this process's images in `step` of a set that stays in its files.

        `counts` are the samples of each task in a part of the batch.
        """
        if self._reader is None:
            self._reader = Prefetcher(self._images, lambda step: self._indices(step, counts), step)
        return self._reader.get(step).to(self.ranks.device, non_blocking=True)

    def _indices(self, step: int, counts: Sequence[int]) -> Tensor:
        """Draw which images this process needs in a step: part by part, in each the rows of every task."""
        c, r, data = self.config, self.ranks, self._images.data
        if isinstance(data, Stored):
            drawn = data.streamed(step * c.batch_size, c.batch_size, c.shuffle, c.seed)
        else:
            drawn = torch.randint(self.count, (c.batch_size,), generator=generator_for(c.seed, step, "images"))
        tasks = drawn.split([n * r.world * c.accumulation_steps for n in counts])
        parts = range(r.rank * c.accumulation_steps, (r.rank + 1) * c.accumulation_steps)
        return torch.cat([rows[n * p : n * (p + 1)] for p in parts for rows, n in zip(tasks, counts, strict=True)])

    def draw(self, rows: Sequence[Rows], read: Tensor | None, device: torch.device) -> Tensor:
        """Draw clean images for one part of the batch: line 2 of Algorithm 1.

        `rows` are those of every task, and `read` is what `ahead` gave for this part. The images x_1 in [-1, 1], on the
        device, are (B, C, size, size), ordered by task.
        """
        parts, images = [None] * len(rows) if read is None else read.split([len(r) for r in rows]), []
        for r, part in zip(rows, parts, strict=True):
            data, index = part, None
            if data is None:
                data, index = self.resident, (r.rand(device=device) * self.count).long().clamp(max=self.count - 1)
            assert data is not None
            x = self._cropped(r, data, index, device)
            mirrored = r.rand(1, 1, 1, device=device) < 0.5  # drawn in any case: the rest is the same
            images.append(torch.where(mirrored, x.flip(-1), x) if self.config.flips else x)
        return torch.cat(images)

    def _cropped(self, r: Rows, data: Tensor, index: Tensor | None, device: torch.device) -> Tensor:
        """Crop the images `index` out of `data`, or all of it, as the configuration asks."""
        c, (H, W) = self.config, self.shape[1:]
        if c.crop == "center":
            return to_float(data if index is None else data[index])
        if not c.scale:
            top, left = (positions(r.rand(device=device), n, c.size) for n in (H, W))
            square = crop_at(data, top, left, c.size) if index is None else gather_crops(data, index, top, left, c.size)
            return to_float(square)
        low, high = c.scale
        side = c.size / (low * (high / low) ** r.rand(device=device))  # an enlarged image shows fewer pixels
        side = side.clamp(max=min(H, W))
        top, left = (r.rand(device=device) * (n - side) for n in (H, W))
        return crop_scaled(to_float(data if index is None else data[index]), top, left, side, c.size)

    def close(self) -> None:
        """End reading ahead."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
