"""What ``firm info`` says of a picture, or of an array that is an image."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from torch import Tensor

Facts = dict[str, Any]


def picture_facts(path: Path, max_megapixels: float, key: str | None = None) -> Facts:
    """Format, size and depth of a picture, how noisy, blurred and compressed it looks; of an array, what it holds.

    `key` names the array in a file that holds several.
    """
    from firm.data.array_file import is_array_file
    from firm.data.picture_file import has_alpha, is_deep, open_picture, top
    from firm.restoration.jpeg import has_blocks, jpeg_quality
    from firm.restoration.reading import is_saved_picture, read

    if is_array_file(path) and (key is not None or not is_saved_picture(path)):
        return array_facts(path, max_megapixels, key)
    image = read(path, max_megapixels=max_megapixels).image
    facts: Facts = {"picture": str(path), "width": image.shape[-1], "height": image.shape[-2]}
    if is_array_file(path):
        return {**facts, "format": "floats in [0, 1], as --format npy writes them", **_seen(image)}
    with warnings.catch_warnings(), open(path, "rb") as file:
        warnings.simplefilter("ignore")  # Pillow warns of harmless metadata
        picture = open_picture(file)
        facts |= {"format": picture.format, "mode": picture.mode, "frames": getattr(picture, "n_frames", 1)}
        if is_deep(picture):
            white = top(picture.mode)
            low, high = (white * (float(end) + 1) / 2 for end in (image.min(), image.max()))
            facts["values"] = f"{low:.6g} to {high:.6g}; black is 0, white {white:g}, or as --value-range says"
        if has_alpha(picture):
            facts["transparency"] = "kept by firm restore"
    quality = jpeg_quality(path)
    if quality is not None:
        facts["compression"] = f"JPEG of quality {quality}"
    elif has_blocks(image):
        facts["compression"] = "was a JPEG once: blocks of 8x8 pixels show"
    return {**facts, **_seen(image)}


def _seen(image: Tensor) -> Facts:
    """Noise and blur of a picture (1, 3, H, W), as they look."""
    from firm.restoration.blur_estimate import estimate_blur
    from firm.restoration.noise import estimate_noise

    facts: Facts = {}
    try:
        sigma = estimate_noise(image)
        facts["noise"] = f"about {sigma:.3f} for pixels in [-1, 1], {127.5 * sigma:.1f} of 255"
    except ValueError as error:
        facts["noise"] = f"not known: {error}"
    try:
        facts["blur"] = f"{estimate_blur(image)} pixels (standard deviation), what the lens blurred included"
    except ValueError as error:
        facts["blur"] = f"not known: {error}"
    return facts


def array_facts(path: Path, max_megapixels: float, key: str | None = None) -> Facts:
    """Shape, type and values of an array; of a stack, those of the whole of it."""
    import numpy as np

    from firm.data.array_file import open_array
    from firm.data.arrays import check_size

    with open_array(path, key) as array:
        H, W = (1, 1, *array.shape)[-2:]
        check_size(path, 1, H, W, max_megapixels)
        values = np.abs(array[...]) if array.dtype.kind == "c" else np.asarray(array[...])
        what = "magnitudes" if array.dtype.kind == "c" else "values"
        return {
            "array": str(path), "shape": " x ".join(map(str, array.shape)), "type": str(array.dtype),
            what: f"{float(values.min()):.4g} to {float(values.max()):.4g}, mean {float(values.mean()):.4g}",
        }  # fmt: skip
