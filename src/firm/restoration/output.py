"""Results as files: what they are called, PNG with 8 or 16 bits, floats, heat maps, and all of them side by side."""

from __future__ import annotations

import hashlib
import io
import itertools
import struct
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from firm._util.files import write_atomically
from firm._util.sheet import Panel, inferno, sheet
from firm.data.picture import resized

Format = Literal["png", "png16", "npy"]
SUFFIX: dict[str, str] = {"png": ".png", "png16": ".png", "npy": ".npy"}
LONGEST = 200  # bytes of a name: room for _sample_01.png, and for the temporary file's, in the usual 255
ENDINGS = (".png", ".npy", ".json")  # of results: no folder among them may end like that


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
    plain = [_clean(path.with_suffix("")) for path in inside]
    count = Counter(_key(name) for name, _ in plain)
    # Those who have their name alone keep it, whatever the others are called.
    names = [name if same and count[_key(name)] == 1 else "" for name, same in plain]
    taken = {_key(name) for name in names if name}
    for i, path in enumerate(inside):
        if not names[i]:
            names[i] = next(name for name in _others(path) if _key(name) not in taken)
            taken.add(_key(names[i]))
    return names


def _others(path: PurePosixPath) -> Iterator[str]:
    """Yield names for a picture that cannot have its own. Each that is taken costs another file its place: linear."""
    ending = path.suffix.replace(".", "_") if len(path.suffix) < 20 else ""
    name, same = _clean(path.with_suffix(""), ending)
    if same:
        yield name
    for i in itertools.count():
        digest = hashlib.sha256(f"{path}/{i}".encode(errors="surrogatepass")).hexdigest()[:8]
        yield _clean(path.with_suffix(""), f"{ending}-{digest}")[0]


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


def write_picture(path: Path, x: Tensor, kind: Format = "png", alpha: Tensor | None = None) -> None:
    """Write an image as a picture.

    Parameters
    ----------
    path
        The file; its folder is made if need be.
    x
        The image (C, H, W) in [-1, 1], C = 1 or 3.
    kind
        PNG with 8 bits ("png") or 16 ("png16"), or .npy with float32 (H, W, C) in [0, 1] ("npy").
    alpha
        Bytes (h, w), 255 = opaque, that become a last channel, resized where the image has another size.
    """
    values = ((x.detach().cpu().float() + 1) / 2).permute(1, 2, 0)
    if alpha is not None:
        opaque = resized(alpha, *values.shape[:2]).float() / 255
        values = torch.cat([values, opaque[..., None]], dim=2)
    if kind == "npy":
        return _save(path, values)
    top = 65535 if kind == "png16" else 255
    pixels = np.round(values.numpy().clip(0, 1) * top)
    write_atomically(path, _png16(pixels.astype(">u2")) if kind == "png16" else _png8(pixels.astype(np.uint8)))


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


def _png8(pixels: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(buffer, "PNG")
    return buffer.getvalue()


def _png16(pixels: NDArray[Any]) -> bytes:
    """Encode pixels (H, W, C), big-endian, as a PNG of 16 bits a channel, which Pillow writes for gray only."""
    H, W, C = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # each row: no filter, then its values
    header = struct.pack(">IIBBBBB", W, H, 16, {1: 0, 2: 4, 3: 2, 4: 6}[C], 0, 0, 0)  # gray, color; with alpha
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 6)), (b"IEND", b""))
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


def write_heat_map(path: Path, std: Tensor) -> float:
    """Draw a standard deviation (C, H, W), averaged over channels, in colors from 0 to its maximum, and return that."""
    values = std.detach().mean(0).cpu().numpy()
    top = max(float(values.max()), 1e-9)
    write_atomically(path, _png8(inferno(values / top)))
    return top


def write_side_by_side(path: Path, rows: Sequence[Sequence[Panel]]) -> None:
    """Write titled panels, one list a row, as `firm._util.sheet.sheet` draws them."""
    write_atomically(path, _png8(np.asarray(sheet(rows))))
