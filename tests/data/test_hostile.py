"""Hostile files: small on disk, with headers that lie; each is read or refused by name, quickly, in little memory."""

import io
import os
import pickle
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from array_helpers import floats, write
from PIL import Image

from firm.data import ArrayError, PictureError, load_images, read_image, read_picture
from firm.data.opening import frames, header

h5py = pytest.importorskip("h5py")


class Evil:
    def __reduce__(self):
        return (exec, ("raise SystemExit('code of a file was run')",))


def npy(shape, descr="<f4", held=1000):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue() + bytes(held)


def npz(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return file.getvalue()


def pt(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def h5(fill):
    file = io.BytesIO()
    with h5py.File(file, "w") as inner:
        fill(inner)
    return file.getvalue()


def dataset(shape, dtype="f4", **options):
    return h5(lambda file: file.create_dataset("x", shape, dtype, **options))


def swollen(file):
    x = file.create_dataset("x", (8, 8), "f4", chunks=(8, 8), compression="gzip")
    x.id.write_direct_chunk((0, 0), zlib.compress(bytes(50_000_000)))


def elsewhere(file):
    layout = h5py.VirtualLayout((8, 8), "f4")
    layout[:] = h5py.VirtualSource("other.h5", "group/x", (8, 8))
    file.create_virtual_dataset("x", layout)


def deep(file):
    for _ in range(120):
        file = file.create_group("g")
    file["x"] = floats(8, 8)


def packed(file):
    file.create_dataset("x", data=floats(3, 32, 32), chunks=(1, 32, 32), compression="gzip")


HEADER = b"\x93NUMPY\x01\x00"
ARRAYS = {  # contents, and what is said of them
    "negative.npy": (npy((-1, 8, 8)), "are more than there are"),
    "twice negative.npy": (npy((8, -8)), "are more than there are"),
    "huge.npy": (npy((10**30, 8, 8)), "are more than there are"),
    "long.npy": (npy((10**12, 3, 8, 8)), "are more than there are"),
    "overflow.npy": (npy((2**62, 8, 8)), "are more than there are"),
    "sixty-five axes.npy": (npy((1,) * 65), "damaged"),
    "objects.npy": (npy((3, 8, 8), "|O"), "Python objects, which could run code"),
    "pickle.npy": (pickle.dumps(Evil()), "Python objects, which could run code"),
    "nothing.npy": (npy((10**12, 8, 8), "|V0"), "not numbers"),
    "fractions.npy": (HEADER + struct.pack("<H", 60) + b"{'descr':'<f4','fortran_order':False,'shape':(2.5,8)}\n", ""),
    "brackets.npy": (HEADER + struct.pack("<H", 9000) + b"(" * 9000, "damaged"),
    "header of 4 GB.npy": (b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b"x", "damaged"),
    "negative.npz": (npz(**{"x.npy": npy((-1, 8, 8))}), "are more than there are"),
    "bomb.npz": (npz(**{"x.npy": npy((3, 20_000, 20_000))}), "are more than there are"),
    "names.npz": (npz(**{f"array {i}.npy": b"" for i in range(20_000)}), "several arrays .* and 19,990 more"),
    "escape.npz": (npz(**{"a\x1b[2J.npy": npy((8, 8)), "b.npy": npy((8, 8))}), r"several arrays \(a\?\[2J, b\)"),
    "text.npz": (npz(**{"x.txt": b"hello"}), "damaged"),
    "objects.npz": (npz(**{"x.npy": npy((3,), "|O")}), "Python objects, which could run code"),
    "objects.pt": (pt(Evil()), r"Python objects, which could run code((?!weights_only).)*$"),  # no advice to run it
    "meta.pt": (pt(torch.zeros(3, 8, 8, device="meta")), "without values"),
    "sparse.pt": (pt(torch.eye(8).to_sparse()), "sparse, nested or quantized"),
    "float8.pt": (pt(torch.zeros(8, 8).to(torch.float8_e4m3fn)), "numpy does not know"),
    "list.pt": (pt([torch.zeros(8, 8)]), "holds a list; save a tensor"),
    "strides.pt": (pt(torch.zeros(1).expand(3, 20_000, 20_000)), "larger than 64 megapixels"),
    "names.pt": (pt({f"tensor {i}": torch.zeros(1) for i in range(300)}), "several arrays .* and 290 more"),
    "external.h5": (dataset((8, 8), external=[("secret", 0, 256)]), "in other files"),
    "virtual.h5": (h5(elsewhere), "in other files"),
    "link.h5": (h5(lambda f: f.update(x=h5py.ExternalLink("other.h5", "group/x"))), "no arrays"),
    "loop.h5": (h5(lambda f: f.update(a=h5py.SoftLink("/b"), b=h5py.SoftLink("/a"))), "no arrays"),
    "type.h5": (h5(lambda f: f.update(x=np.dtype("f4"))), "no arrays"),
    "deep.h5": (h5(deep), "more than 100 deep"),
    "names.h5": (h5(lambda f: f.update({f"{i}": 0 for i in range(300)})), "several arrays .* and 290 more"),
    "bytes.h5": (h5(lambda f: f.update({b"\xff": floats(8, 8), "\x1b[2J": floats(8, 8)})), r"several .*\?\[2J"),
    "empty.h5": (h5(lambda f: f.update(x=h5py.Empty("f4"))), "not numbers"),
    "text.h5": (h5(lambda f: f.update(x="hello")), "not numbers"),
    "swollen.h5": (h5(swollen), "blocks of 256 bytes hold more"),
    "blocks.h5": (dataset((8, 8), chunks=(20_000,) * 2, maxshape=(None,) * 2), "in blocks"),
    "large.h5": (dataset((3, 20_000, 20_000), chunks=(1, 99, 99)), "larger than 64 megapixels"),
    "damaged names.h5": (h5(packed).replace(b"SNOD", b"SN0D"), "damaged"),
    "damaged values.h5": (h5(packed).replace(b"\x78\x5e", b"\0\0"), "damaged"),
}  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_is_refused_by_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("secret").write_bytes(bytes(256))
    write(Path("other.h5"), floats(8, 8))
    content, message = ARRAYS[name]
    Path(name).write_bytes(content)
    with pytest.raises(ArrayError, match=f"^{name}: .*{message}") as caught:
        read_image(name)
    assert len(str(caught.value)) < 600
    assert str(caught.value).isprintable()


def test_links_in_circles_do_not_hide_an_array(tmp_path):
    def fill(file):
        file.update(a=h5py.SoftLink("/b"), b=h5py.SoftLink("/a"), x=floats(8, 8), kind=np.dtype("f4"))
        file.create_group("group")["up"] = file["/"]

    (tmp_path / "x.h5").write_bytes(h5(fill))
    assert read_image(tmp_path / "x.h5")[0].shape == (1, 8, 8)


# Pictures


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(*before, pixels=bytes(200), side=8):
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n" + header + b"".join(before) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")
    )


def directory(entries, after=0):
    packed = b"".join(struct.pack("<HHII", *entry) for entry in sorted(entries))
    return struct.pack("<H", len(entries)) + packed + struct.pack("<I", after)


def tiff(content):
    return b"II*\0" + struct.pack("<I", 24) + bytes(16) + content


def page(more=(), after=0, side=4):
    usual = [(256, 4, 1, side), (257, 4, 1, side), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8)]
    return directory([*usual, (277, 3, 1, 1), (278, 4, 1, side), (279, 4, 1, 16), *more], after)


def exif(count, size):
    """EXIF data of which `count` entries point at the same `size` bytes."""
    same = [(1000 + i, 7, size, 8) for i in range(count)]
    return b"II*\0" + struct.pack("<I", 8 + size) + bytes(size) + directory(same)


def saved(kind):
    file = io.BytesIO()
    Image.new("RGB", (32, 32)).save(file, kind)
    return file.getvalue()


PAGES = tiff(b"".join(page(after=24 + (i + 1) * len(page())) for i in range(160_000)))
CROWDED = tiff(page([(1000 + i, 7, 10**6, 24) for i in range(2000)]) + bytes(10**6))
PICTURES = {
    "crowded.tif": (CROWDED, "metadata are larger than the file"),
    "exif.png": (png(chunk(b"eXIf", exif(2000, 10**6))), "EXIF data would fill the memory"),
    "profile.png": (png(chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(10**8)))), "damaged"),
    "texts.png": (png(*[chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(900_000)))] * 100), "damaged"),
    "huge.png": (png(side=30_000), "30000x30000 .* megapixels.*--max-megapixels"),
    "huge.gif": (saved("GIF")[:6] + struct.pack("<HH", 30_000, 30_000) + saved("GIF")[10:], "megapixels"),
    "huge.tif": (tiff(page(side=60_000)), "megapixels"),
    "header.ppm": (b"P6 " + b"1" * 10**5, "damaged"),
    "raw.qoi": (b"qoif" + struct.pack(">IIBB", 30_000, 30_000, 3, 0) + bytes(99), "megapixels"),
    "side.bmp": (b"BM" + struct.pack("<IHHIIiiHHI", 9, 0, 0, 54, 40, -(2**31), 9, 1, 24, 0) + bytes(20), "65,535"),
    "starts Ghostscript.png": (saved("EPS"), "no picture in a format"),
    "holds other pictures.png": (saved("ICO"), "no picture in a format"),
    "pages.tif": (PAGES, None),
    "circle.tif": (tiff(page(after=24)), None),
    "one broken entry.tif": (tiff(page([(1000, 7, 2**32 - 1, 8)])), None),
    "too much.png": (png(pixels=bytes(10**7)), None),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_read_or_refused_by_name(name, tmp_path):
    content, message = PICTURES[name]
    (tmp_path / name).write_bytes(content)
    if message is None:
        assert max(read_picture(tmp_path / name).shape[1:]) == (8 if name.endswith("png") else 4)
    else:
        with pytest.raises(PictureError, match=f"{name}: .*{message}"):
            read_picture(tmp_path / name)


def test_the_pages_of_a_tiff_are_counted_without_reading_them(tmp_path):
    def counted(name):
        with header(tmp_path / name) as picture:
            return frames(tmp_path / name, picture)

    (tmp_path / "pages.tif").write_bytes(PAGES)
    (tmp_path / "circle.tif").write_bytes(tiff(page(after=24)))
    assert counted("pages.tif") == (1000, "pages or more")
    assert counted("circle.tif") == (1, "pages")
    six = [Image.new("L", (4, 4))] * 6
    for options in ({}, {"big_tiff": True}):
        six[0].save(tmp_path / "six.tif", save_all=True, append_images=six[1:], **options)
        assert counted("six.tif") == (6, "pages")
    six[0].save(tmp_path / "a.png")
    assert counted("a.png") == (1, "frames")


@pytest.mark.parametrize("name", ["x.png", "x.npy"])
def test_a_pipe_is_neither_read_nor_called_missing(name, tmp_path):
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match=f"{name}: a pipe or a device, not a file"):
        read_image(tmp_path / name)
    with pytest.raises((ValueError, OSError), match=name):
        load_images("arrays", tmp_path / name, size=None, progress=False)
