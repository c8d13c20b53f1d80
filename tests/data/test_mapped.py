"""Sets that are mapped, not held in memory."""

import os
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import save_pictures
from torch.utils._python_dispatch import TorchDispatchMode

from firm.data import folder_files, load_images
from firm.data.cache import _write_npy, map_npy


def load(dataset, root, **options):
    return load_images(dataset, root, **{"size": 16, "progress": False, **options})


def is_mapped(x):
    """Whether the memory of a tensor is that of a file."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if start <= x.data_ptr() < end:
            return ".npy" in line
    return False


class Largest(TorchDispatchMode):
    """Bytes of the largest tensor that torch makes anew."""

    bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        inputs = {x.untyped_storage().data_ptr() for x in args if isinstance(x, torch.Tensor)}
        if isinstance(out, torch.Tensor) and out.untyped_storage().data_ptr() not in inputs:
            self.bytes = max(self.bytes, out.untyped_storage().nbytes())
        return out


def peak(action):
    """What it returns, and the most bytes that numpy, Python and torch held in it (torch: in one tensor)."""
    tracemalloc.start()
    try:
        with Largest() as largest:
            out = action()
        return out, max(tracemalloc.get_traced_memory()[1], largest.bytes)
    finally:
        tracemalloc.stop()


SIDE = 64
FLOATS = ("float32.npy", "float64.npy", "uint16.npy", "range.npy", "float32.pt", "float64.h5", "files")
SETS = dict.fromkeys(FLOATS, 12 * SIDE**2)  # bytes of an image as the set keeps it, in memory or in the file
SETS |= {"pictures": 3 * SIDE**2, "bytes.npy": 3 * SIDE**2, "complex.npy": 24 * SIDE**2}


def make(kind, root, n):
    """A set of n images; the data set's name, its root, options."""
    root.mkdir()
    if kind == "pictures":
        return "folder", save_pictures(root, n, (SIDE, SIDE)), {}
    x = np.random.default_rng(1).uniform(-0.5, 0.5, (n, 3, SIDE, SIDE))
    if kind == "files":
        for i in range(n):
            np.save(root / f"{i:03}.npy", x[i])
        return "folder", root, {}
    path, options = root / f"x{Path(kind).suffix}", {}
    if kind.startswith("complex"):
        x = x + 1j * x[::-1]
    elif kind.startswith("range"):
        x, options = np.round(1000 * x).astype(np.int16), {"value_range": (-500, 500)}
    elif kind.startswith(("bytes", "uint16")):
        x = np.round(100 + 100 * x).astype(np.uint8 if kind.startswith("bytes") else np.uint16)
    elif kind.startswith("float32"):
        x = x.astype(np.float32)
    if path.suffix == ".npy":
        np.save(path, x)
    elif path.suffix == ".pt":
        torch.save(torch.from_numpy(x), path)
    else:
        with pytest.importorskip("h5py").File(path, "w") as file:
            file["x"] = x
    return "arrays", path, options


@pytest.mark.parametrize("kind", SETS)
def test_mapped_sets_are_not_held_in_memory(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("firm.data.arrays.BLOCK", 4 * SETS[kind])
    used = []
    for n in (20, 80):
        dataset, root, options = make(kind, tmp_path / str(n), n)
        cache = tmp_path / f"cache{n}"

        def read(dataset=dataset, root=root, options=options, cache=cache):
            images = load(dataset, root, size=SIDE, cache=cache, mapped=True, **options)
            return images, images.batch(range(7, 9))

        (images, batch), most = peak(read)
        used.append(most)
        held = load(dataset, root, size=SIDE, **options)
        assert torch.equal(images.data, held.data)
        assert torch.equal(batch, held.batch(range(7, 9)))
        assert (images.names, images.complex) == (held.names, held.complex)
        assert is_mapped(images.data)
        assert not is_mapped(held.data)
        assert not list(cache.glob(".*"))
        assert torch.equal(read()[0].data, held.data)
    assert used[1] < used[0] + 30 * SETS[kind]  # 60 images more
    assert used[1] < 50 * SETS[kind]


@pytest.mark.parametrize("kind", ["pictures", "float64.npy", "files", "float32.npy"])
def test_mapped_sets_are_converted_or_checked_once(kind, tmp_path, monkeypatch):
    read = []
    module = sys.modules["firm.data.load"]
    real_picture, real_values = module.decode, sys.modules["firm.data.arrays"].to_values
    monkeypatch.setattr(module, "decode", lambda *a, **k: read.append(1) or real_picture(*a, **k))
    monkeypatch.setattr("firm.data.arrays.to_values", lambda *a, **k: read.append(1) or real_values(*a, **k))
    dataset, root, _ = make(kind, tmp_path / "set", 3)
    counts = []
    for options in ({}, {}, {"size": 8}, {"limit": 2}, {}):
        read.clear()
        load(dataset, root, cache=tmp_path / "cache", mapped=True, **options)
        counts.append(len(read))
    assert [count > 0 for count in counts] == [True, False, True, True, False]
    file = root if root.is_file() else next(path for path in sorted(root.rglob("*")) if path.is_file())
    os.utime(file, ns=(1, 1))  # changed
    load(dataset, root, cache=tmp_path / "cache", mapped=True)
    assert len(read) > 0


def test_another_range_is_another_cache(tmp_path):
    _, root, _ = make("range.npy", tmp_path / "set", 2)
    a, b = (load("arrays", root, cache=tmp_path, mapped=True, value_range=r) for r in ((-500, 500), (-1000, 1000)))
    torch.testing.assert_close(a.data, 2 * b.data)


def test_a_plain_npy_is_mapped_as_it_is(tmp_path):
    for shape, whole in (((5, 20, 24), (5, 1, 20, 24)), ((20, 24), (1, 1, 20, 24)), ((5, 2, 20, 24), (5, 2, 20, 24))):
        for order in "CF":
            x = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
            np.save(tmp_path / "x.npy", np.asarray(x, order=order))
            images = load("arrays", tmp_path / "x.npy", size=None, mapped=True)  # no cache needed
            assert images.data.shape == whole
            assert is_mapped(images.data)
            assert torch.equal(images.data, torch.from_numpy(x).reshape(whole))
            crop = load("arrays", tmp_path / "x.npy", size=16, mapped=True, limit=1)
            assert torch.equal(crop.data, images.data[:1, :, 2:18, 4:20])
            images.data.fill_(7)  # stays in this process
            assert np.array_equal(np.load(tmp_path / "x.npy"), x)


def test_what_cannot_be_mapped_as_it_is_needs_a_cache(tmp_path):
    for kind in ("float64.npy", "complex.npy", "files", "range.npy"):
        dataset, root, options = make(kind, tmp_path / kind, 1)
        with pytest.raises(ValueError, match=r"must be converted before it can be mapped .* cache=DIR"):
            load(dataset, root, mapped=True, **options)
    np.savez(tmp_path / "x.npz", np.zeros((2, 16, 16)))
    with pytest.raises(ValueError, match=r"x\.npz: \.npz files cannot be mapped into memory: save the array as \.npy"):
        load("arrays", tmp_path / "x.npz", mapped=True, cache=tmp_path)


def test_tensors_are_mapped_while_they_are_converted(tmp_path, monkeypatch):
    _, root, _ = make("float32.pt", tmp_path / "set", 1)
    asked, real = [], torch.load
    monkeypatch.setattr(torch, "load", lambda *a, **k: asked.append(k["mmap"]) or real(*a, **k))
    load("arrays", root, mapped=True, cache=tmp_path)
    load("arrays", root)
    assert asked == [True, False]


def test_pictures_are_decoded_only_a_few_ahead(tmp_path):
    module, decoded = sys.modules["firm.data.load"], []
    files = folder_files(save_pictures(tmp_path, 60, (16, 16)))
    blocks = module._decode_ahead(files, lambda path: decoded.append(path) or torch.zeros(3, 16, 16), False, False)
    next(blocks)
    time.sleep(0.2)  # the threads go on while nobody takes
    assert len(decoded) <= 2 * min(8, os.cpu_count() or 1) < 60
    assert len(list(blocks)) == 59
    assert sorted(decoded) == files


def test_a_cache_of_another_shape_or_type_is_made_anew(tmp_path):
    dataset, root, _ = make("float64.npy", tmp_path / "set", 2)
    expected = load(dataset, root).data
    for wrong in (np.zeros((2, 3, 16, 17), np.float32), np.zeros((1, 3, 16, 16), np.float32), np.zeros((2, 3, 16, 16))):
        assert torch.equal(load(dataset, root, mapped=True, cache=tmp_path / "cache").data, expected)
        (path,) = (tmp_path / "cache").glob("*.npy")
        path.unlink()
        np.save(path, wrong)
    assert torch.equal(load(dataset, root, mapped=True, cache=tmp_path / "cache").data, expected)
    for ending in ("json", "npy"):  # a pipe would be waited for
        (path,) = (tmp_path / "cache").glob(f"*.{ending}")
        path.unlink()
        os.mkfifo(path)
        assert torch.equal(load(dataset, root, mapped=True, cache=tmp_path / "cache").data, expected)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="about the memory of Linux")
def test_files_larger_than_the_memory_can_be_mapped(tmp_path):
    path = tmp_path / "x.npy"
    n = 2 + 2 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    _write_npy(path, [(range(1), np.ones((1, 1, 512, 512), np.float32))], (1, 512, 512), np.dtype(np.float32))
    header = path.read_bytes()[:256].replace(b"(1, 1, 512, 512)", f"({n}, 1, 512, 512)".encode())
    try:
        with open(path, "r+b") as file:
            file.write(header[:10] + header[10:].rstrip().ljust(245) + b"\n")
            file.truncate(256 + n * 2**20)  # sparse
    except OSError:
        pytest.skip("no sparse files of that size here")
    x = torch.from_numpy(map_npy(path))
    assert x.shape == (n, 1, 512, 512)
    assert (float(x[0].min()), float(x[n - 1].max())) == (1, 0)
