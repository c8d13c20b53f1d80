"""Results as files: what they are called, pictures like those that came in, heat maps, and all of them side by side."""

from __future__ import annotations

import hashlib
import io
import itertools
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from firm._util.files import write_atomically
from firm._util.sheet import Panel, inferno, sheet
from firm.data.origin import ENDINGS as FILES
from firm.data.origin import Origin, encode
from firm.data.picture import Range, resized
from firm.data.volumes import OME

Format = Literal["same", "png", "png16", "npy"]
NOWHERE = Origin()
LONGEST = 200  # bytes of a name: room for _sample_01.png, and for the temporary file's, in the usual 255
ENDINGS = (*FILES.values(), ".npy", ".json")  # of results: no folder among them may end like that


# Names


def result_names(files: Sequence[Path], root: Path) -> list[str]:
    """Name the results of `files`, below the output folder like these below `root`, and different from each other.

    A result is called like its picture without the ending (``a``). Where several pictures share that name, the ending
    is part of it (``a_png``). Where this name is taken, is too long or has characters that cannot be printed, a number
    made of the file's name is added (``a_png-5f3c81d2``). Names that differ in upper and lower case only count as
    shared: some disks think so too.

    Parameters
    ----------
    files, root
        The pictures or arrays that are restored, and a folder that all of them lie below.

    Returns
    -------
    One name for each file, in their order, with "/" between folders. The ending of the result is not part of it.
    """
    inside = [PurePosixPath(path.relative_to(root).as_posix()) for path in files]
    plain = [_clean(_bare(path)) for path in inside]
    count = Counter(_key(name) for name, _ in plain)
    # Those who have their name alone keep it, whatever the others are called.
    names = [name if same and count[_key(name)] == 1 else "" for name, same in plain]
    taken = {_key(name) for name in names if name}
    for i, path in enumerate(inside):
        if not names[i]:
            names[i] = next(name for name in _others(path) if _key(name) not in taken)
            taken.add(_key(names[i]))
    return names


def _bare(path: PurePosixPath) -> PurePosixPath:
    """Return a path without its ending, which volumes have two of (``.ome.tif``)."""
    bare = path.with_suffix("")
    return bare.with_suffix("") if path.name.lower().endswith((".nii.gz", *OME)) else bare


def _others(path: PurePosixPath) -> Iterator[str]:
    """Yield names for a picture that cannot have its own. Each that is taken costs another file its place: linear."""
    ending = path.suffix.replace(".", "_") if len(path.suffix) < 20 else ""
    name, same = _clean(_bare(path), ending)
    if same:
        yield name
    for i in itertools.count():
        digest = hashlib.sha256(f"{path}/{i}".encode(errors="surrogatepass")).hexdigest()[:8]
        yield _clean(_bare(path), f"{ending}-{digest}")[0]


def _clean(path: PurePosixPath, ending: str = "") -> tuple[str, bool]:
    """Return the path with `ending`, printable and short enough for results; and whether that left it as it was."""

    def printable(text: str) -> str:
        return "".join(c if c.isprintable() else "_" for c in text)

    folders = [printable(part) for part in path.parts[:-1]]
    folders = [part.replace(".", "_") if part.lower().endswith(ENDINGS) else part for part in folders]
    last, ending = printable(path.name), printable(ending)
    last = last.encode()[: LONGEST - len(ending.encode())].decode(errors="ignore") + ending
    same = (*folders, last) == (*path.parts[:-1], path.name + ending)
    return "/".join([*folders, last]), same


def _key(name: str) -> str:
    """Return a text that is equal for names that some file system takes for the same."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


# Pictures and arrays


def write_picture(
    path: Path, x: Tensor, kind: Format = "same", alpha: Tensor | None = None, origin: Origin = NOWHERE,
    value_range: Range | None = None,
) -> None:  # fmt: skip
    """Write an image as a picture.

    Parameters
    ----------
    path
        The file, with the `ending` of its kind; its folder is made if need be.
    x
        The image (C, H, W) in [-1, 1], C = 1 or 3.
    kind
        Like the file that it came from ("same"), PNG with 8 bits ("png") or 16 ("png16"), or .npy with float32
        (H, W, C) in [0, 1] ("npy").
    alpha
        Bytes (h, w), 255 = opaque, that become a last channel, resized where the image has another size.
    origin
        The file that it came from; its color profile, EXIF data and resolution are kept in every kind but npy.
    value_range
        Of an origin of more than 8 bits that is gray, and of kind "same": the values that stand for -1 and 1.
    """
    values = ((x.detach().cpu().float() + 1) / 2).permute(1, 2, 0)
    if alpha is not None:
        opaque = resized(alpha, *values.shape[:2]).float() / 255
        values = torch.cat([values, opaque[..., None]], dim=2)
    if kind == "npy":
        return _save(path, values)
    if values.shape[2] < 3 and not origin.gray and origin.profile:  # its profile is one of color
        values = torch.cat([values[..., :1].expand(-1, -1, 3), values[..., 1:]], dim=2)
    if kind != "same":
        origin = replace(origin, format="PNG", bits=16 if kind == "png16" else 8, floats=False)
    low, high = (0.0, 1.0) if origin.floats else (0.0, 65535.0 if origin.bits > 8 else 255.0)
    if value_range is not None and origin.bits > 8 and origin.gray and kind == "same":
        low, high = value_range
    scaled = low + (high - low) * (values.double() if origin.bits > 8 else values).numpy()
    if origin.floats:
        pixels = scaled.astype(np.float32)
    else:
        large = np.uint32 if high > 2**31 - 1 else np.int32  # as the file, whose range it is
        dtype = {8: np.uint8, 16: np.uint16, 32: large}[origin.bits]
        pixels = np.round(scaled.clip(low, high)).astype(dtype)
    write_atomically(path, encode(pixels, origin))


def ending(kind: Format, origin: Origin) -> str:
    """Return the ending of a picture's file for its kind and the file that it came from."""
    return origin.ending if kind == "same" else ".npy" if kind == "npy" else ".png"


def write_array(
    path: Path, x: Tensor, complex_image: bool = False, value_range: tuple[float, float] | None = None,
    deviation: bool = False,
) -> None:  # fmt: skip
    """Write an image as .npy with the values that the input had.

    Parameters
    ----------
    path, x
        The file, and the image (C, H, W) in [-1, 1], which becomes float32.
    complex_image
        The first half of the channels are real parts, the others imaginary ones: they become complex64 (C / 2, H, W).
    value_range
        What -1 and 1 stand for (of complex images, what a magnitude of 0 and 1).
    deviation
        x holds standard deviations of such an image; they are written in the same units.
    """
    low, high = value_range or ((0.0, 1.0) if complex_image else (-1.0, 1.0))
    values = x.detach().cpu().float()
    if complex_image:
        values = high * torch.complex(*values.chunk(2))
    elif deviation:
        values = (high - low) / 2 * values
    elif value_range is not None:
        values = low + (high - low) * (values + 1) / 2
    _save(path, values)


def _save(path: Path, values: Tensor) -> None:
    buffer = io.BytesIO()
    np.save(buffer, values.numpy())
    write_atomically(path, buffer.getvalue())


def write_heat_map(path: Path, std: Tensor) -> float:
    """Draw a standard deviation (C, H, W), averaged over channels, in colors from 0 to its maximum, and return that."""
    values = std.detach().mean(0).cpu().numpy()
    top = max(float(values.max()), 1e-9)
    write_atomically(path, encode(inferno(values / top), NOWHERE))
    return top


def write_side_by_side(path: Path, rows: Sequence[Sequence[Panel]], origin: Origin = NOWHERE) -> None:
    """Write titled panels, one list a row, as `firm._util.sheet.sheet` draws them, in the colors of their `origin`."""
    write_atomically(path, encode(np.asarray(sheet(rows)), Origin(profile=origin.profile)))
