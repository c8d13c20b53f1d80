"""Files that were made to harm: what promises too much, points elsewhere, has no end, or starts programs.

Each one is restored, or given to ``firm train`` if it is YAML: its values come out right, or it is refused in a
sentence, soon, with little memory; and no other file is opened, which the process and the file's own time tell.
"""

from __future__ import annotations

import io
import itertools
import os
import pickle
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from commands import CONFIG, Result, pictures, tiny_model, watched
from PIL import Image

GRAY, VALUE = 64 / 127.5 - 1, 0.25  # of all pixels of the good pictures and arrays
FLOATS = np.full(192, VALUE, "<f4").tobytes()
READ = "from firm.data import read_image; x = read_image({!r})[0]; print('values', float(x.min()), float(x.max()))"
Files = Iterator[tuple[str, bytes, float | None]]  # a name, what is in it, and its values; None if it is to be refused


def strange_files(folder: Path, rng: random.Random) -> Result:
    """Hostile arrays, HDF5, TIFF, YAML, and pictures of every format that Pillow knows."""
    model, secret = tiny_model(folder / "tiny.safetensors"), folder / "elsewhere" / "secret"
    for place in (secret.parent, folder / "files"):
        place.mkdir()
    secret.write_bytes(FLOATS)
    wrong, count = list[str](), 0
    data = pictures(folder / "data", 4, 20, rng)
    for name, content, right in itertools.chain(arrays(), hdf5(secret), tiffs(), images(), settings(data)):
        path, out, count = folder / "files" / name, folder / "out" / name, count + 1
        path.write_bytes(content)
        os.utime(secret, (0, secret.stat().st_mtime))
        restore = ["restore", path, "--task", "denoising", "--sigma", 0.1, "--model", model, "--out", out]
        done = watched(*(["train", path, "--dry-run"] if path.suffix == ".yaml" else restore), seconds=20)
        others = [file for file in done.opened if not file.startswith((str(path), str(out), str(data)))]
        read = right is not None and done.code == 0 and path.suffix != ".yaml"
        found = watched("-c", READ.format(str(path))).text.split()[1:] if read else []
        problems = {
            done.problem(): bool(done.problem()),
            f"it took {done.seconds:.0f} s and {done.megabytes:.0f} MB": done.seconds > 10 or done.megabytes > 1000,
            f"it ended with {done.code}: {done.text[-300:]}": (done.code == 0) == (right is None),
            f"it opened {others}": bool(others), "it read another file": secret.stat().st_atime > 0,
            f"it says {done.text[:100]}...": done.code > 0 and len(done.text) > 2000,
            f"its values are {found}": any(abs(float(value) - (right or 0)) > 0.02 for value in found),
        }  # fmt: skip
        wrong += [f"{name}: {problem}" for problem, holds in problems.items() if holds][:1]
    return count - len(wrong), count, wrong


def npy(shape: str = "(3, 8, 8)", descr: str = "'<f4'", order: str = "False", data: bytes = FLOATS, version: int = 1,
        length: int | None = None, text: str | None = None) -> bytes:  # fmt: skip
    """A .npy file whose header says what it is told."""
    about = (text or f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}\n").encode()
    size = struct.pack("<H" if version == 1 else "<I", len(about) if length is None else length)
    return b"\x93NUMPY" + bytes([version, 0]) + size + about + data


def arrays() -> Files:
    """.npy, .npz and .pt."""
    good = [{}, {"order": "True"}, {"version": 2}, {"descr": "'<f8'", "data": np.full(192, VALUE).tobytes()}]
    shapes = ["(-3, 8, 8)", "(3, 8, -1)", "(3, 100000, 100000)", "(9223372036854775807, 9, 9)", f"({'9' * 4000}, 8, 8)",
              "(3.0, 8, 8)", "(True, 8, 8)", "(0, 8, 8)", "()", "3", "None", "(3, 8, 8", "(" * 4000,
              "(" + "1," * 40 + ")", "(3, 8, 9)", "(-1, -8, 24)"]  # fmt: skip
    kinds = ["'|O'", "'<U9'", "'|V8'", "[('a', '<f4')]", "'<M8[s]'", "7", "[" * 900, "('<f4', (99999999,) * 9)"]
    more: list[dict[str, Any]] = [
        {"version": 3}, {"length": 60000}, {"version": 2, "length": 2**32 - 1}, {"text": "{}"}, {"data": FLOATS[:-9]},
        {"text": "__import__('os').system('true')"}, {"data": np.full(192, np.nan, "<f4").tobytes()},
    ]  # fmt: skip
    yield from ((f"good{i}.npy", npy(**about), VALUE) for i, about in enumerate(good))
    bad = [*({"shape": text} for text in shapes), *({"descr": text} for text in kinds), *more]
    yield from ((f"bad{i}.npy", npy(**about), None) for i, about in enumerate(bad))
    members: dict[str, Iterable[tuple[str, bytes]]] = {
        "good": [("x.npy", npy())], "none": [], "object": [("x.npy", npy(descr="'|O'"))],
        "many": ((f"{i}.npy", b"") for i in range(20_000)),
        "bomb": [("x.npy", npy("(3, 20000, 20000)", data=bytes(2 * 10**8)))],
    }  # fmt: skip
    for name, inside in members.items():
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for member, data in inside:
                archive.writestr(member, data)
        yield f"{name}.npz", buffer.getvalue(), VALUE if name == "good" else None
    plain = torch.full((3, 8, 8), VALUE)
    tensors = {"good": plain, "sparse": plain.to_sparse(), "meta": plain.to("meta"), "deep": [[[[plain]]]],
               "wide": plain[:1, :1, :1].expand(3, 30000, 30000), "nan": plain * float("nan")}  # fmt: skip
    for name, value in tensors.items():
        torch.save(value, buffer := io.BytesIO())
        yield f"{name}.pt", buffer.getvalue(), VALUE if name == "good" else None
    yield "code.pt", pickle.dumps(_Program()), None


class _Program:
    """What runs a program when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch stolen",)


def hdf5(secret: Path) -> Files:
    """Links in circles and to other files, values elsewhere, and data sets that are larger than they seem."""
    import h5py

    other, values = secret.with_name("other.h5"), np.full((3, 8, 8), VALUE, np.float32)
    with h5py.File(other, "w") as file:
        file["x"] = values
    layouts = {name: h5py.VirtualLayout((3, 8, 8), "f4") for name in ("other.h5", "none.h5")}
    for name, layout in layouts.items():
        layout[:] = h5py.VirtualSource(secret.with_name(name), "x", (3, 8, 8))
    outside = h5py.ExternalLink(other, "x")
    good: dict[str, Callable[[Any], Any]] = {
        "packed": lambda f: f.create_dataset("a/b/x", data=values, compression="gzip"),
        "circle": lambda f: f.update({"x": values, "a/b/c": h5py.SoftLink("/a")}) or f["a/b"].__setitem__("d", f["a"]),
        "soft": lambda f: f.update({"x": values, "s": h5py.SoftLink("/s"), "e": outside}),
    }
    bad: dict[str, Callable[[Any], Any]] = {
        "linked": lambda f: f.update({"x": outside}), "scalar": lambda f: f.update({"x": 0.5}), "none": lambda f: None,
        "stored": lambda f: f.create_dataset("x", (3, 8, 8), "f4", external=[(str(secret), 0, 768)]),
        "missing": lambda f: f.create_dataset("x", (3, 8, 8), "f4", external=[("none", 0, 768)]),
        "virtual": lambda f: f.create_virtual_dataset("x", layouts["other.h5"]),
        "gone": lambda f: f.create_virtual_dataset("x", layouts["none.h5"]),
        "deep": lambda f: f.create_dataset("a/" * 2000 + "x", data=values),
        "many": lambda f: f.update({f"{i}{'x' * 200}": 0.0 for i in range(5000)}),
        "huge": lambda f: f.create_dataset("x", (3, 10**6, 10**6), "f4", chunks=(1, 64, 64), fillvalue=0.5),
        "block": lambda f: f.create_dataset("x", (3, 8, 8), "f4", maxshape=(None,) * 3, chunks=(3, 9000, 9000)),
        "words": lambda f: f.create_dataset("x", data=[["a"] * 8] * 8),
        "pairs": lambda f: f.create_dataset("x", (8, 8), [("a", "f4"), ("b", "f4")]),
    }  # fmt: skip
    for name, build in (good | bad).items():
        with h5py.File(buffer := io.BytesIO(), "w") as file:
            build(file)
        yield f"{name}.h5", buffer.getvalue(), VALUE if name in good else None


def tiff(entries: dict[int, tuple[int, int, int]], pages: int = 1, after: int = 0) -> bytes:
    """A TIFF of 8 x 8 gray pixels whose first page has these entries (type, count, value), and more pages behind it."""
    usual = {
        256: (3, 1, 8),
        257: (3, 1, 8),
        258: (3, 1, 8),
        262: (3, 1, 1),
        273: (4, 1, 8),
        278: (3, 1, 8),
        279: (4, 1, 64),
    }
    first = sorted((usual | entries).items())
    place = 78 + 12 * len(first)
    data = b"II*\0" + struct.pack("<I", 72) + bytes([64]) * 64 + struct.pack("<H", len(first))
    data += b"".join(struct.pack("<HHII", tag, *about) for tag, about in first)
    ends = [place + 18 * i for i in range(pages - 1)] + [after]
    return data + b"".join(struct.pack("<IHHHII", end, 1, 256, 3, 1, 8) for end in ends)[: 18 * pages - 14]


def tiffs() -> Files:
    """TIFF whose directories have no end, point anywhere, or hold more than the file."""
    bad = [{256: (4, 1, 60000), 257: (4, 1, 60000)}, {256: (4, 1, 2**31 - 1)}, {257: (3, 1, 0)}, {258: (3, 1, 77)},
           {259: (3, 1, 4711)}, {273: (4, 1, 2**31)}, {277: (3, 1, 60000)}, {256: (2, 2**30, 8)}]  # fmt: skip
    odd = [{33432: (2, 64, 8)}, {274: (3, 1, 99)}, {282: (5, 1, 8)}, {34665: (4, 1, 72)}, {330: (4, 1, 72)}]
    yield from ((f"bad{i}.tif", tiff(about), None) for i, about in enumerate(bad))
    yield from ((f"odd{i}.tif", tiff(about), GRAY) for i, about in enumerate(odd))
    yield "many.tif", tiff({65000 + i: (7, 10**6, 0) for i in range(400)}) + bytes(10**6), None
    yield "loop.tif", tiff({}, after=72), GRAY
    yield from ((f"{pages}.tif", tiff({}, pages), GRAY) for pages in (3, 160_000))


def png(width: int, height: int, *chunks: tuple[bytes, bytes], pixels: bytes = bytes(100_000)) -> bytes:
    """A gray PNG that has what it is told."""
    header = (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    parts = [header, *chunks, (b"IDAT", zlib.compress(pixels)), (b"IEND", b"")]
    sealed = (struct.pack(">I", len(d)) + kind + d + struct.pack(">I", zlib.crc32(kind + d)) for kind, d in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(sealed)


def saved(kind: str, side: int = 8, mode: str = "RGB") -> bytes:
    """A gray picture as Pillow writes it."""
    Image.new("RGB", (side, side), (64, 64, 64)).convert(mode).save(buffer := io.BytesIO(), kind)
    return buffer.getvalue()


def images() -> Files:
    """Bombs, and formats that start programs or hold other sizes than they say, some under the names of others."""
    rows, zeros = (b"\0" + bytes([64]) * 8) * 8, zlib.compress(bytes(3 * 10**8), 9)
    icon = png(13_300, 13_300, pixels=bytes(13_301 * 13_300))
    icon = b"\0\0\1\0\1\0\x08\x08\0\0\1\0\x20\0" + struct.pack("<II", len(icon), 22) + icon
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9000 9000\n%%EndComments\n(stolen) (w) file\n%%EOF\n"
    bmp = struct.pack("<2sIIIIiiHHIIIIII", b"BM", 99, 0, 54, 40, 60_000, -60_000, 1, 24, 0, 0, 0, 0, 0, 0)
    bad = {
        "side.png": png(30_000, 30_000), "long.png": png(2**31 - 1, 1), "none.png": png(0, 8), "side.bmp": bmp,
        "text.png": png(8, 8, (b"zTXt", b"x\0\0" + zeros), pixels=rows), "icon.ico": icon, "icon.png": icon,
        "profile.png": png(8, 8, (b"iCCP", b"x\0\0" + zeros), pixels=rows), "x.eps": eps, "eps.png": eps,
        "side.qoi": b"qoif" + struct.pack(">IIBB", 13_300, 13_300, 4, 0) + b"\xfd" * 10**6,
        "side.gif": b"GIF89a" + b"\xff" * 4 + b"\0\0\0," + b"\0" * 4 + b"\xff" * 4 + b"\0\x02\x02\x44\x01\0;",
        "side.ppm": b"P6 50000 50000 255\n", "digits.ppm": b"P6 " + b"9" * 5000 + b" 8 255\n",
        "side.tga": b"\0\0\x0a" + bytes(9) + struct.pack("<HHBB", 65535, 65535, 24, 0) + bytes(100),
        "side.pcx": b"\x0a\5\1\x08" + struct.pack("<HHHH", 0, 0, 65534, 65534) + bytes(200),
        "side.jpg": saved("JPEG").replace(b"\0\x11\x08\0\x08\0\x08", b"\0\x11\x08\xff\xff\xff\xff"),
        "side.jp2": saved("JPEG2000").replace(b"\0\0\0\x08\0\0\0\x08", b"\0\1\0\0\0\1\0\0"),
    }  # fmt: skip
    yield from ((name, data, None) for name, data in bad.items())
    yield "film.png", png(8, 8, (b"acTL", struct.pack(">II", 2**31 - 1, 0)), pixels=rows), GRAY
    yield "more.png", png(8, 8, pixels=bytes(3 * 10**8)), -1.0
    ours = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF", "PPM", "AVIF", "JPEG2000", "QOI", "PCX", "TGA")
    yield from ((f"{kind}.{'jp2' if '2' in kind else kind.lower()}", saved(kind), GRAY) for kind in ours)
    others = "BLP.P DDS EPS ICNS ICO IM MSP.1 PDF SGI SPIDER.F XBM.1"
    yield from ((f"{kind}.png", saved(kind.split(".")[0], 32, *kind.split(".")[1:]), None) for kind in others.split())


def settings(data: Path) -> Files:
    """YAML that stands for billions of values, has no bottom, or names classes."""
    nested = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    nested += "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
    merged = "b0: &b0 {x: 1}\n" + "".join(f"b{i}: &b{i} {{<<: [*b{i - 1}, *b{i - 1}]}}\n" for i in range(1, 60))
    bad = [nested, merged, "x: &x [*x]", "x: &x {y: *x}", "x: " + "[" * 5000, "x: " + "{a: " * 5000, "- " * 20_000,
           "x: " + "9" * 10**6, "lr: " + "9" * 5000, "lr: 1e" + "9" * 5000, "lr: 0x" + "f" * 5000, "lr: .nan",
           "x: !!python/object/apply:os.system [touch stolen]", "lr: 1\nlr: 2", "x: " + "a" * 10**7, "\0",
           "x: !!binary ====", "lr: 2001-99-99", "? [1, 2]\n: 3", "x: 1:" + "59:" * 3000 + "1", "batch_size: -.inf",
           "data: [" + "a, " * 200_000 + "]", "--- 1\n--- 2", "network: 1", "lr: [1",
           "%YAML 9.9\n---\nlr: 1"]  # fmt: skip
    yield "good.yaml", f"{CONFIG}data: {data}\n".encode(), 1.0
    yield from ((f"bad{i}.yaml", f"{CONFIG}data: {data}\n{text}\n".encode(), None) for i, text in enumerate(bad))
