"""Pictures with transparency: their colors as they are stored, and how opaque each pixel is."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from firm.data.picture import MAX_MEGAPIXELS, decode, picture_errors, strips, to_tensor, values_of


def read_with_alpha(
    path: str | Path, *, max_megapixels: float = MAX_MEGAPIXELS, value_range: tuple[float, float] | None = None
) -> tuple[Tensor, Tensor | None]:
    """Colors (3, H, W) in [-1, 1] and alpha (H, W), bytes with 255 = opaque; None for pictures without.

    Unlike `read_picture`, which lays transparent pictures over white: here the colors are those of the file, also
    where they cannot be seen, so that they can be changed and put under the same alpha again.

    `value_range` is black and white of a gray picture of more than 8 bits: 0 and 65535 if not given, of floats 0 and 1.
    """
    path = Path(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of harmless metadata
        with picture_errors(path):
            picture = decode(path, max_megapixels, value_range)
            if not has_alpha(picture):
                return values_of(picture, 3), None
            colors = torch.empty(3, picture.height, picture.width)
            alpha, top = torch.empty(picture.height, picture.width, dtype=torch.uint8), 0
            for strip in strips(picture):
                pixels = torch.from_numpy(np.array(strip.convert("RGBA")))
                colors[:, top : top + strip.height] = to_tensor(pixels[..., :3].permute(2, 0, 1))
                alpha[top : top + strip.height] = pixels[..., 3]
                top += strip.height
            return colors, alpha


def has_alpha(picture: Image.Image) -> bool:
    """Whether a picture says how opaque its pixels are: by a channel, or by a color that is transparent."""
    if picture.mode in ("LA", "La", "PA", "RGBA", "RGBa"):
        return True
    return picture.mode in ("L", "RGB", "P") and "transparency" in picture.info


def resized(alpha: Tensor, height: int, width: int) -> Tensor:
    """Alpha (h, w), bytes, for a picture of another size; unchanged where it has that size."""
    if alpha.shape == (height, width):
        return alpha
    picture = Image.fromarray(alpha.numpy()).resize((width, height), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(picture))
