"""The images of a run: those to train on, and those to validate with."""

from __future__ import annotations

import torch

from firm.data.array_file import ArrayError
from firm.data.arrays import ChannelsError
from firm.data.images import Images
from firm.data.load import load_images
from firm.data.picture_file import MAX_MEGAPIXELS, PictureError
from firm.data.sets import Split
from firm.operators.checks import LARGEST
from firm.training.config import ConfigError, TrainConfig
from firm.training.objectives import objective_class


def load_sets(config: TrainConfig, progress: bool, max_megapixels: float = MAX_MEGAPIXELS) -> tuple[Images, Images]:
    """Training and validation images. A folder or file without ``val_data`` gives its first images to validation.

    Images of more than `max_megapixels` are refused from their header.
    """
    c = config
    if not c.data:
        raise ConfigError("data is not set: give the folder of the data set, data=DIR")
    arrays = c.dataset == "arrays"
    kept: int | None = c.read_size or c.size
    if arrays and c.crop == "random" and not c.read_size:
        kept = None  # whole
    value_range = (c.value_range[0], c.value_range[1]) if c.value_range else None

    def read(root: str, split: Split, size: int | None, limit: int = 0) -> Images:
        try:
            return load_images(
                c.dataset, root, split, size=size, channels=c.channels, limit=limit, cache=c.cache or None,
                mapped=c.mapped, value_range=value_range, key=c.key or None, progress=progress,
                max_megapixels=max_megapixels,
            )  # fmt: skip
        except ChannelsError as error:
            raise ConfigError(f"{error}: set channels={error.found}") from error
        except (ArrayError, PictureError):
            raise
        except ValueError as error:
            raise ConfigError(str(error)) from error

    train = read(c.data, "train", kept, c.limit)
    if c.dataset in ("celeba", "afhq") or c.val_data:
        held_out = read(c.val_data or c.data, "val", c.size, c.val_images) if c.val_images else train.part(0, 0)
    else:
        held_out, train = train.part(0, c.val_images), train.part(c.val_images)
    if not len(train):
        raise ConfigError(
            f"{c.data}: no images left to train on after {c.val_images} for validation: hold out fewer (val_images=), "
            "or name others (val_data=)"
        )
    _check(c, train)
    if len(held_out) and objective_class(c.objective).measures:
        for root, images in ((c.data, train), (c.val_data or c.data, held_out)):
            _check_range(c, root, images.part(0, 16))  # a few tell
    return train, _center(held_out, c.size)


def _check(c: TrainConfig, images: Images) -> None:
    C, H, W = images.shape
    if c.channels != C:
        kind = "complex, two for each channel" if images.complex else "real"
        raise ConfigError(f"{c.data}: the images have {C} channels ({kind}): set channels={C}")
    if min(H, W) < c.size:
        raise ConfigError(f"{c.data}: the images have {H}x{W} pixels, fewer than size={c.size}")
    smallest = c.size / (c.scale[1] if c.scale else 1)
    if c.crop == "random" and smallest >= max(H, W):
        raise ConfigError(f"crop=random needs larger images than {smallest:g} pixels: set read_size, for pictures")


def _check_range(c: TrainConfig, root: str, images: Images) -> None:
    """Refuse images whose measurements validation would refuse, after minutes of training."""
    sizes = images.batch(slice(None)).square().mean((1, 2, 3)).sqrt()
    if bool((sizes > LARGEST).any()):
        scaled = f" with value_range=[{c.value_range[0]:g}, {c.value_range[1]:g}]" if c.value_range else ""
        raise ConfigError(
            f"{root}: the images have values of about {float(sizes.max()):.3g} (root mean square){scaled}, but FIRM "
            "works in [-1, 1]: value_range=[low, high] of dataset=arrays names the values in the file that stand for "
            "-1 and 1"
        )


def _center(images: Images, size: int) -> Images:
    """The central square of every image."""
    H, W = images.data.shape[-2:]
    top, left = (H - size) // 2, (W - size) // 2
    middle: torch.Tensor = images.data[..., top : top + size, left : left + size]
    return Images(middle, images.names, images.complex)
