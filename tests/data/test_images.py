"""Images by index, every data set through one entry, and sets that are mapped, not held in memory."""

import os
import re
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils._python_dispatch import TorchDispatchMode

from firm.data import Images, PictureError, folder_files, load_images, read_image, read_picture, resident, to_float
from firm.data.cache import map_npy, write_npy
from firm.data.picture import to_tensor


def pictures(root, n, side=16):
    root.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    for i in range(n):
        Image.fromarray(generator.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(root / f"{i:03}.png")
    return root


def load(dataset, root, **options):
    return load_images(dataset, root, **{"size": 16, "progress": False, **options})


def is_mapped(x):
    """Whether the memory of a tensor is that of a file."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if start <= x.data_ptr() < end:
            return ".npy" in line
    return False


# Images


def test_bytes_and_floats_become_images():
    x = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(to_float(x), to_tensor(x))
    assert (to_float(x)[0], to_float(x)[255]) == (-1, 1)
    y = torch.randn(3)
    assert to_float(y) is y
    with pytest.raises(TypeError, match=r"uint8 or float32, not torch\.float64"):
        to_float(y.double())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_batches_by_index(dtype):
    data = (torch.rand(6, 2, 4, 5) * 255).to(dtype)
    images = Images(data, list("abcdef"))
    assert (len(images), images.channels, images.shape) == (6, 2, (2, 4, 5))
    whole = to_float(data)
    for index, expected in [
        (torch.tensor([4, 0, 4]), whole[[4, 0, 4]]),
        (slice(1, None, 2), whole[1::2]),
        (slice(-2, None), whole[-2:]),
        (slice(None, None, -1), whole.flip(0)),
        (range(2, 4), whole[2:4]),
        (range(0), whole[:0]),
    ]:
        batch = images.batch(index)
        assert batch.dtype == torch.float32
        assert torch.equal(batch, expected)
    for wrong in (range(5, 7), torch.tensor([6])):
        with pytest.raises(IndexError):
            images.batch(wrong)


def test_a_batch_is_a_copy_and_a_part_is_not():
    images = Images(torch.rand(6, 2, 4, 5), list("abcdef"), complex=True)
    before = images.data.clone()
    images.batch(slice(None)).fill_(7)
    assert torch.equal(images.data, before)
    part = images.part(2, 5)
    assert part.names == ["c", "d", "e"]
    assert part.complex
    assert part.data.data_ptr() == images.data[2].data_ptr()
    assert len(images.part(stop=2)) + len(images.part(2)) == 6


@pytest.mark.parametrize(
    ("data", "names", "is_complex", "message"),
    [
        (torch.zeros(2, 4, 4), ["a", "b"], False, r"\(n, C, H, W\) of uint8 or float32, got \(2, 4, 4\)"),
        (torch.zeros(2, 1, 4, 4).double(), ["a", "b"], False, "float64"),
        (torch.zeros(2, 1, 4, 4), ["a"], False, "2 images need as many names, got 1"),
        (torch.zeros(2, 3, 4, 4), ["a", "b"], True, "even number of float32 channels, got 3"),
        (torch.zeros(2, 2, 4, 4, dtype=torch.uint8), ["a", "b"], True, "even number of float32"),
    ],
)
def test_what_cannot_be_images(data, names, is_complex, message):
    with pytest.raises(ValueError, match=message):
        Images(data, names, is_complex)


# Pictures


def test_pictures_come_as_resident_gives_them(tmp_path):
    files = folder_files(pictures(tmp_path / "set" / "sub", 4))
    images = load("folder", tmp_path / "set")
    assert torch.equal(images.data, resident(files, 16, progress=False)[0])
    assert images.names == [f"sub/{i:03}.png" for i in range(4)]
    assert not images.complex
    assert load("folder", tmp_path / "set", channels=1, size=8).shape == (1, 8, 8)
    assert load("folder", tmp_path / "set", limit=3).names == images.names[:3]
    cache = tmp_path / "cache"
    load("folder", tmp_path / "set", cache=cache)
    before = sorted(path.name for path in cache.iterdir())
    resident(files, 16, cache=cache, progress=False)  # finds what load_images has left
    load("folder", tmp_path / "set", cache=cache, mapped=True)
    assert sorted(path.name for path in cache.iterdir()) == before


def test_caches_of_older_versions_are_found(tmp_path, monkeypatch):
    """The key and the index as they have always been; the array as np.save writes it."""
    import hashlib
    import json

    (file,) = folder_files(pictures(tmp_path / "set", 1))
    status = file.stat()
    about = {
        "files": [[str(file.resolve()), status.st_size, status.st_mtime_ns]],
        "size": 16, "crop": None, "channels": 3, "broken": "refuse",
    }  # fmt: skip
    key = hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]
    (tmp_path / "cache").mkdir()
    np.save(tmp_path / "cache" / f"{key}.npy", np.full((1, 3, 16, 16), 77, np.uint8))
    (tmp_path / "cache" / f"{key}.json").write_text(json.dumps({**about, "kept": [0]}))
    assert int(load("folder", tmp_path / "set", cache=tmp_path / "cache").data.min()) == 77


def test_named_sets(tmp_path):
    for split, name in (("train", "a"), ("val", "b")):
        pictures(tmp_path / split / "cat", 1)
        (tmp_path / split / "cat" / "000.png").rename(tmp_path / split / "cat" / f"{name}.png")
    assert load("afhq", tmp_path).names == ["train/cat/a.png"]
    assert load("afhq", tmp_path, split="val").names == ["val/cat/b.png"]
    faces = tmp_path / "celeba" / "img_align_celeba"
    faces.mkdir(parents=True)
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (240, 260, 3), dtype=np.uint8)).save(faces / "1.png")
    (tmp_path / "celeba" / "list_eval_partition.txt").write_text("1.png 0\n")
    images = load("celeba", tmp_path / "celeba")
    assert torch.equal(images.batch(range(1))[0], read_picture(faces / "1.png", 16, crop=178))


def test_wrong_choices(tmp_path):
    pictures(tmp_path / "set", 1)
    for wrong, message in [
        ({"size": None}, "set: pictures are resized to one size"),
        ({"value_range": (0, 1)}, "value_range and key are for arrays; these are pictures"),
        ({"key": "x"}, "value_range and key are for arrays"),
        ({"mapped": True}, "pictures must be decoded before .* cache=DIR"),
        ({"broken": "ignore"}, '"refuse" or "skip"'),
        ({"limit": -1}, "limit must not be negative"),
        ({"size": 0}, "size at least 1"),
        ({"channels": 4}, r"channels must be 1 \(grey\) or 3 \(RGB\) for pictures, got 4; .* from arrays \(\.npy"),
    ]:
        with pytest.raises(ValueError, match=message):
            load("folder", tmp_path / "set", **wrong)
    with pytest.raises(ValueError, match="no data set 'cifar'; there are celeba, afhq, folder, arrays"):
        load("cifar", tmp_path)


def test_folders_of_pictures_or_arrays_but_not_both(tmp_path):
    pictures(tmp_path, 1)
    np.save(tmp_path / "x.npy", np.zeros((16, 16)))
    with pytest.raises(ValueError, match=r"pictures \(000\.png\) and arrays \(x\.npy\) in one folder"):
        load("folder", tmp_path)
    assert load("arrays", tmp_path).names == ["x.npy"]
    with pytest.raises(NotADirectoryError, match=r'x\.npy: a file; .* called "arrays"'):
        load("folder", tmp_path / "x.npy")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no pictures and no arrays"):
        load("folder", tmp_path / "empty")
    with pytest.raises(NotADirectoryError, match="no such folder"):
        load("folder", tmp_path / "absent")


def test_one_image_of_either_kind(tmp_path):
    (file,) = folder_files(pictures(tmp_path, 1))
    x, is_complex = read_image(file)
    assert not is_complex
    assert torch.equal(x, read_picture(file))
    assert read_image(file, 1)[0].shape == (1, 16, 16)
    with pytest.raises(ValueError, match="from arrays"):
        read_image(file, 2)
    with pytest.raises(ValueError, match=r"000\.png: value_range and key are for arrays"):
        read_image(file, value_range=(0, 1))
    with pytest.raises(PictureError, match="no such file"):
        read_image(tmp_path / "absent.png")
    np.save(tmp_path / "x.npy", np.array([[0, 255]], np.uint8))
    assert read_image(tmp_path / "x.npy")[0].tolist() == [[[-1, 1]]]


# Mapped sets


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
SETS = {  # name: bytes of an image as the set keeps it, in memory or in the file
    "pictures": 3 * SIDE**2,
    "float32.npy": 3 * 4 * SIDE**2,
    "float64.npy": 3 * 4 * SIDE**2,
    "complex.npy": 6 * 4 * SIDE**2,
    "uint16.npy": 3 * 4 * SIDE**2,
    "range.npy": 3 * 4 * SIDE**2,
    "bytes.npy": 3 * SIDE**2,
    "float32.pt": 3 * 4 * SIDE**2,
    "float64.h5": 3 * 4 * SIDE**2,
    "files": 3 * 4 * SIDE**2,
}


def make(kind, root, n):
    """A set of n images; the data set's name, its root, options."""
    root.mkdir()
    if kind == "pictures":
        return "folder", pictures(root / "set", n, SIDE), {}
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
    monkeypatch.setattr("firm.data.array_values.BLOCK", 4 * SETS[kind])
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
        (again, _), _ = peak(read)
        assert torch.equal(again.data, held.data)
    assert used[1] < used[0] + 30 * SETS[kind]  # 60 images more
    assert used[1] < 50 * SETS[kind]


@pytest.mark.parametrize("kind", ["pictures", "float64.npy", "files", "float32.npy"])
def test_mapped_sets_are_converted_or_checked_once(kind, tmp_path, monkeypatch):
    read = []
    module = sys.modules["firm.data._resident"]
    real_picture, real_values = module.decode_array, sys.modules["firm.data.arrays"].to_values
    monkeypatch.setattr(module, "decode_array", lambda *a, **k: read.append(1) or real_picture(*a, **k))
    monkeypatch.setattr("firm.data.arrays.to_values", lambda *a, **k: read.append(1) or real_values(*a, **k))
    dataset, root, _ = make(kind, tmp_path / "set", 3)
    counts = []
    for options in ({}, {}, {"size": 8}, {"limit": 2}, {}):
        read.clear()
        load(dataset, root, cache=tmp_path / "cache", mapped=True, **options)
        counts.append(len(read))
    assert counts[0] > 0
    assert counts[1] == counts[4] == 0
    assert counts[2] > 0
    assert counts[3] > 0
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


def test_pictures_are_decoded_only_a_few_ahead(tmp_path, monkeypatch):
    module, decoded = sys.modules["firm.data._resident"], []
    real = module.decode_array
    monkeypatch.setattr(module, "decode_array", lambda path, *a, **k: decoded.append(path) or real(path, *a, **k))
    files = folder_files(pictures(tmp_path, 60))
    blocks = module._decode_all(files, 16, None, 3, "refuse", False)
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


def test_a_conversion_that_fails_leaves_nothing(tmp_path):
    def blocks():
        yield [0], np.zeros((1, 1, 4, 4), np.float32)
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        write_npy(tmp_path / "cache" / "x.npy", blocks(), (1, 4, 4), np.dtype(np.float32))
    assert not list((tmp_path / "cache").iterdir())
    with pytest.raises(ValueError, match=r"a block \(1, 4, 4\) float32 in a file of \(1, 4, 5\) float32"):
        write_npy(tmp_path / "cache" / "x.npy", blocks(), (1, 4, 5), np.dtype(np.float32))
    assert not list((tmp_path / "cache").iterdir())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="about the memory of Linux")
def test_files_larger_than_the_memory_can_be_mapped(tmp_path):
    path = tmp_path / "x.npy"
    n = 2 + 2 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    write_npy(path, [(range(1), np.ones((1, 1, 512, 512), np.float32))], (1, 512, 512), np.dtype(np.float32))
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


def test_the_python_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs" / "data.md"
    programs = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(programs) >= 4
    names = {}
    for program in programs:
        exec(program, names)
