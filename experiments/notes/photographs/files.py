"""Real files: what is kept of format, bits, profile and EXIF, and the colors against LittleCMS.

Run ``python experiments/notes/photographs/files.py FILE...``: each is read and written as `firm restore` does, without
the network in between, so that whatever differs was lost on the way. Prints rows of a table in Markdown.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import ImageCms, ImageOps

from firm.data.opening import PictureError, header
from firm.restoration.output import ending, write_picture
from firm.restoration.reading import read


def seen(path: Path) -> NDArray[np.float64]:
    """The picture in sRGB (H, W, 3), upright, as LittleCMS converts it by its profile."""
    with header(path) as picture:
        picture.load()
        profile = picture.info.get("icc_profile")
        upright = ImageOps.exif_transpose(picture)
    if upright.mode.startswith(("I", "F")):
        values = np.asarray(upright, dtype=np.float64) / (1 if upright.mode == "F" else 257)
        return np.repeat(values[..., None], 3, axis=2)
    if upright.mode not in ("L", "RGB", "CMYK", "LAB"):
        upright = upright.convert("RGBA").convert("RGB")
    srgb = ImageCms.createProfile("sRGB")
    if upright.mode == "LAB":
        source = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB"))
        upright = ImageCms.profileToProfile(upright, source, srgb, outputMode="RGB")
    elif profile and upright.mode != "L":
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        upright = ImageCms.profileToProfile(upright, source, srgb, outputMode="RGB")
    return np.asarray(upright.convert("RGB"), dtype=np.float64)


def about(path: Path) -> str:
    """Format, mode, profile and number of EXIF entries of a file."""
    with header(path) as picture:
        profile = picture.info.get("icc_profile")
        name = ""
        if profile:
            name = ImageCms.getProfileDescription(ImageCms.ImageCmsProfile(io.BytesIO(profile))).strip()
        exif = picture.getexif()
        entries = len(exif) + sum(len(exif.get_ifd(k)) for k in (0x8769, 0x8825))
        raw = getattr(picture, "tile", None)
        mode = raw[0][3] if raw and isinstance(raw[0][3], str) else raw[0][3][0] if raw and raw[0][3] else picture.mode
        size = f"{picture.width}x{picture.height}"
        turned = exif.get(0x0112, 1)
    return f"{picture.format} {mode} {size}; {name[:28] or '-'}; {entries} EXIF" + (
        f", turned {turned}" if turned > 1 else ""
    )


def main(files: list[str]) -> None:
    """Print a row for every file."""
    print("| file | in | out | colors: mean and largest difference of 255 |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for file in map(Path, files):
            try:
                reading = read(file)
                target = Path(folder) / f"{file.stem}{ending('same', reading.origin)}"
                image = reading.image[0].mean(0, keepdim=True) if reading.gray else reading.image[0]
                write_picture(target, image, "same", reading.alpha, reading.origin)
                difference = np.abs(seen(file) - seen(target))
                colors = f"{difference.mean():.2f}, {difference.max():.0f}"
                print(f"| {file.name} | {about(file)} | {about(target)} | {colors} |", flush=True)
            except (PictureError, ValueError) as error:
                print(f"| {file.name} | refused: {error} | | |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
