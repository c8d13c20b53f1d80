"""Files that were made to harm: what promises too much, points elsewhere, has no end, or starts programs.

Each one is restored, or given to `firm train` if it is YAML: its values come out right, or it is refused in a sentence,
soon, with little memory, and no other file is opened (which the process itself watches, and the other file's time).
"""

from __future__ import annotations

import io
import os
import pickle
import random
import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from commands import CONFIG, Result, pictures, tiny_model
from PIL import Image
from warm import Warm

GRAY = 64 / 127.5 - 1  # of the pictures that are good
VALUE = 0.25  # of the arrays that are
Files = dict[str, tuple[bytes, float | None]]  # by name; and the value of all pixels, or None: it is to be refused
READ = "from firm.data import read_image; x = read_image({!r})[0]; print('values', float(x.min()), float(x.max()))"


def strange_files(folder: Path, rng: random.Random) -> Result:
    """Hostile arrays, HDF5, TIFF, YAML and pictures of every format that Pillow knows."""
    model, secret = tiny_model(folder / "tiny.safetensors"), folder / "elsewhere" / "secret"
    secret.parent.mkdir()
    secret.write_bytes(np.full(192, 0.75, np.float32).tobytes())
    files = {**arrays(), **hdf5(folder, secret), **tiffs(), **images(), **settings(pictures(folder / "data", 4, 20, rng))}
    wrong = []
    with Warm() as firm:
        for name, (data, right) in files.items():
            path = folder / "files" / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
            os.utime(secret, (0, secret.stat().st_mtime))
            out = folder / "out" / name
            command = ["restore", path, "--task", "denoising", "--sigma", 0.1, "--model", model, "--out", out]
            if path.suffix == ".yaml":
                command = ["train", path, "--dry-run"]
            done = firm(*command, seconds=20)
            problem = done.problem or ("it took 10 s" if done.seconds > 10 else "")
            problem = problem or (f"it took {done.megabytes:.0f} MB" if done.megabytes > 1000 else "")
            problem = problem or ("the refusal is no sentence" if len(done.text) > 2000 and done.code else "")
            problem = problem or (f"it ended with {done.code}: {done.text[-300:]}" if (done.code == 2) != (right is None) else "")
            others = [file for file in done.touched if not file.startswith((str(path), str(out)))]
            allowed = path.suffix == ".yaml" or not others
            problem = problem or ("" if allowed else f"it opened {others}")
            problem = problem or ("it read another file" if secret.stat().st_atime else "")
            if not problem and right and path.suffix != ".yaml":
                found = [float(word) for word in firm("-c", READ.format(str(path))).text.split("values")[1].split()]
                problem = "" if all(abs(value - right) < 0.02 for value in found) else f"its values are {found}"
            wrong += [f"{name}: {problem}"] if problem else []
    return len(files) - len(wrong), len(files), wrong


def npy(shape: str = "(3, 8, 8)", descr: str = "'<f4'", order: str = "False", data: bytes | None = None,
        version: int = 1, length: int | None = None, text: str | None = None) -> bytes:  # fmt: skip
    """A .npy file; its header says what it is told."""
    about = (text or f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}\n").encode("latin-1")
    size = struct.pack("<H" if version == 1 else "<I", len(about) if length is None else length)
    return b"\x93NUMPY" + bytes([version, 0]) + size + about + (FLOATS if data is None else data)


FLOATS = np.full(192, VALUE, "<f4").tobytes()


def arrays() -> Files:
    """.npy, .npz and .pt."""
    good = [{}, {"order": "True"}, {"version": 2}, {"descr": "'>f4'", "data": np.full(192, VALUE, ">f4").tobytes()},
            {"descr": "'<f8'", "data": np.full(192, VALUE).tobytes()}, {"shape": "(3, 8, 8,)"}]  # fmt: skip
    shapes = ["(-3, 8, 8)", "(3, 8, -1)", "(3, 100000, 100000)", "(9223372036854775807, 9, 9)", f"({'9' * 4000}, 8, 8)",
              "(3.0, 8, 8)", "(True, 8, 8)", "(0, 8, 8)", "()", "3", "None", "'abc'", "(3, 8, 8", "(" * 4000,
              "(" + "1," * 40 + ")", "(3, 8, 9)", "(-1, -8, 24)"]  # fmt: skip
    kinds = ["'|O'", "'<U9'", "'|V8'", "[('a', '<f4')]", "'<M8[s]'", "'abc'", "7", "[" * 900, "('<f4', (99999999,) * 9)"]
    more: list[dict[str, Any]] = [
        {"version": 3}, {"version": 9}, {"length": 60000}, {"version": 2, "length": 2**32 - 1}, {"text": "{}"},
        {"text": "__import__('os').system('true')"}, {"data": FLOATS[:-9]}, {"data": b""}, {"order": "'F'", "data": b""},
        {"data": np.full(192, np.nan, "<f4").tobytes()}, {"data": np.full(192, np.inf, "<f4").tobytes()},
    ]  # fmt: skip
    bad = [*({"shape": v} for v in shapes), *({"descr": v} for v in kinds), *more]
    files: Files = {f"good{i}.npy": (npy(**about), VALUE) for i, about in enumerate(good)}
    files |= {f"bad{i}.npy": (npy(**about), None) for i, about in enumerate(bad)}
    members: dict[str, tuple[Iterable[tuple[str, bytes]], float | None]] = {
        "good": ([("x.npy", npy())], VALUE), "up": ([("../../x.npy", npy())], VALUE), "none": ([], None),
        "many": (((f"{i}.npy", b"") for i in range(20_000)), None), "object": ([("x.npy", npy(descr="'|O'"))], None),
        "bomb": ([("x.npy", npy("(3, 20000, 20000)", data=bytes(2 * 10**8)))], None),
        "large": ([("x.npy", npy("(3, 9000, 9000)", data=bytes(10**8)))], None), "text": ([("x.txt", b"x")], None),
    }  # fmt: skip
    for name, (inside, right) in members.items():
        files[f"{name}.npz"] = (zipped(inside), right)
    files["cut.npz"] = (files["good.npz"][0][:-30], None)
    eye = torch.full((3, 8, 8), VALUE)
    tensors = {"good": eye, "key": {"x": eye}, "sparse": eye.to_sparse(), "meta": eye.to("meta"), "text": "abc",
               "two": {"x": eye, "y": eye}, "deep": [[[[eye]]]], "nan": eye * float("nan"),
               "wide": eye[:1, :1, :1].expand(3, 30000, 30000)}  # fmt: skip
    for name, value in tensors.items():
        buffer = io.BytesIO()
        torch.save(value, buffer)
        files[f"{name}.pt"] = (buffer.getvalue(), VALUE if name in ("good", "key") else None)
    files["code.pt"] = (pickle.dumps(_Runs()), None)
    return files


class _Runs:
    """What runs a program when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch stolen",)


def zipped(inside: Iterable[tuple[str, bytes]]) -> bytes:
    """A zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in inside:
            archive.writestr(name, data)
    return buffer.getvalue()


def hdf5(folder: Path, secret: Path) -> Files:
    """Links in circles and to other files, values elsewhere, and data sets that are larger than they seem."""
    import h5py

    values = np.full((3, 8, 8), VALUE, np.float32)
    with h5py.File(secret.with_name("other.h5"), "w") as other:
        other["x"] = values + 0.5
    layout = h5py.VirtualLayout((3, 8, 8), "f4")
    layout[:] = h5py.VirtualSource(secret.with_name("other.h5"), "x", (3, 8, 8))
    gone = h5py.VirtualLayout((3, 8, 8), "f4")
    gone[:] = h5py.VirtualSource(secret.with_name("none.h5"), "x", (3, 8, 8))
    make: dict[str, Any] = {
        "good": lambda f: f.create_dataset("a/b/x", data=values, compression="gzip"),
        "big end": lambda f: f.create_dataset("x", data=values.astype(">f8")),
        "circle": lambda f: (f.create_group("a").__setitem__("b", f), f.create_dataset("x", data=values)),
        "soft": lambda f: (f.__setitem__("s", h5py.SoftLink("/s")), f.create_dataset("x", data=values)),
        "beside": lambda f: (f.__setitem__("e", h5py.ExternalLink(secret.with_name("other.h5"), "x")),
                             f.create_dataset("x", data=values)),
        "linked": lambda f: f.__setitem__("x", h5py.ExternalLink(secret.with_name("other.h5"), "x")),
        "stored": lambda f: f.create_dataset("x", (3, 8, 8), "f4", external=[(str(secret), 0, 768)]),
        "missing": lambda f: f.create_dataset("x", (3, 8, 8), "f4", external=[("none", 0, 768)]),
        "virtual": lambda f: f.create_virtual_dataset("x", layout), "gone": lambda f: f.create_virtual_dataset("x", gone),
        "deep": lambda f: f.create_dataset("a/" * 2000 + "x", data=values), "nothing": lambda f: None,
        "many": lambda f: [f.create_dataset(f"{i}{'x' * 200}", data=0.0) for i in range(5000)],
        "huge": lambda f: f.create_dataset("x", (3, 10**6, 10**6), "f4", chunks=(1, 64, 64), fillvalue=0.5),
        "chunk": lambda f: f.create_dataset("x", (3, 8, 8), "f4", maxshape=(None,) * 3, chunks=(3, 9000, 9000), fillvalue=0),
        "words": lambda f: f.create_dataset("x", data=[["a"] * 8] * 8), "null": lambda f: f.create_dataset("x", data=h5py.Empty("f4")),
        "pairs": lambda f: f.create_dataset("x", (8, 8), [("a", "f4"), ("b", "f4")]), "NaN": lambda f: f.create_dataset("x", data=values * np.nan),
        "refs": lambda f: f.create_dataset("x", (8, 8), h5py.ref_dtype), "scalar": lambda f: f.create_dataset("x", data=0.5),
    }  # fmt: skip
    files: Files = {}
    for name, build in make.items():
        path = folder / f"{name}.h5"
        with h5py.File(path, "w") as file:
            build(file)
        files[path.name] = (path.read_bytes(), VALUE if name in ("good", "big end", "circle", "soft", "beside") else None)
    return files | {"cut.h5": (files["good.h5"][0][:1500], None), "x.hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(9000), None)}


def tiff(entries: dict[int, tuple[int, int, int]], pages: int = 1, following: int = 0) -> bytes:
    """A TIFF of 8 x 8 gray pixels whose first page has other entries (type, count, value), and more pages after it."""
    usual = {256: (3, 1, 8), 257: (3, 1, 8), 258: (3, 1, 8), 259: (3, 1, 1), 262: (3, 1, 1), 273: (4, 1, 8),
             277: (3, 1, 1), 278: (3, 1, 8), 279: (4, 1, 64)}  # fmt: skip
    first = {**usual, **entries}
    place, size = 72, 6 + 12 * len(first)
    data = b"II*\0" + struct.pack("<I", place) + bytes([64]) * 64 + struct.pack("<H", len(first))
    data += b"".join(struct.pack("<HHII", tag, *about) for tag, about in sorted(first.items()))
    data += struct.pack("<I", place + size if pages > 1 else following)
    later = [struct.pack("<HHHIII", 1, 256, 3, 1, 8, place + size + 18 * (i + 1)) for i in range(pages - 1)]
    return data + b"".join(later)[:-4] + bytes(4 * (pages > 1))


def tiffs() -> Files:
    """TIFF whose directories have no end, point anywhere, or hold more than the file."""
    bad: list[dict[int, tuple[int, int, int]]] = [
        {256: (4, 1, 60000), 257: (4, 1, 60000)}, {256: (4, 1, 2**31 - 1)}, {257: (3, 1, 0)}, {258: (3, 1, 77)},
        {259: (3, 1, 4711)}, {273: (4, 1, 2**31)}, {277: (3, 1, 60000)}, {256: (2, 2**30, 8)}, {279: (4, 2**28, 8)},
    ]  # fmt: skip
    odd = [{700: (7, 2**31, 8)}, {33432: (2, 64, 8)}, {274: (3, 1, 99)}, {282: (5, 1, 8)}, {34665: (4, 1, 72)},
           {330: (4, 1, 72)}]  # fmt: skip
    files: Files = {f"bad{i}.tif": (tiff(about), None) for i, about in enumerate(bad)}
    files |= {f"odd{i}.tif": (tiff(about), GRAY) for i, about in enumerate(odd[1:])}
    files |= {"value.tif": (tiff(odd[0]), None), "loop.tif": (tiff({}, following=72), GRAY), "past.tif": (tiff({}, following=10**6), GRAY)}
    many = {65000 + i: (7, 10**6, 0) for i in range(400)}
    return files | {"many.tif": (tiff(many) + bytes(10**6), None), "pages.tif": (tiff({}, 40_000), GRAY),
                    "more.tif": (tiff({}, 160_000), GRAY)}  # fmt: skip


def png(width: int, height: int, *chunks: tuple[bytes, bytes], pixels: bytes = b"") -> bytes:
    """A gray PNG that has what it is told."""
    header = (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    parts = [header, *chunks, (b"IDAT", zlib.compress(pixels or bytes(100_000))), (b"IEND", b"")]
    data = b"".join(struct.pack(">I", len(d)) + kind + d + struct.pack(">I", zlib.crc32(kind + d)) for kind, d in parts)
    return b"\x89PNG\r\n\x1a\n" + data


def saved(kind: str, side: int = 8, mode: str = "RGB", **options: Any) -> bytes:
    """A gray picture as Pillow writes it."""
    buffer = io.BytesIO()
    Image.new("RGB", (side, side), (64, 64, 64)).convert(mode).save(buffer, kind, **options)
    return buffer.getvalue()


def images() -> Files:
    """Bombs, and formats that start programs or hold other sizes than they say, under the names of others."""
    rows, zeros = (b"\0" + bytes([64]) * 8) * 8, zlib.compress(bytes(3 * 10**8), 9)
    qoi = b"qoif" + struct.pack(">IIBB", 13_300, 13_300, 4, 0) + b"\xfd" * 10**6
    ico = b"\0\0\1\0\1\0\x08\x08\0\0\1\0\x20\0" + struct.pack("<II", 700_000, 22) + png(13_300, 13_300) + bytes(600_000)
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9000 9000\n%%EndComments\n(stolen) (w) file\nshowpage\n%%EOF\n"
    files: Files = {
        "side.png": (png(30_000, 30_000), None), "long.png": (png(2**31 - 1, 1), None), "none.png": (png(0, 8), None),
        "text.png": (png(8, 8, (b"zTXt", b"x\0\0" + zeros), pixels=rows), None),
        "profile.png": (png(8, 8, (b"iCCP", b"x\0\0" + zeros), pixels=rows), GRAY),
        "film.png": (png(8, 8, (b"acTL", struct.pack(">II", 2**31 - 1, 0)), pixels=rows), GRAY),
        "fat.png": (png(8, 8, pixels=bytes(3 * 10**8)), -1.0), "bomb.ico": (ico, None), "ico.png": (ico, None),
        "bomb.qoi": (qoi, None), "x.eps": (eps, None), "eps.png": (eps, None), "good.png": (png(8, 8, pixels=rows), GRAY),
        "side.gif": (b"GIF89a" + b"\xff" * 4 + b"\0\0\0," + b"\0" * 4 + b"\xff" * 4 + b"\0\x02\x02\x44\x01\0;", None),
        "side.bmp": (b"BM" + struct.pack("<IIIIiiHHIIIIII", 99, 0, 54, 40, 60_000, -60_000, 1, 24, 0, 0, 0, 0, 0, 0), None),
        "side.ppm": (b"P6 50000 50000 255\n" + bytes(100), None), "digits.ppm": (b"P6 " + b"9" * 5000 + b" 8 255\n", None),
        "side.tga": (b"\0\0\x0a" + bytes(9) + struct.pack("<HHBB", 65535, 65535, 24, 0) + bytes(100), None),
        "side.pcx": (b"\x0a\5\1\x08" + struct.pack("<HHHH", 0, 0, 65534, 65534) + bytes(200), None),
        "side.jpg": (saved("JPEG").replace(b"\0\x11\x08\0\x08\0\x08", b"\0\x11\x08\xff\xff\xff\xff"), None),
        "side.jp2": (saved("JPEG2000").replace(b"\0\0\0\x08\0\0\0\x08", b"\0\1\0\0\0\1\0\0"), None),
    }  # fmt: skip
    ours = {"png": "PNG", "jpg": "JPEG", "webp": "WEBP", "bmp": "BMP", "tif": "TIFF", "gif": "GIF", "ppm": "PPM",
            "avif": "AVIF", "jp2": "JPEG2000", "qoi": "QOI", "pcx": "PCX", "tga": "TGA"}  # fmt: skip
    files |= {f"fine.{ending}": (saved(kind), GRAY) for ending, kind in ours.items()}
    others = ["BLP", "DDS", "EPS", "ICNS", "ICO", "IM", "MSP", "PDF", "SGI", "SPIDER", "XBM"]
    modes = {"BLP": "P", "MSP": "1", "SPIDER": "F", "XBM": "1"}
    return files | {f"{kind.lower()}.png": (saved(kind, 32, modes.get(kind, "RGB")), None) for kind in others}


def settings(data: Path) -> Files:
    """YAML that stands for billions of values, has no bottom, or names classes; what `firm train` takes is right."""
    nested = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    nested += "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
    merged = "b0: &b0 {x: 1}\n" + "".join(f"b{i}: &b{i} {{<<: [*b{i - 1}, *b{i - 1}]}}\n" for i in range(1, 60))
    bad = [
        nested, merged, "x: &x [*x]", "x: &x {y: *x}", "x: " + "[" * 5000, "x: " + "{a: " * 5000, "- " * 20_000, "x: " + "9" * 10**6,
        "lr: " + "9" * 5000, "lr: 1e" + "9" * 5000, "lr: 0x" + "f" * 5000, "size: 0b" + "1" * 9000, "x: !!python/object/apply:os.system [touch stolen]",
        "x: !!python/name:os.system", "lr: 1\nlr: 2", "x: " + "a" * 10**7, "\0", "\ufeff\ufeff", "x: !!binary ====", "lr: 2001-99-99", "? [1, 2]\n: 3",
        "x: 1:" + "59:" * 3000 + "1", "lr: .nan", "batch_size: -.inf", "data: [" + "a, " * 200_000 + "]", "--- 1\n--- 2", "network: 1", "%YAML 9.9\n---\nlr: 1",
    ]  # fmt: skip
    whole = CONFIG + f"data: {data}\n"
    files: Files = {f"bad{i}.yaml": (f"{whole}{text}\n".encode(errors="surrogatepass"), None) for i, text in enumerate(bad)}
    return files | {"good.yaml": (whole.encode(), 1.0), "anchor.yaml": (f"{whole}val_tasks: &x null\n".encode(), 1.0)}
